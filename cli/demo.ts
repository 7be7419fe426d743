/**
 * `deno task demo`: the main job on a tiny checkpoint, in seconds, on any machine.
 *
 * Every step is the command a user would type, run through the same entry point, with a sentence on
 * what to look for. Files go to a temporary folder that is removed at the end.
 */
import { main } from "./main.ts";
import { Io, processSystem } from "./output/io.ts";

const SOURCE = new URL("../fixtures/models/qwen2-p1-tied-f32", import.meta.url).pathname;

interface Step {
  readonly say: string;
  readonly args: readonly string[];
  readonly stdin?: string;
}

function steps(folder: string): Step[] {
  const [two, four] = [`${folder}/qwen-p2`, `${folder}/qwen-p4`];
  const rows = [
    { prompt: "def add(a, b):", continuation: " return a + b" },
    { prompt: "The streams are", continuation: " mixed per token" },
  ];
  const scored = rows.map((row) => JSON.stringify(row)).join("\n");
  const converting = (
    streams: string,
    out: string,
  ) => ["convert", "--model", SOURCE, "--streams", streams, "--out", out, "--no-progress"];
  return [
    {
      say: "A Qwen2 checkpoint in the layout of Hugging Face. Its weights are random, so what it " +
        "says means nothing; everything else is real.",
      args: ["inspect", "--model", SOURCE],
    },
    {
      say: "Give it two streams. The backbone is copied byte for byte; only prefixes and the " +
        "aggregator are new.",
      args: converting("2", two),
    },
    { say: "And four: same backbone, same hash.", args: converting("4", four) },
    {
      say: "What running it takes with four rows of 1024 tokens: keys and values grow with the " +
        "streams, weights hardly.",
      args: ["inspect", "--model", four, "--batch", "4", "--context", "1024"],
    },
    {
      say: "Log-probabilities of given continuations under four streams. --jsonl --weights would " +
        "add how much every stream counted at every token.",
      args: ["score", "--model", four, "--no-progress"],
      stdin: scored,
    },
    {
      say: "Continue a prompt greedily, printed as it is produced.",
      args: ["generate", "--model", four, "--prompt", "def add(a, b):", "--max-tokens", "24"],
    },
    {
      say: "Beam search over the same four streams, best of three.",
      args: [
        "generate",
        "--model",
        four,
        "--prompt",
        "def add(a, b):",
        "--max-tokens",
        "12",
        "--num-beams",
        "3",
      ],
    },
    {
      say: "Back to a plain Qwen: the hash shows that not one byte of the backbone changed.",
      args: ["convert", "--model", four, "--strip", "--out", `${folder}/qwen`, "--no-progress"],
    },
  ];
}

async function demo(): Promise<number> {
  const folder = Deno.makeTempDirSync({ prefix: "parscale-demo-" });
  const system = processSystem();
  const io = new Io(system);
  try {
    const list = steps(folder);
    for (const [i, { say, args, stdin }] of list.entries()) {
      const paint = io.palette("stdout");
      const shown = args.filter((arg) => arg !== "--no-progress").map(quote).join(" ");
      const input = stdin === undefined ? "" : " < rows.jsonl";
      io.write(`${i === 0 ? "" : "\n"}${i + 1}/${list.length}  ${say}\n`);
      io.write(`${paint.hint(`$ parscale ${shown}${input}`)}\n`);
      const world = stdin === undefined ? system : {
        ...system,
        isTerminal: (name: "stdin" | "stdout" | "stderr") =>
          name !== "stdin" && system.isTerminal(name),
        stdin: () => new Blob([stdin]).stream(),
      };
      const code = await main(args, new Io(world));
      if (code !== 0) return code;
    }
    io.write("\nNext: parscale help, or README.md\n");
    return 0;
  } finally {
    Deno.removeSync(folder, { recursive: true });
  }
}

function quote(word: string): string {
  return /^[\w./-]+$/.test(word) ? word : `"${word}"`;
}

if (import.meta.main) Deno.exitCode = await demo();
