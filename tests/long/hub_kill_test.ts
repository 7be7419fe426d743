/** A download that is killed continues where it was. */
import { assert, assertEquals } from "@std/assert";
import { PLAIN_MODEL } from "../cli/models.ts";
import { parscale, runParscale } from "../cli/run.ts";
import { withScratch } from "../scratch.ts";
import { allPaths, oidOf, serveBytes, startHub } from "../cli/stand_in_hub.ts";

const COMMIT = "0123456789abcdef0123456789abcdef01234567";
const WEIGHTS = "model.safetensors";

/** Bytes that are sent at once. */
const PIECE = 1 << 20;

/** It need not be a checkpoint to be downloaded. */
function weights(): Uint8Array {
  const bytes = new Uint8Array(96 << 20);
  for (let i = 0; i < bytes.length; i += 64) bytes[i] = (i * 2654435761) >>> 13;
  return bytes;
}

Deno.test("kill -9 during a download costs a few megabytes", () =>
  withScratch(async (cwd) => {
    const content = weights();
    const files = new Map([
      ["config.json", Deno.readFileSync(`${PLAIN_MODEL}/config.json`)],
      [WEIGHTS, content],
    ]);
    await using hub = startHub([{
      kind: "model",
      name: "tiny/large",
      commit: COMMIT,
      files,
      isLarge: (path) => path === WEIGHTS,
    }]);
    const env = { HF_ENDPOINT: hub.url, HF_HOME: `${cwd}/home` };
    const half = Promise.withResolvers<void>();
    let served = 0;
    hub.answer = (path, request) => {
      if (!path.startsWith("/0/")) return undefined;
      const whole = serveBytes(content, request);
      const stopped = whole.body!.pipeThrough(
        new TransformStream<Uint8Array, Uint8Array>({
          async transform(chunk, controller) {
            for (let at = 0; at < chunk.length; at += PIECE) {
              if ((served += PIECE) > content.length / 2) {
                half.resolve();
                await new Promise((resolve) => setTimeout(resolve, 3000));
              }
              controller.enqueue(chunk.subarray(at, at + PIECE));
            }
          },
        }),
      );
      return new Response(stopped, whole);
    };
    const child = parscale(["inspect", "--model", "tiny/large"], { cwd, env, stderr: "null" })
      .spawn();
    await half.promise;
    const isPartial = (path: string) => path.endsWith(".parscale-partial");
    // What was sent may still be on its way.
    while (true) {
      const [path] = allPaths(`${cwd}/home`).filter(isPartial);
      if (path !== undefined && Deno.statSync(path).size > content.length * 0.4) break;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    child.kill("SIGKILL");
    await child.status;

    hub.answer = () => undefined;
    hub.take();
    await runParscale(["inspect", "--model", "tiny/large"], { cwd, env });
    const ranges = hub.take().flatMap((line) => {
      const [, from, to] = /^GET \/0\/.* bytes=(\d+)-(\d+)$/.exec(line) ?? [];
      return from === undefined ? [] : [Number(to) - Number(from) + 1];
    });
    const fetched = ranges.reduce((a, b) => a + b, 0);
    assert(fetched > 0 && fetched < content.length * 0.75, `${fetched} of ${content.length}`);
    const path = `${cwd}/home/hub/models--tiny--large/snapshots/${COMMIT}/${WEIGHTS}`;
    assertEquals(oidOf(await Deno.readFile(path), true), oidOf(content, true));
  }));
