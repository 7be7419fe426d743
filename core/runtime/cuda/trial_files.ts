/**
 * What trials on this machine have found, one file each, beside the compiled kernels.
 *
 * Takes a record by its key, which is the hash of everything it depends on; returns the record, as
 * often as somebody asks. A record is written before a trial starts as well, so that a kernel which
 * takes the process along is not tried again by the next one. Whoever removes the folder has
 * everything tried anew.
 */
import { cacheFolder } from "../../base/cache_folder.ts";

/** How a trial ended; `began` where it has not, or not yet. */
export type Outcome = "began" | "faster" | "slower" | "wrong";

/** One trial. */
export interface TrialRecord {
  /** Name of the device. */
  readonly device: string;
  /** Class of sizes, in words. */
  readonly shape: string;
  readonly outcome: Outcome;
  /** Of one launch, by kernel. */
  readonly milliseconds?: Readonly<Record<string, number>>;
}

const OUTCOMES: readonly unknown[] = ["began", "faster", "slower", "wrong"] satisfies Outcome[];
const SUFFIX = ".json";

/** Records in one folder. */
export class TrialFiles {
  readonly folder: string;

  /** Nothing is made before something is written. */
  constructor(folder: string) {
    this.folder = folder;
  }

  /** A record written before; undefined when there is none or its file is damaged. */
  read(key: string): TrialRecord | undefined {
    return this.#parse(`${key}${SUFFIX}`);
  }

  /** Keeps a record in place of the last one. */
  write(key: string, record: TrialRecord): void {
    Deno.mkdirSync(this.folder, { recursive: true });
    const temporary = `${this.folder}/${key}.${crypto.randomUUID()}`;
    Deno.writeTextFileSync(temporary, `${JSON.stringify(record)}\n`);
    Deno.renameSync(temporary, `${this.folder}/${key}${SUFFIX}`);
  }

  /** All records, in no order that means something. */
  list(): TrialRecord[] {
    try {
      const names = [...Deno.readDirSync(this.folder)].map(({ name }) => name);
      return names.filter((name) => name.endsWith(SUFFIX)).sort()
        .flatMap((name) => this.#parse(name) ?? []);
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return [];
      throw error;
    }
  }

  #parse(name: string): TrialRecord | undefined {
    try {
      const found = JSON.parse(Deno.readTextFileSync(`${this.folder}/${name}`));
      return OUTCOMES.includes(found?.outcome) ? found as TrialRecord : undefined;
    } catch (error) {
      if (error instanceof Deno.errors.NotFound || error instanceof SyntaxError) return undefined;
      throw error;
    }
  }
}

/** The records of this machine. */
export function trialFiles(): TrialFiles {
  return new TrialFiles(`${cacheFolder((name) => Deno.env.get(name))}/trials`);
}

/** For `doctor`: the trials that did not agree or did not end, in a few words; empty without any. */
export function describeFailures(records: readonly TrialRecord[]): string {
  const failed = records.filter(({ outcome }) => outcome === "wrong" || outcome === "began");
  const words = { wrong: "disagreed", began: "did not end" } as Record<Outcome, string>;
  return failed.map(({ device, shape, outcome }) =>
    `attention on warpgroups ${words[outcome]} on ${device} (${shape}) and is not used`
  ).join("; ");
}
