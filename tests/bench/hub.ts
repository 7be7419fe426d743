/**
 * Download speed from this machine, against `curl` into a file with `sha256sum` beside it.
 *
 *     deno run -A tests/bench/hub.ts [MEGABYTES]
 */
import { createHash } from "node:crypto";
import { HubClient } from "../../core/hub/client.ts";
import { downloadFiles } from "../../core/hub/download.ts";

const size = Number(Deno.args[0] ?? 512) << 20;
const folder = await Deno.makeTempDir();

/** Serves the file from a process of its own, by range. */
const SERVER = `
import { open } from "node:fs/promises";
const [path] = Deno.args;
Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: ({ port }) => console.log(port) }, async (request) => {
  const file = await Deno.open(path);
  const { size } = await file.stat();
  const [, from = 0, to = size - 1] = (/(\\d+)-(\\d+)/.exec(request.headers.get("range") ?? "") ?? []).map(Number);
  await file.seek(from, Deno.SeekMode.Start);
  let left = to - from + 1;
  const body = new ReadableStream({
    async pull(controller) {
      const chunk = new Uint8Array(Math.min(1 << 18, left));
      const count = left === 0 ? null : await file.read(chunk);
      if (count === null) { file.close(); controller.close(); return; }
      left -= count;
      controller.enqueue(chunk.subarray(0, count));
    },
  });
  const isRange = request.headers.has("range");
  const headers = { "content-length": String(to - from + 1),
    ...(isRange ? { "content-range": "bytes " + from + "-" + to + "/" + size } : {}) };
  return new Response(body, { status: isRange ? 206 : 200, headers });
});
`;

try {
  const source = `${folder}/source`, hash = createHash("sha256");
  {
    using file = await Deno.open(source, { create: true, write: true });
    const chunk = new Uint8Array(1 << 20);
    for (let at = 0; at < size; at += chunk.length) {
      chunk.fill(at >>> 20);
      hash.update(chunk);
      await file.write(chunk);
    }
  }
  const oid = hash.digest("hex");
  await Deno.writeTextFile(`${folder}/server.ts`, SERVER);
  const server = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", `${folder}/server.ts`, source],
    stdout: "piped",
  }).spawn();
  const reader = server.stdout.getReader();
  const port = new TextDecoder().decode((await reader.read()).value).trim();
  const endpoint = `http://127.0.0.1:${port}`;
  const rates: Record<string, number[]> = { curl: [], parscale: [] };
  const time = async (name: string, work: () => Promise<unknown>) => {
    const began = performance.now();
    await work();
    rates[name]!.push(size / 1e6 / ((performance.now() - began) / 1000));
  };
  for (let round = 0; round < 3; round++) {
    const copy = `${folder}/copy`;
    await time("curl", () =>
      new Deno.Command("bash", {
        args: ["-c", `curl -s ${endpoint}/file | tee ${copy} | sha256sum && sync ${copy}`],
        stdout: "null",
      }).output());
    await Deno.remove(copy);
    const cache = `${folder}/cache`;
    const client = new HubClient({ endpoint, token: undefined, cache, isOffline: false });
    const file = { path: "file", size, oid, check: "sha256" } as const;
    await time(
      "parscale",
      () => downloadFiles(client, { kind: "model", name: "a/b" }, "0".repeat(40), [file]),
    );
    await Deno.remove(cache, { recursive: true });
  }
  await reader.cancel();
  server.kill("SIGKILL");
  await server.status;
  const best = Object.entries(rates).map(([name, all]) => [name, Math.max(...all)] as const);
  for (const [name, rate] of best) console.log(`${name}: ${rate.toFixed(0)} MB/s`);
  console.log(`ratio: ${(best[1]![1] / best[0]![1]).toFixed(2)}`);
} finally {
  await Deno.remove(folder, { recursive: true });
}
