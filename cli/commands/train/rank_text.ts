/** How ranks report errors: rank 0 as a single process does, others with their number. */

/** How long other ranks let rank 0 report first what may be an error of all. */
export const PRECEDENCE_MS = 2000;

/** How long a launcher may take to pass on what a rank wrote, before it ends the job. */
export const FORWARD_MS = 300;

/** An error as a rank writes it. */
export function rankText(rank: number, text: string): string {
  return rank === 0 ? text : `[rank ${rank}] ${text}`;
}
