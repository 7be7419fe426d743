/**
 * The tfjs device where it differs from others: TensorFlow's own gradients against our rules, tensors
 * that are not left behind, memory shared by views, and what is said when there is no TensorFlow.
 */
import { assert, assertEquals, assertRejects } from "@std/assert";
import * as tf from "@tensorflow/tfjs-core";
import { openCheckpoint } from "../../core/checkpoint/open.ts";
import { EnvironmentError } from "../../core/errors.ts";
import { generate } from "../../core/generate/generate.ts";
import { GREEDY } from "../../core/generate/sampling.ts";
import { Builder } from "../../core/graph/builder.ts";
import { differentiate, gradientName } from "../../core/graph/differentiate.ts";
import { add, assign, constant, mul } from "../../core/graph/primitives.ts";
import { prepare } from "../../core/graph/rewrite.ts";
import type { Program, Value } from "../../core/graph/types.ts";
import { buildLoss } from "../../core/model/loss.ts";
import { RandomStream } from "../../core/random.ts";
import type { Device } from "../../core/runtime/device.ts";
import { openDevice } from "../../core/runtime/mod.ts";
import { TfjsDevice } from "../../core/runtime/tfjs/device.ts";
import { evaluate } from "../../core/runtime/tfjs/evaluate.ts";
import { type Binding, describeBinding, findBinding } from "../../core/runtime/tfjs/open.ts";
import type { Tensor, TensorFlow } from "../../core/runtime/tfjs/storage.ts";
import { openTfjsInJavaScript } from "./devices.ts";
import { maxDifference, openGolden, readExpected, readExpectedTensors, TOLERANCE } from "./goldens.ts";
import { differentiableCases, scalarOf, variables } from "./gradient_cases.ts";
import { OP_CASES, type OpCase, randomInputs, runOn } from "./op_cases.ts";
import { reference } from "./devices.ts";
