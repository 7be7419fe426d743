/**
 * One cache for both: Python's huggingface_hub reads what we download, and the other way round.
 *
 * Needs PARSCALE_HF_PYTHON, a Python with huggingface_hub.
 */
import { assertEquals } from "@std/assert";
import { PLAIN_MODEL } from "../cli/models.ts";
import { runParscale } from "../cli/run.ts";
import { withScratch } from "../scratch.ts";
import { startHub } from "../cli/stand_in_hub.ts";

const PYTHON = Deno.env.get("PARSCALE_HF_PYTHON");
const NAME = "tiny/qwen", COMMIT = "0123456789abcdef0123456789abcdef01234567";
const FILES = [...Deno.readDirSync(PLAIN_MODEL)].map(({ name }) => name);

const REPOSITORY = {
  kind: "model",
  name: NAME,
  commit: COMMIT,
  files: new Map(FILES.map((name) => [name, Deno.readFileSync(`${PLAIN_MODEL}/${name}`)])),
  isLarge: (path: string) => path.endsWith(".safetensors"),
} as const;

async function python(code: string, env: Record<string, string>): Promise<string> {
  const { success, stdout, stderr } = await new Deno.Command(PYTHON!, { args: ["-c", code], env })
    .output();
  if (!success) throw new Error(new TextDecoder().decode(stderr));
  return new TextDecoder().decode(stdout).trim();
}

const INSPECT = ["inspect", "--model", NAME, "--json"];

Deno.test({
  name: "huggingface_hub reads our cache",
  ignore: !PYTHON,
  fn: () =>
    withScratch(async (cwd) => {
      await using hub = startHub([REPOSITORY]);
      const env = { HF_ENDPOINT: hub.url, HF_HOME: `${cwd}/home` };
      const { code, stderr } = await runParscale(INSPECT, { cwd, env });
      assertEquals(code, 0, stderr);
      const found = await python(
        `import huggingface_hub as h, json
folder = h.snapshot_download("${NAME}", local_files_only=True)
[repo] = h.scan_cache_dir().repos
[revision] = repo.revisions
files = sorted(f.file_name for f in revision.files)
print(json.dumps([folder, repo.repo_id, revision.commit_hash, sorted(revision.refs), files]))`,
        env,
      );
      const folder = `${cwd}/home/hub/models--tiny--qwen/snapshots/${COMMIT}`;
      assertEquals(JSON.parse(found), [folder, NAME, COMMIT, ["main"], [...FILES].sort()]);
    }),
});

Deno.test({
  name: "we read the cache of huggingface_hub, and fetch nothing that is there",
  ignore: !PYTHON,
  fn: () =>
    withScratch(async (cwd) => {
      await using hub = startHub([REPOSITORY]);
      const env = { HF_ENDPOINT: hub.url, HF_HOME: `${cwd}/home`, HF_HUB_DISABLE_XET: "1" };
      await python(
        `import huggingface_hub as h
for name in ${JSON.stringify(FILES)}: h.hf_hub_download("${NAME}", name)`,
        env,
      );
      hub.take();
      const offline = await runParscale(INSPECT, { cwd, env: { ...env, HF_HUB_OFFLINE: "1" } });
      assertEquals([offline.code, offline.stderr], [0, ""]);
      const online = await runParscale(INSPECT, { cwd, env });
      assertEquals([online.code, online.stderr], [0, ""]);
      assertEquals(hub.take().filter((line) => line.includes("/resolve/")), []);
    }),
});
