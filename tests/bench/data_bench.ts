/**
 * Reading tables of many row groups, JSON lines of many documents, and many files: four times the size
 * takes four times as long. Prints the peak of memory at the end.
 */
import { join } from "node:path";
import { readDocuments } from "../../core/data/read.ts";
import { openTokens } from "../../core/data/tokenize.ts";
import { manyGroups } from "../parquet_groups.ts";

const folder = Deno.makeTempDirSync({ prefix: "parscale-bench-" });
globalThis.addEventListener("unload", () => {
  Deno.removeSync(folder, { recursive: true });
  const peak = /VmHWM:\s+(\d+)/.exec(Deno.readTextFileSync("/proc/self/status"))?.[1];
  console.log(`peak of memory: ${Math.round(Number(peak) / 1e3)} MB`);
});

for (const groups of [5000, 20_000]) {
  const path = join(folder, `${groups}.parquet`);
  Deno.writeFileSync(path, manyGroups(groups, "a text of one row"));
  Deno.bench({
    name: `table of ${groups} row groups`,
    n: 2,
    warmup: 1,
    fn: async () => await read(path),
  });
}

for (const rows of [50_000, 200_000]) {
  const path = join(folder, `${rows}.jsonl`);
  Deno.writeTextFileSync(path, '{"text":"a"}\n'.repeat(rows));
  Deno.bench({
    name: `JSON lines of ${rows} documents`,
    n: 2,
    warmup: 1,
    fn: async () => await read(path),
  });
}

for (const files of [250, 1000]) {
  const paths = Array.from({ length: files }, (_, i) => join(folder, `${files}-${i}.jsonl`));
  for (const path of paths) Deno.writeTextFileSync(path, '{"tokens":[1,2]}\n');
  Deno.bench({
    name: `${files} files into an empty cache`,
    n: 2,
    warmup: 1,
    async fn() {
      const cacheFolder = Deno.makeTempDirSync({ dir: folder });
      for (const path of paths) (await openTokens(path, { cacheFolder })).close();
    },
  });
}

async function read(path: string): Promise<void> {
  for await (const _ of readDocuments(path));
}
