/**
 * The ranks of a training run: found by the launcher's variables, joined once the device is open, and left
 * together. Rank 0 speaks for all; the others write errors of their own alone.
 */
import { EnvironmentError, NumericalError, UsageError } from "../../../core/base/errors.ts";
import { RanksDifferError } from "../../../core/collective/agreement.ts";
import type { Collective, Transport } from "../../../core/collective/collective.ts";
import { detectLaunch, type Env, type Launch } from "../../../core/collective/environment.ts";
import { gatherPeers, markFailed, removeRankFile } from "../../../core/collective/peers.ts";
import { SOLO } from "../../../core/collective/solo.ts";
import type { Device, DeviceChoice } from "../../../core/runtime/mod.ts";
import { usableCores } from "../../../core/base/platform/mod.ts";
import { PLAIN } from "../../output/color.ts";
import { Interrupted, renderError, ReportedError, reportOf } from "../../output/errors.ts";
import type { Io } from "../../output/io.ts";
import { saveBeforeEnding } from "../../output/signals.ts";
import type { TrainValues } from "./flags.ts";
import { FORWARD_MS, PRECEDENCE_MS, rankText } from "./rank_text.ts";
import { RankLostError, RankWatch } from "./rank_watch.ts";

/** A transport's own limit comes after that of the watch, which names the rank. */
const FALLBACK_MS = 5000;

const delay = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** What decides how ranks are found and joined. */
type RankValues = Pick<TrainValues, "dist" | "device" | "distTimeout" | "deterministic" | "out">;

/** This process among the ranks of its run. */
export class Ranks {
  readonly launch: Launch | undefined;
  readonly #values: RankValues;
  readonly #env: Env;
  #collective: Collective = SOLO;

  readonly #json: boolean;

  /**
   * With `json`, errors are documents.
   * @throws {EnvironmentError} when the launcher's variables contradict each other
   */
  constructor(values: RankValues, env: Env, json = false) {
    [this.#values, this.#json] = [values, json];
    this.#env = env;
    this.launch = values.dist === "solo" ? undefined : detectLaunch(env);
  }

  /**
   * What carries gradients.
   * @throws {EnvironmentError} when the launcher's ranks cannot train together on this device
   */
  get transport(): Transport {
    return transportOf(this.#values, this.launch);
  }

  get world(): number {
    return this.launch?.world ?? 1;
  }

  get rank(): number {
    return this.launch?.rank ?? 0;
  }

  /** Whether this process owns the run folder, stdout and progress. */
  get isFirst(): boolean {
    return this.rank === 0;
  }

  /** Whether this process is the first on its machine. */
  get isFirstHere(): boolean {
    return (this.launch?.localRank ?? 0) === 0;
  }

  /** The collective that was joined; before, that of a single process. */
  get collective(): Collective {
    return this.#collective;
  }

  /** The device of this rank: GPUs in the order of ranks, unless one is named. */
  async deviceChoice(): Promise<DeviceChoice> {
    const { device } = this.#values;
    if (this.world === 1 || device !== "cuda") return device;
    const { countCudaDevices } = await import("../../../core/runtime/cuda/open.ts");
    return `cuda:${this.launch!.localRank % Math.max(1, countCudaDevices())}`;
  }

  /** Threads of this rank where none are asked for: its share of the cores. */
  get threads(): number | undefined {
    const { localWorld = 1 } = this.launch ?? {};
    return localWorld === 1 ? undefined : Math.max(1, Math.floor(usableCores() / localWorld));
  }

  /**
   * Joins the other ranks, which must do the same.
   * @throws {EnvironmentError} when the library is missing or is not that of the launcher
   */
  async join(device: Device, io: Io): Promise<Collective> {
    const { transport } = this;
    if (transport === "solo") return this.#collective;
    const { distTimeout, deterministic, out: folder } = this.#values;
    const { openCollective } = await import("../../../core/collective/open.ts");
    const { WatchedCollective } = await import("../../../core/collective/watched.ts");
    const timeoutMs = distTimeout * 1000;
    const collective = this.#collective = await openCollective(transport, device, {
      env: this.#env,
      launch: this.launch,
      timeoutMs: timeoutMs + FALLBACK_MS,
      deterministic,
    });
    if (collective.world === 1) return collective;
    const watch = new RankWatch({
      rank: collective.rank,
      peers: await gatherPeers(collective),
      timeoutMs,
      folder,
      hints: [`resume from the last checkpoint with \`parscale train --resume --out ${folder}\``],
      colored: io.palette("stderr") !== PLAIN,
      json: this.#json,
    });
    return this.#collective = new WatchedCollective(collective, watch);
  }

  /**
   * The streams of this rank; others than rank 0 write nothing but errors. A launcher that cannot send
   * SIGTERM in time sends SIGUSR2 instead.
   */
  ioOf(io: Io): Io {
    if (this.world === 1) return io;
    saveBeforeEnding();
    const stop = new AbortController();
    Deno.addSignalListener("SIGUSR2", () => stop.abort(new Interrupted("SIGTERM")));
    const signal = AbortSignal.any([io.interruption, stop.signal]);
    const settings = this.isFirst ? io.settings : { ...io.settings, quiet: 2, progress: false };
    return io.with(settings, signal);
  }

  /** Leaves the group; all ranks do. */
  leave(): void {
    const isJoined = this.#collective.world > 1;
    this.#collective.close();
    this.#collective = SOLO;
    if (isJoined) removeRankFile(this.#values.out, this.rank);
  }

  /**
   * Ends this rank after an error. One that all ranks throw is left to rank 0; for any other the rest of
   * the job is ended, too, since it may wait for this rank.
   */
  async fail(error: unknown, io: Io): Promise<never> {
    const { code } = reportOf(error);
    if (isShared(error)) {
      this.leave();
      throw this.isFirst ? error : new ReportedError(code);
    }
    const isFirst = error instanceof RankLostError ? error.reportsFirst : this.isFirst;
    if (!isFirst) await delay(PRECEDENCE_MS);
    const paint = io.palette("stderr");
    const text = renderError(error, { paint, json: this.#json, trace: io.settings.verbose >= 2 });
    io.writeError(rankText(this.rank, text));
    if (this.#collective.world > 1) markFailed(this.#values.out, this.rank);
    await delay(FORWARD_MS);
    this.#collective.abort(code);
    const { abortLaunch } = await import("../../../core/collective/open.ts");
    await abortLaunch({ env: this.#env, launch: this.launch }, code);
    throw new ReportedError(code);
  }
}

/** Thrown by all ranks after the same exchange. */
function isShared(error: unknown): boolean {
  return error instanceof NumericalError || error instanceof RanksDifferError ||
    error instanceof Interrupted;
}

function transportOf({ dist, device }: RankValues, launch: Launch | undefined): Transport {
  const onGpu = device.startsWith("cuda");
  if (dist === "nccl" && !onGpu) {
    throw new UsageError("`--dist nccl` needs `--device cuda`", {
      hints: ["on processors pass --dist mpi"],
    });
  }
  if (dist !== "auto") return dist;
  if (launch === undefined || launch.world === 1) return "solo";
  if (onGpu) return "nccl";
  if (launch.launcher !== "torchrun") return "mpi";
  throw new EnvironmentError(
    `torchrun or Kubernetes started ${launch.world} ranks, which train together on GPUs only`,
    { hints: [`on processors start them with \`mpirun -n ${launch.world} parscale train ...\``] },
  );
}
