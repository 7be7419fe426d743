/**
 * Lines of every folder. A feature that adds lines raises the number of its folder in the same commit, which
 * says what paid for it.
 */
import { assert, assertEquals } from "@std/assert";
import { ROOT } from "../fixtures.ts";

const COUNTED = /\.(ts|js|cu|cuh|css|html|wat|py)$/;

/** Most lines of the files in a folder. */
const BUDGET: Readonly<Record<string, number>> = {
  "cli": 300,
  "cli/commands": 150,
  "cli/commands/bench": 600,
  "cli/commands/chat": 650,
  "cli/commands/compare": 900,
  "cli/commands/completions": 50,
  "cli/commands/convert": 400,
  "cli/commands/cost": 1050,
  "cli/commands/doctor": 300,
  "cli/commands/eval": 1500,
  "cli/commands/export": 250,
  "cli/commands/fit": 800,
  "cli/commands/generate": 950,
  "cli/commands/help": 150,
  "cli/commands/inspect": 300,
  "cli/commands/plot": 500,
  "cli/commands/score": 300,
  "cli/commands/serve": 600,
  "cli/commands/train": 2000,
  "cli/commands/visualize": 1250,
  "cli/framework": 2200,
  "cli/input": 1450,
  "cli/output": 3200,
  "cli/ranks": 350,
  "cli/release": 850,
  "core/analysis": 1800,
  "core/base": 1750,
  "core/base/platform": 450,
  "core/bringup": 500,
  "core/checkpoint": 3000,
  "core/checkpoint/gguf": 1200,
  "core/collective": 1250,
  "core/convert": 1050,
  "core/data": 3750,
  "core/eval/grading/code": 800,
  "core/eval/grading/ifeval": 1150,
  "core/eval/grading/math": 1100,
  "core/eval/harness": 2650,
  "core/eval/python": 300,
  "core/eval/sandbox": 1250,
  "core/eval/sandbox/python": 700,
  "core/eval/tasks": 1300,
  "core/generate": 3300,
  "core/grammar": 3400,
  "core/graph": 1450,
  "core/graph/primitives": 300,
  "core/hub": 1550,
  "core/model": 1500,
  "core/ops": 1150,
  "core/quant": 800,
  "core/runtime": 550,
  "core/runtime/cuda": 1450,
  "core/runtime/cuda/driver": 1100,
  "core/runtime/cuda/kernels": 1350,
  "core/runtime/memory": 300,
  "core/runtime/onnxruntime": 500,
  "core/runtime/onnxruntime/capi": 500,
  "core/runtime/onnxruntime/lowering": 1150,
  "core/runtime/onnxruntime/session": 800,
  "core/runtime/onnxruntime/webgpu": 550,
  "core/runtime/reference": 450,
  "core/runtime/tfjs": 550,
  "core/serve": 3450,
  "core/serve/page": 500,
  "core/session": 1250,
  "core/storage": 600,
  "core/tokenizer": 2600,
  "core/tokenizer/jinja": 3500,
  "core/train": 2000,
  "kernels/backward": 650,
  "kernels/common": 400,
  "kernels/cpu": 300,
  "kernels/forward": 850,
  "kernels/optimizer": 50,
  "kernels/primitive": 300,
};

/** Most lines of all folders, and of the tests; both may only be lowered. */
const ALL = 81396, TESTS = 46876;

function countLines(folder: string, counts = new Map<string, number>()): Map<string, number> {
  for (const { name, isDirectory } of Deno.readDirSync(ROOT + folder)) {
    const path = `${folder}/${name}`;
    if (isDirectory) countLines(path, counts);
    else if (COUNTED.test(name)) {
      const lines = Deno.readTextFileSync(ROOT + path).split("\n").length - 1;
      counts.set(folder, (counts.get(folder) ?? 0) + lines);
    }
  }
  return counts;
}

function assertWithin(counts: ReadonlyMap<string, number>, budget: number): void {
  const sum = counts.values().reduce((sum, lines) => sum + lines, 0);
  assert(sum <= budget, `${sum} lines, budget ${budget}`);
}

Deno.test("folders keep to their budget of lines, and have no more of it than they use", () => {
  const counts = ["cli", "core", "kernels"].reduce((all, top) => countLines(top, all), new Map());
  const wrong = [...new Set([...Object.keys(BUDGET), ...counts.keys()])].flatMap((folder) => {
    const lines = counts.get(folder) ?? 0, budget = BUDGET[folder] ?? 0;
    const isKept = lines <= budget && (lines > budget - 100 || budget === 0);
    return isKept ? [] : [`${folder}: ${lines} lines, budget ${budget}`];
  });
  assertEquals(wrong, []);
  assertWithin(counts, ALL);
});

Deno.test("tests keep to their budget of lines", () => assertWithin(countLines("tests"), TESTS));
