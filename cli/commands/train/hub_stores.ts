/** Data on the hub for `train`: found at one commit, and tokenized as far as the run needs it. */
import { UsageError } from "../../../core/base/errors.ts";
import type { HubData } from "../../../core/data/hub_data.ts";
import type { HubTokensOptions } from "../../../core/data/hub_tokens.ts";
import { isHubData } from "../../../core/data/sources.ts";
import type { TokenStore } from "../../../core/data/token_store.ts";
import type { HubFile } from "../../../core/hub/repository.ts";
import type { Io } from "../../output/io.ts";
import { type Progress, startProgress } from "../../output/progress.ts";
import type { TrainValues } from "./flags.ts";

/** Stores of the files that were read. */
export interface HubStores {
  /** Only files that were read. */
  readonly data: HubData;
  readonly stores: readonly TokenStore[];
}

/** Opens files of `spec` in order until they hold `needed` tokens; `recorded` is of the resumed run. */
export async function openHubStores(
  spec: string,
  { textColumn, where }: TrainValues,
  io: Io,
  options: Omit<HubTokensOptions, "selection" | "onProgress">,
  needed: number,
  recorded: { readonly hubData: unknown } | undefined,
): Promise<HubStores> {
  const { hubAccess } = await import("../../../core/hub/access.ts");
  const { HubClient } = await import("../../../core/hub/client.ts");
  const { findHubData, recordedHubData } = await import("../../../core/data/hub_data.ts");
  const { openHubTokens } = await import("../../../core/data/hub_tokens.ts");
  const { parseCondition } = await import("../../../core/data/select.ts");
  const selection = {
    where: where.map(parseCondition),
    ...(textColumn === undefined ? {} : { textColumn }),
  };
  const client = new HubClient(await hubAccess((name) => io.env(name)), io.interruption);
  // A resumed run reads the commit it was begun with, wherever the branch is now.
  const data = recordedHubData(recorded?.hubData, spec) ?? await findHubData(client, spec);
  if (recorded === undefined) io.note(`Reading ${data.repository} at ${data.commit}`);
  const stores: TokenStore[] = [];
  const read: HubFile[] = [];
  let tokens = 0;
  using progress = new FileProgress(io);
  const onProgress = (file: HubFile, count: number) => progress.update(file, count);
  for await (
    const { file, store } of openHubTokens(client, data, { ...options, selection, onProgress })
  ) {
    if (read.at(-1) !== file) read.push(file);
    stores.push(store);
    if ((tokens += store.tokens) >= needed) break;
  }
  return { data: { ...data, files: read }, stores };
}

/** One progress line per file. */
class FileProgress implements Disposable {
  #file: HubFile | undefined;
  #progress: Progress | undefined;

  constructor(readonly io: Io) {}

  update(file: HubFile, tokens: number): void {
    if (file !== this.#file) {
      this[Symbol.dispose]();
      this.#file = file;
      this.#progress = startProgress(this.io, { label: `Tokenizing ${file.path}`, unit: "tokens" });
    }
    this.#progress!.update(tokens);
  }

  [Symbol.dispose](): void {
    this.#progress?.[Symbol.dispose]();
  }
}

/** Local files are read by our keys alone. */
export function requireHubForSelection(values: TrainValues): void {
  const { textColumn, where, data, evalData } = values;
  const flag = textColumn !== undefined
    ? "--text-column"
    : where.length > 0
    ? "--where"
    : undefined;
  if (flag === undefined || [...data, ...evalData].some(isHubData)) return;
  throw new UsageError(`\`${flag}\` needs data on the hub`, {
    hints: ["pass --data hf://datasets/OWNER/NAME/GLOB, or rename the column of a local file"],
  });
}
