/**
 * Decoding and prefill of a Qwen3.5 folder beside transformers, in turns on the same threads.
 *
 *   python -c '…save_pretrained' > FOLDER    # see the class in the script below; weights may be random
 *   deno run -A tests/bench/qwen35.ts --model FOLDER --torch PYTHON [--rounds 3] [--threads 2] [--prompt 256]
 *
 * transformers computes in f32, as the first of our engines; the others have 8- and 4-bit weights. A token
 * is decoded behind the prompt. The table holds medians, and ratios of medians to transformers.
 */
import { parseArgs } from "@std/cli/parse-args";
import { medianOf } from "../../core/base/statistics.ts";
import { lines } from "../../core/eval/sandbox/protocol.ts";
import { timeDecode, timePrefill } from "../../core/generate/timing.ts";
import { openModel } from "../../core/session/open.ts";

const flags = parseArgs(Deno.args, {
  string: ["model", "torch", "rounds", "threads", "prompt"],
  default: { rounds: "3", threads: "2", prompt: "256" },
});
const [rounds, threads, prompt] = [flags.rounds, flags.threads, flags.prompt].map(Number) as [
  number,
  number,
  number,
];

/** Steps of one round. */
const STEPS = 8;

/** Milliseconds of a prompt, and of a token behind it. */
interface Times {
  readonly prefill: number;
  readonly decode: number;
}

interface Contender {
  readonly name: string;
  run(): Promise<Times>;
}

const TORCH = `
import json, sys, time
import torch
from transformers import AutoModelForCausalLM
folder, threads, prompt, steps = sys.argv[1], *map(int, sys.argv[2:])
torch.set_num_threads(threads)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
ids = torch.arange(prompt)[None] % 1000
for _ in sys.stdin:
    with torch.no_grad():
        started = time.perf_counter()
        out = model(ids, use_cache=True, logits_to_keep=1)
        prefill = time.perf_counter() - started
        times = []
        for _ in range(steps):
            token = out.logits[:, -1:].argmax(-1)
            started = time.perf_counter()
            out = model(token, past_key_values=out.past_key_values, use_cache=True)
            times.append(time.perf_counter() - started)
    decode = sorted(times)[steps // 2]
    print(json.dumps({"prefill": 1e3 * prefill, "decode": 1e3 * decode}), flush=True)
`;

function transformers(): Contender & { close(): void } {
  const process = new Deno.Command(flags.torch!, {
    args: ["-c", TORCH, flags.model!, `${threads}`, `${prompt}`, `${STEPS}`],
    env: { OMP_NUM_THREADS: `${threads}` },
    stdin: "piped",
    stdout: "piped",
    stderr: "null",
  }).spawn();
  const input = process.stdin.getWriter(), answers = lines(process.stdout);
  return {
    name: "transformers f32",
    async run() {
      await input.write(new TextEncoder().encode("go\n"));
      return JSON.parse((await answers.next()).value!);
    },
    close: () => process.kill(),
  };
}

async function ours(quantize: "none" | "q8" | "q4"): Promise<Contender> {
  const options = { quantize, threads, weightCache: false, lazyTokenizer: true } as const;
  const { engine } = await openModel(flags.model!, options);
  return {
    name: `parscale ${quantize === "none" ? "f32" : quantize}`,
    async run() {
      using cache = engine.createCache(1, prompt + STEPS + 1);
      const prefill = await timePrefill(engine, cache, prompt);
      return { prefill, decode: medianOf(await timeDecode(engine, cache, prompt, STEPS)) };
    },
  };
}

const peer = transformers();
const contenders = [peer, await ours("none"), await ours("q8"), await ours("q4")];
for (const each of contenders) await each.run();
const times = contenders.map((): Times[] => []);
for (let round = 0; round < rounds; round++) {
  for (const [i, each] of contenders.entries()) times[i]!.push(await each.run());
}
peer.close();
const median = (i: number, key: keyof Times) => medianOf(times[i]!.map((one) => one[key]));
contenders.forEach(({ name }, i) => {
  const cells = (["prefill", "decode"] as const).map((key) =>
    `${key} ${median(i, key).toFixed(1)} ms (${(median(0, key) / median(i, key)).toFixed(2)}x)`
  );
  console.log(`${name.padEnd(17)} ${cells.join("  ")}`);
});
Deno.exit(0);
