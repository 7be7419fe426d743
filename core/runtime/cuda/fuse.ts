/**
 * Program → program of larger ops that have kernels of their own, one fusion after the other.
 *
 * Every op that a fusion introduces has a decomposition, so the result still runs on the reference device,
 * and a test shows for each fusion that it computes the same. What is fused is in the files of `fuse/`.
 */
import { writeSlots } from "../../graph/primitives.ts";
import type { Op, Program } from "../../graph/program.ts";
import { addBeforeNorm } from "./fuse/residuals.ts";
import { rotateWhileWriting, writeWhereTheyLie } from "./fuse/cache_writes.ts";
import { computeInPlace } from "./fuse/in_place.ts";
import { joinLinears, joinSwiglu } from "./fuse/linears.ts";
import { joinSquares } from "./fuse/squares.ts";
import { keepStatistics, readsStatistic } from "./fuse/statistics.ts";
import type { ElementType } from "./tensor.ts";

/** Fuses a prepared program for a device that computes in `elements`. */
export function fuse(program: Program, elements: ElementType): Program {
  return [
    keepStatistics,
    addBeforeNorm,
    joinSwiglu,
    joinLinears,
    writeWhereTheyLie,
    (each: Program) => rotateWhileWriting(each, elements),
    computeInPlace,
    joinSquares,
  ].reduce((current, fusion) => fusion(current), program);
}

/** Whether every node of an op is replaced, so that it needs no rule. */
export function isFused(op: Op): boolean {
  return op === writeSlots || readsStatistic(op);
}
