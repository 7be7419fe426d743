/**
 * The ranks of a training run: processes that a launcher started, which join once their devices are open, and
 * leave together. The primary one, rank 0, writes for all; the others write errors of their own alone.
 */
import { EnvironmentError, NumericalError, UsageError } from "../../core/base/errors.ts";
import { usableCores } from "../../core/base/platform/mod.ts";
import {
  gatherNumbers,
  hashNumber,
  RanksDifferError,
  requireSame,
} from "../../core/collective/agreement.ts";
import { ALONE, chunksOf, type Collective } from "../../core/collective/collective.ts";
import { DataParallel, sliceOf } from "../../core/collective/data_parallel.ts";
import { detectLaunch, type Launch } from "../../core/collective/launch.ts";
import { abortLaunch, openGroup } from "../../core/collective/open.ts";
import { NoAnswerError } from "../../core/collective/process_group.ts";
import type { ModelConfig } from "../../core/model/config.ts";
import { parameterSpecs } from "../../core/model/parameters.ts";
import {
  type Device,
  type DeviceChoice,
  type ElementChoice,
  openDevice,
} from "../../core/runtime/mod.ts";
import type { Trainer } from "../../core/train/trainer.ts";
import { VERSION } from "../../core/base/version.ts";
import { errorText, Interrupted, ReportedError, reportOf } from "../output/errors.ts";
import { exitCode } from "../output/exit_codes.ts";
import type { Io } from "../output/io.ts";
import { type EndingSignal, saveBeforeEnding } from "../output/signals.ts";

/** Time for which other ranks let the primary one report first what may be an error of all. */
const PRECEDENCE_MS = 2000;

/** Time of a launcher to pass on what a rank wrote, before it ends the job. */
const FORWARD_MS = 300;

/** Elements of a weight that are hashed at a time. */
const HASHED = 2 ** 22;

const SIGNALS: readonly (EndingSignal | undefined)[] = [undefined, "SIGINT", "SIGTERM", "SIGHUP"];

/** Carrier of gradients; a single process has nothing to exchange. */
type Transport = "solo" | "mpi" | "nccl";

/** Plan of how processes train together, and on which devices. */
export interface RanksPlan {
  /** Folder of the run. */
  readonly out: string;
  readonly dist: Transport | "auto";
  /** Seconds that a rank waits for the others. */
  readonly distTimeout: number;
  /** True if every rank updates a slice of the parameters alone. */
  readonly shardOptimizer: boolean;
  /** Ranks of a run that is only planned; undefined for those of the launcher. */
  readonly ranks: number | undefined;
  readonly device: DeviceChoice;
  readonly dtype: ElementChoice;
  readonly unverified: boolean;
  /** Threads of this rank; undefined for its share of the cores. */
  readonly threads: number | undefined;
  readonly deterministic: boolean;
}

/** The data of a run, as far as ranks compare it. */
interface ComparedRun {
  readonly source: { readonly config: ModelConfig };
  readonly stream: { readonly fingerprint: string; readonly cursor: unknown };
  readonly data: { readonly evalFingerprint: string | undefined };
}

/**
 * Runs `work` as one of the ranks that a launcher started, or as the only process. An error of one rank ends
 * the others.
 * @throws {EnvironmentError} when the launcher's variables contradict each other
 */
export async function withRanks(
  plan: RanksPlan,
  io: Io,
  json: boolean,
  work: (ranks: Ranks) => Promise<void>,
): Promise<void> {
  const ranks = new Ranks(io, plan, launchOf(plan, io), undefined, json);
  try {
    await work(ranks);
  } catch (error) {
    await ranks.fail(error);
  }
}

/** The ranks of a run that is only planned: of any number, of which one process prints the plan. */
export function plannedRanks(plan: RanksPlan, io: Io): Ranks {
  const launch = launchOf(plan, io);
  if (launch !== undefined && launch.rank > 0) throw new ReportedError(exitCode("done"));
  return new Ranks(io, { ...plan, dist: "solo" }, undefined, plan.ranks ?? launch?.world);
}

function launchOf({ dist }: RanksPlan, io: Io): Launch | undefined {
  return dist === "solo" ? undefined : detectLaunch(io.env);
}

/** This process among the ranks of its run. */
export class Ranks {
  /** True if this process writes files, stdout and progress. */
  readonly isPrimary: boolean;
  /** The streams of this process; others than the primary one write nothing but errors. */
  readonly io: Io;
  #joined: DataParallel | undefined;

  constructor(
    io: Io,
    private readonly plan: RanksPlan,
    private readonly launch: Launch | undefined,
    readonly world = launch?.world ?? 1,
    private readonly json = false,
  ) {
    this.isPrimary = (launch?.rank ?? 0) === 0;
    this.io = launch && world > 1 ? ioOfRank(io, this.isPrimary) : io;
  }

  /**
   * Returns the transport of gradients.
   * @throws {EnvironmentError} when the launcher's ranks cannot train together on this device
   */
  transport(): Transport {
    const { plan: { dist: transport, device }, launch, world } = this;
    const onGpu = device.startsWith("cuda");
    if (device === "webgpu" && world > 1) {
      throw new UsageError("`--device webgpu` trains in one process", {
        hints: ["train on `--device cpu` or `cuda` with several ranks"],
      });
    }
    if (transport === "nccl" && !onGpu) {
      throw new UsageError("`--dist nccl` needs `--device cuda`", {
        hints: ["on processors pass --dist mpi"],
      });
    }
    if (transport !== "auto") return transport;
    if (launch === undefined || world === 1) return "solo";
    if (onGpu) return "nccl";
    if (launch.launcher !== "torchrun") return "mpi";
    throw new EnvironmentError(
      `torchrun or Kubernetes started ${world} ranks, which train together on GPUs only`,
      { hints: [`on processors start them with \`mpirun -n ${world} parscale train ...\``] },
    );
  }

  /** The device of this rank: GPUs in the order of ranks, unless one is named, and its share of the cores. */
  async openDevice(): Promise<Device> {
    const { device, dtype, threads, unverified } = this.plan;
    const { localRank = 0, localWorld = 1, world = 1 } = this.launch ?? {};
    const share = Math.max(1, Math.floor(usableCores() / localWorld));
    const own = threads ?? (localWorld === 1 ? undefined : share);
    const options = { dtype, unverified, ...(own === undefined ? {} : { threads: own }) };
    if (world === 1 || device !== "cuda") return await openDevice(device, options);
    const { countCudaDevices } = await import("../../core/runtime/cuda/open.ts");
    return await openDevice(`cuda:${localRank % Math.max(1, countCudaDevices())}`, options);
  }

  /**
   * Joins the other ranks, which must do the same.
   * @throws {EnvironmentError} when the library is missing or is not that of the launcher
   */
  async join(transport: Transport, device: Device): Promise<Collective> {
    const { launch, world, io, plan: { distTimeout, deterministic, shardOptimizer: shards } } =
      this;
    if (transport === "solo") {
      return { ...ALONE, slice: (count) => sliceOf(count, shards ? world : 1, 0) };
    }
    const group = await openGroup(transport, device, {
      env: io.env,
      launch,
      timeoutMs: distTimeout * 1000,
      deterministic,
    });
    return this.#joined = new DataParallel(device, group, {
      shards,
      interruption: io.interruption,
    });
  }

  /** Aborts in all ranks before the same step. */
  get signal(): AbortSignal {
    return this.#joined?.signal ?? this.io.interruption;
  }

  /**
   * Opens data on the first rank of every machine, whose tokens the others then find in the cache. Several
   * machines may share the cache, so that each tokenizes a part before.
   */
  async firstOnMachine<T extends object>(
    open: () => Promise<T>,
    openPart: (part: { readonly index: number; readonly count: number }) => Promise<void>,
  ): Promise<T> {
    const ranks = this.#joined;
    if (ranks === undefined) return await open();
    const isFirst = this.launch?.localRank === 0;
    const all = await gatherNumbers(ranks, [Number(isFirst)]);
    const firsts = all.flatMap(([first], rank) => first ? [rank] : []), count = firsts.length;
    if (isFirst && count > 1) await openPart({ index: firsts.indexOf(ranks.rank), count });
    await ranks.barrier();
    const data = isFirst ? await open() : undefined;
    await ranks.barrier();
    return data ?? await open();
  }

  /** @throws {UsageError} where several ranks would read standard input */
  refuseStdin(): void {
    if (this.#joined === undefined || this.world === 1) return;
    throw new UsageError(`${this.world} ranks cannot all read standard input`, {
      hints: ["write the data to a file that all ranks can read"],
    });
  }

  /**
   * Compares version, plan, data and weights with those of rank 0. `plan` holds all that enters the result.
   * @throws {RanksDifferError} on every rank, with the first that differs
   */
  async compare(run: ComparedRun, trainer: Trainer, plan: unknown): Promise<void> {
    if (this.#joined === undefined || this.world === 1) return;
    const { stream: { fingerprint, cursor }, data: { evalFingerprint } } = run;
    await requireSame(this.#joined, {
      version: hashNumber([VERSION]),
      flags: hashNumber([JSON.stringify(plan)]),
      data: hashNumber([fingerprint, evalFingerprint ?? "", JSON.stringify(cursor)]),
      weights: hashNumber(weightsOf(run.source.config, trainer)),
    });
  }

  /** The signal that reached a rank, the first of them that got one; the same in every rank. */
  async endingSignal(): Promise<EndingSignal | undefined> {
    const { interruption } = this.io;
    const own = interruption.aborted ? (interruption.reason as Interrupted).signal : undefined;
    if (this.#joined === undefined) return own;
    const all = await gatherNumbers(this.#joined, [SIGNALS.indexOf(own)]);
    return SIGNALS[all.flat().find((signal) => signal > 0) ?? 0];
  }

  /** Leaves the others; all ranks do. */
  leave(): void {
    if (this.#joined === undefined) return;
    this.#joined.close();
    this.#joined = undefined;
  }

  /**
   * Ends this rank after an error. One that all ranks throw is left to the primary one; for any other the rest
   * of the job is ended, too, since it may wait for this rank.
   */
  async fail(error: unknown): Promise<never> {
    const { io, launch, isPrimary } = this;
    if (launch === undefined || this.world === 1) throw error;
    const { code } = reportOf(error);
    if (isShared(error)) {
      this.leave();
      throw isPrimary ? error : new ReportedError(code);
    }
    if (!isPrimary) await delay(PRECEDENCE_MS);
    const text = errorText(io, withRemedy(error, this.plan.out), this.json);
    io.writeError(isPrimary ? text : `[rank ${launch.rank}] ${text}`);
    await delay(FORWARD_MS);
    this.#joined?.abort(code);
    await abortLaunch({ env: io.env, launch }, code);
    throw new ReportedError(code);
  }
}

const delay = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** The error with the command that resumes a run whose ranks do not answer. */
function withRemedy(error: unknown, folder: string): unknown {
  if (!(error instanceof NoAnswerError)) return error;
  const resume = `resume from the last checkpoint with \`parscale train --resume --out ${folder}\``;
  return new EnvironmentError(error.message, { hints: [...error.hints, resume] });
}

/** A launcher that cannot send SIGTERM in time sends SIGUSR2 instead. */
function ioOfRank(io: Io, isPrimary: boolean): Io {
  saveBeforeEnding(isPrimary && io.settings.quiet === 0 ? "stopping after this step" : "");
  const stop = new AbortController();
  Deno.addSignalListener("SIGUSR2", () => stop.abort(new Interrupted("SIGTERM")));
  const signal = AbortSignal.any([io.interruption, stop.signal]);
  return io.with(isPrimary ? io.settings : { ...io.settings, quiet: 2, progress: false }, signal);
}

/** Thrown by all ranks after the same exchange. */
function isShared(error: unknown): boolean {
  return error instanceof NumericalError || error instanceof RanksDifferError ||
    error instanceof Interrupted;
}

/** Bytes of all weights: those that learn, then the others. */
function* weightsOf(config: ModelConfig, trainer: Trainer): Generator<Uint8Array> {
  const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView) =>
    new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength);
  const learned = new Set<string>();
  for (const { group, values } of trainer.groups) {
    for (const { name } of group.tensors) learned.add(name);
    for (const { start, count } of chunksOf(group.count, HASHED)) {
      const view = trainer.device.view(values, start, { dtype: "f32", shape: [count] });
      yield bytesOf(trainer.device.read(view));
    }
  }
  for (const { name } of parameterSpecs(config)) {
    if (!learned.has(name) && trainer.has(name)) yield bytesOf(trainer.values(name));
  }
}
