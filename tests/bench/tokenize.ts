/**
 * Tokenizing the data of a training run with one process and with two, as on two machines that share
 * their cache.
 *
 *   deno run -A tests/bench/tokenize.ts [--rounds 3] [--megabytes 160]
 *
 * Runs take turns, round by round. Each trains one step with an empty cache and one with the tokens in
 * it; the difference is what tokenizing took. Then the whole command with 24 small files takes turns with
 * that with one file of their bytes. The tokenizer is that of Qwen2.5 where it is at hand, else
 * a small one; the text is this project's sources with random words between the lines. Needs mpirun of Open
 * MPI or MPICH for two processes.
 */
import { parseArgs } from "@std/cli/parse-args";
import { RandomStream } from "../../core/base/random.ts";
import { openTokenizer } from "../../core/tokenizer/tokenizer.ts";
import { programLine } from "../cli/run.ts";
import { AS_ROOT, type Mpi, MPIS } from "../long/mpi.ts";
import { FIXTURE, qwenJson } from "../unit/tokenizer/testing.ts";
import { scratchConfig } from "./random_model.ts";
import { medianOf } from "../../core/base/statistics.ts";

const flags = parseArgs(Deno.args, {
  string: ["rounds", "megabytes"],
  default: { rounds: "3", megabytes: "160" },
});

/** Files, of which two processes take half each. */
const FILES = 4;

/** Small files that share the opened tokenizer, and letters of each. */
const SMALL_FILES = 24, SMALL_FILE = 24_000;

/** Letters of a document. */
const DOCUMENT = 4000;

const CONFIG = scratchConfig({
  vocab_size: 151936,
  hidden_size: 32,
  intermediate_size: 64,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  num_key_value_heads: 1,
});

/** A way to run it; `threads` is of each process. */
interface Kind {
  readonly name: string;
  readonly mpi: Mpi | undefined;
  readonly threads: number;
  readonly seconds: number[];
}

/** Sources and documents of this project, with words that occur nowhere else between the lines. */
function* documents(characters: number, random: RandomStream): Generator<string> {
  const lines = ["core/graph", "core/ops", "core/model", "cli/framework", "docs"].flatMap(
    (name) => {
      const directory = new URL(`../../${name}/`, import.meta.url);
      return [...Deno.readDirSync(directory)].filter(({ isFile }) => isFile).flatMap((file) =>
        Deno.readTextFileSync(new URL(file.name, directory)).split("\n")
      );
    },
  );
  const letter = () => String.fromCharCode(97 + random.integer(26));
  const word = () => Array.from({ length: 3 + random.integer(6) }, letter).join("");
  let text = "", written = 0;
  while (written < characters) {
    text += `${lines[random.integer(lines.length)]} ${word()}\n`;
    if (text.length < DOCUMENT) continue;
    yield text;
    written += text.length;
    text = "";
  }
}

const emptyCache = () => Deno.remove(`${folder}/cache`, { recursive: true }).catch(() => {});

const folder = await Deno.makeTempDir({ prefix: "parscale-tokenize-" });

async function writeCorpus(): Promise<number> {
  await Deno.mkdir(`${folder}/model`);
  await Deno.mkdir(`${folder}/corpus`);
  const json = await qwenJson() ?? await Deno.readTextFile(`${FIXTURE}/tokenizer.json`);
  await Deno.writeTextFile(`${folder}/model/tokenizer.json`, json);
  await Deno.writeTextFile(`${folder}/model/config.json`, CONFIG);
  const tokenizer = await openTokenizer(`${folder}/model`);
  let tokens = 0;
  for (let i = 0; i < FILES; i++) {
    const texts = [...documents(Number(flags.megabytes) * 1e6 / FILES, new RandomStream(i))];
    const rows = texts.map((text) => JSON.stringify({ text }));
    await Deno.writeTextFile(`${folder}/corpus/${i}.jsonl`, rows.join("\n"));
    for (const text of texts) tokens += tokenizer.encode(text).length;
  }
  return tokens;
}

/** Writes the small files, and one of the same bytes. */
async function writeSmallFiles(): Promise<void> {
  await Deno.mkdir(`${folder}/small`);
  for (let i = 0; i < SMALL_FILES; i++) {
    const text = [...documents(SMALL_FILE, new RandomStream(FILES + i))].join("");
    await Deno.writeTextFile(`${folder}/small/${i}.txt`, text);
    await Deno.writeTextFile(`${folder}/one.txt`, text, { append: true });
  }
}

/** Seconds of one step of training, with what comes before it. */
async function train({ mpi, threads }: Kind, corpus = "corpus"): Promise<number> {
  const line = ["train", "--init", "scratch", "--config-from", `${folder}/model/config.json`];
  line.push("--tokenizer", `${folder}/model`, "--data", `${folder}/${corpus}`, "--seq-len", "64");
  line.push("--batch", "2", "--micro-batch", "1", "--steps", "1", "-q", "-q");
  line.push("--threads", `${threads}`, "--out", `${folder}/run`, "--overwrite");
  // Every rank takes itself for the first of its machine.
  const alone = ["OMPI_COMM_WORLD_LOCAL_RANK=0", "OMPI_COMM_WORLD_LOCAL_SIZE=1"]
    .concat("MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=1");
  const [program, ...args] = mpi
    ? [mpi.launcher!, ...mpi.options, "-n", "2", "env", ...alone, ...programLine(line)]
    : programLine(line);
  const env = { ...AS_ROOT, PARSCALE_CACHE: `${folder}/cache` };
  const began = performance.now();
  const { code, stderr } = await new Deno.Command(program!, { args, env, stdout: "null" }).output();
  if (code !== 0) throw new Error(new TextDecoder().decode(stderr));
  return (performance.now() - began) / 1000;
}

try {
  const tokens = await writeCorpus();
  const mpi = MPIS.find(({ launcher }) => launcher !== undefined);
  const kinds: Kind[] = [
    { name: "1 process, 1 thread", mpi: undefined, threads: 1, seconds: [] },
    { name: "1 process, 2 threads", mpi: undefined, threads: 2, seconds: [] },
    ...(mpi ? [{ name: "2 processes, 1 thread each", mpi, threads: 1, seconds: [] }] : []),
  ];
  for (let round = 0; round < Number(flags.rounds); round++) {
    for (const kind of kinds) {
      await emptyCache();
      const [cold, warm] = [await train(kind), await train(kind)];
      kind.seconds.push(cold - warm);
      console.error(`${kind.name}: ${cold.toFixed(1)} s, ${warm.toFixed(1)} s with the tokens`);
    }
  }
  const first = medianOf(kinds[0]!.seconds);
  console.log(`${(tokens / 1e6).toFixed(1)} M tokens`);
  for (const { name, seconds } of kinds) {
    const time = medianOf(seconds);
    const rate = (time: number) => (tokens / time / 1e6).toFixed(2);
    console.log(
      `${name}: ${rate(time)} M tokens/s, ${(first / time).toFixed(2)}x; ` +
        `best ${rate(Math.min(...seconds))} M tokens/s`,
    );
  }
  await writeSmallFiles();
  const seconds = { small: [] as number[], "one.txt": [] as number[] };
  for (let round = 0; round < Number(flags.rounds); round++) {
    for (const corpus of ["small", "one.txt"] as const) {
      await emptyCache();
      seconds[corpus].push(await train(kinds[1]!, corpus));
    }
  }
  const [small, one] = [medianOf(seconds.small), medianOf(seconds["one.txt"])];
  console.log(
    `${SMALL_FILES} files ${small.toFixed(2)} s, one of their bytes ${one.toFixed(2)} s: ` +
      `${(small / one).toFixed(2)}x`,
  );
} finally {
  await Deno.remove(folder, { recursive: true });
}
