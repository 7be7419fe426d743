/** `parscale` under Slurm: ranks of srun, signals of scancel and of a time limit, parts of a job array. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { programLine } from "../cli/run.ts";
import { withScratch } from "../scratch.ts";
import { jsonLines, parseLines } from "../cli/models.ts";
import { ROWS, withWorkplace, type Workplace } from "../cli/train_testing.ts";
import { MPIS, ranksIn } from "./mpi.ts";
import { hasPmix, Slurm, whyNoSlurm } from "./slurm.ts";
import { HANG_MS } from "../hang.ts";

const reason = whyNoSlurm();
/** One cluster, where there can be one. */
let slurm: Slurm;

Deno.test.beforeAll(async () => {
  if (reason === undefined) slurm = await Slurm.start();
});

Deno.test.afterAll(() => slurm?.[Symbol.asyncDispose]());

const delay = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

const RUN = `--model p2 ${ROWS} --micro-batch 2`;
const LONG = `${RUN} --steps 100000 --save-every 5 --keep 2 --out run -q`;

/** Flags of srun for each kind of MPI. */
const KINDS = MPIS.map((mpi) => ({
  ...mpi,
  plugin: mpi.name === "Open MPI" ? "pmix" : "pmi2",
  rankVariable: mpi.name === "Open MPI" ? "PMIX_RANK" : "PMI_RANK",
  missing: mpi.launcher === undefined
    ? `no ${mpi.name}`
    : mpi.name === "Open MPI" && !hasPmix()
    ? "no libpmix.so"
    : undefined,
}));

function test(
  name: string,
  missing: string | undefined,
  fn: (place: Workplace) => Promise<void>,
): void {
  const why = reason ?? missing;
  Deno.test({
    name: why === undefined ? name : `${name} (skipped: ${why})`,
    ignore: why !== undefined,
    fn: () => withWorkplace(fn),
  });
}

async function waitFor(condition: () => boolean, what: string): Promise<void> {
  for (let i = 0; i < HANG_MS / 100; i++) {
    if (condition()) return;
    await delay(100);
  }
  throw new Error(`waited in vain for ${what}`);
}

for (const kind of KINDS) {
  const { missing } = kind;
  const srun = (
    place: Workplace,
    line: string,
    ...options: string[]
  ) => ["srun", "-n", "2", `--mpi=${kind.plugin}`, ...options, ...programLine(place.args(line))];

  test(`srun --mpi=${kind.plugin} trains with ${kind.name}`, missing, async (place) => {
    await place.trained(`${RUN} --steps 6 --out solo`);
    const line = srun(place, `${RUN} --steps 6 --out two -q --json`);
    const { code, stdout, stderr } = await slurm.run(line, place.cwd, place.env);
    assertEquals(code, 0, stderr);
    assertEquals(JSON.parse(stdout).results.steps, 6);
    const [solo, two] = [place.metrics("solo"), place.metrics("two")];
    assertEquals(two.map(({ world }) => world), [2, 2, 2, 2, 2, 2]);
    two.forEach(({ loss }, i) => assert(Math.abs(loss / solo[i].loss - 1) < 1e-6));
  });

  test(`scancel makes ranks of ${kind.name} save`, missing, async (place) => {
    const child = slurm.command(srun(place, LONG), place.cwd, place.env).spawn();
    await waitFor(() => place.exists("run/last"), "a checkpoint");
    await slurm.run(["scancel", "--signal=TERM", await slurm.job()]);
    const { code, stderr } = await child.output();
    const text = new TextDecoder().decode(stderr);
    assertEquals(code, 143, text);
    assertMatch(text, /error: Terminated\n\nhint: step \d+ is saved/);
    const saved = Number(place.last("run").split("-").at(-1));
    assertEquals(saved, place.metrics("run").at(-1).step);
  });

  test(
    `no rank of ${kind.name} outlives a kill under srun -K1`,
    missing,
    async (place) => {
      const child = slurm.command(srun(place, LONG, "-K1"), place.cwd, place.env).spawn();
      await waitFor(() => place.exists("run/last"), "a checkpoint");
      Deno.kill(ranksIn(kind, place).get(1)!, "SIGKILL");
      await waitFor(() => ranksIn(kind, place).size === 0, "the end of all ranks");
      const { code } = await child.output();
      assert(code !== 0);
      assert(place.exists(`run/${place.read("run/last").trim()}/training_state.json`));
    },
  );
}

// PMIx ends the others by itself; ranks under pmi2 wait for the time limit.
test(
  "a rank that is killed under srun without -K ends the others after the timeout",
  KINDS[1]!.missing,
  async (place) => {
    const line = place.args(`${LONG} --dist-timeout 3s`);
    const words = ["srun", "-n", "2", "--mpi=pmi2", ...programLine(line)];
    const child = slurm.command(words, place.cwd, place.env).spawn();
    await waitFor(() => place.exists("run/last"), "a checkpoint");
    Deno.kill(ranksIn(KINDS[1]!, place).get(1)!, "SIGKILL");
    await waitFor(() => ranksIn(KINDS[1]!, place).size === 0, "the end of all ranks");
    const { code, stderr } = await child.output();
    const text = new TextDecoder().decode(stderr);
    assert(code !== 0);
    // MPICH aborts the others where one of them is just exchanging memory with the dead one.
    const isMpich = /MPIDI_UCX_|process_vm_readv\(pid=\d+ .*No such process/.test(text);
    assert(isMpich || text.includes("got no answer from the others for 3 s"), text);
  },
);

/** Libraries of MPI, and what is said where srun starts ranks without them. */
const WITHOUT_MPI = [
  ["libmpi.so.40", "srun started this process without PMIx", "pass --mpi=pmix to srun"],
  ["libmpich.so.12", "Slurm started 2 ranks, but MPICH sees 1", "with srun, pass --mpi=pmix for"],
] as const;

for (const [i, [library, message, hint]] of WITHOUT_MPI.entries()) {
  test(`srun without the ranks of ${library} is refused`, KINDS[i]!.missing, async (place) => {
    const program = programLine(place.args(`${RUN} --steps 2`));
    const line = ["srun", "-n", "2", "--mpi=none", ...program, "--out", "no"];
    const env = { ...place.env, PARSCALE_MPI: library };
    const { code, stderr } = await slurm.run(line, place.cwd, env);
    assertEquals(code, 4, stderr);
    assertStringIncludes(stderr, `error: ${message}`);
    assertStringIncludes(stderr, `hint: ${hint}`);
    assert(!stderr.includes("MPI_Init"), stderr);
    assert(!place.exists("no"));
  });
}

test(
  "the notice before a time limit makes a batch job save",
  KINDS[0]!.missing,
  async (place) => {
    // Slurm looks every 30 s, in which the ranks must not slow other tests.
    const srun = ["srun", "-n", "2", "--mpi=pmix", "nice", "-n", "5"];
    const line = [...srun, ...programLine(place.args(LONG))].join(" ");
    const options = ["--wait", "--time=60", "--signal=TERM@100", "--output=job.log", "-n", "2"];
    const batch = ["sbatch", ...options, "--wrap", `exec ${line}`];
    const started = performance.now();
    const child = slurm.command(batch, place.cwd, place.env).spawn();
    await waitFor(() => place.exists("run/last"), "a checkpoint");
    // The limit is counted in minutes from the start; the ranks need some seconds to save.
    const minutes = Math.ceil((performance.now() - started) / 60_000 + 0.75);
    const limit = [`JobId=${await slurm.job()}`, `TimeLimit=${minutes}`];
    const { code, stderr } = await slurm.run(["scontrol", "update", ...limit]);
    assertEquals(code, 0, stderr);
    await child.output();
    assertStringIncludes(place.read("job.log"), "is saved; resume with");
    const saved = Number(place.last("run").split("-").at(-1));
    assertEquals(saved, place.metrics("run").at(-1).step);
  },
);

Deno.test({
  name: `tasks of a job array score their parts, and a dead one runs again alone${
    reason ? ` (skipped: ${reason})` : ""
  }`,
  ignore: reason !== undefined,
  fn: () =>
    withScratch(async (cwd) => {
      const model = new URL("../../fixtures/models/qwen2-p2-tied-f32", import.meta.url).pathname;
      const rows = Array.from({ length: 9 }, (_, i) => ({ tokens: [1, 2 + i, 30, 7 * i, 5] }));
      await Deno.writeTextFile(`${cwd}/rows.jsonl`, jsonLines(...rows));
      const score = programLine(["score", "rows.jsonl", "--model", model, "-q", "--batch", "2"]);
      const single = await slurm.run([...score, "--jsonl"], cwd);
      assertEquals(single.code, 0, single.stderr);
      const own = "--shard $SLURM_ARRAY_TASK_ID/3 --jsonl -o part-$SLURM_ARRAY_TASK_ID.jsonl";
      const options = ["--wait", "--output=array-%a.log", "-n", "1"];
      const array = ["sbatch", ...options, "--array=1-3", "--wrap", `${score.join(" ")} ${own}`];
      const { code, stderr } = await slurm.run(array, cwd);
      assertEquals(code, 0, stderr);
      await Deno.remove(`${cwd}/part-2.jsonl`);
      const again = [...score, "--shard", "2/3", "--jsonl", "-o", "part-2.jsonl"];
      assertEquals((await slurm.run(again, cwd)).code, 0);
      const parts = [1, 2, 3].map((part) => Deno.readTextFileSync(`${cwd}/part-${part}.jsonl`));
      const merged = parseLines(parts.join("")).sort((a, b) => a.id - b.id);
      assertEquals(merged, parseLines(single.stdout));
    }),
});
