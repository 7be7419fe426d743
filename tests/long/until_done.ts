/** The loop `until COMMAND; do :; done` over a command that is killed again and again. */
import { assertEquals } from "@std/assert";
import { type Line, parscale } from "../cli/run.ts";
import { Draws } from "./fuzzing.ts";

/** Kills of one command; PARSCALE_KILLS sets another number. */
export const KILLS = Number(Deno.env.get("PARSCALE_KILLS") ?? 8);

/** Place and length of the runs, and checks after each kill. */
export interface LoopOptions {
  readonly cwd: string;
  readonly env?: Readonly<Record<string, string>>;
  /** Milliseconds that an undisturbed run takes; kills come before. */
  readonly longest: number;
  readonly seed: number;
  readonly onKill?: () => Promise<void>;
  /** Says that the result is there, for commands that refuse to replace it. */
  readonly isDone?: () => boolean;
}

/**
 * Runs a command until it exits with 0. It is killed at random times, and then left alone: whatever the
 * kills left, no run may end in another way. Returns what the last run said.
 */
export async function untilDone(
  line: Line,
  { cwd, env, longest, seed, onKill, isDone }: LoopOptions,
): Promise<string> {
  const draws = new Draws(seed, "kills");
  for (let kills = 0;; kills++) {
    const child = parscale(line, { cwd, env, stdin: "null", stdout: "null", stderr: "piped" })
      .spawn();
    const stderr = new Response(child.stderr).text();
    let isRunning = true;
    const kill = () => {
      try {
        if (isRunning) child.kill("SIGKILL");
      } catch {
        // it ended just now, which is not known yet
      }
    };
    const killed = kills < KILLS;
    const timer = killed ? setTimeout(kill, draws.below(longest)) : undefined;
    const { code } = await child.status.finally(() => isRunning = false);
    clearTimeout(timer);
    const said = await stderr;
    if (code === 0) return said;
    assertEquals([code, killed], [137, true], `${line}, kill ${kills}: ${said}`);
    await onKill?.();
    if (isDone?.()) return said;
  }
}
