/**
 * An exported model in a browser: the JavaScript of the page that `export` writes, in Chromium, on the
 * processor by WebAssembly and on WebGPU.
 *
 *   PARSCALE_ORT_WEB   the package folder of onnxruntime-web 1.30.0; skipped without, or without Chromium
 */
import { assertEquals } from "@std/assert";
import { MODEL } from "../cli/models.ts";
import { runParscale } from "../cli/run.ts";
import { withScratch } from "../scratch.ts";
import { BrowserPage, CHROMIUM } from "../cli/visualize_browser.ts";

const library = Deno.env.get("PARSCALE_ORT_WEB");

/** SwiftShader, which Chromium brings, stands in for a GPU. */
const WEBGPU = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"];

/** The page's script as its text says it is in a browser; results go to `tokens`. */
function browserScript(page: string): string {
  const [script, first] = [...page.matchAll(/```js\n([\s\S]*?)```/g)].map(([, text]) => text!);
  const [load, about, weights] = first!.split("\n");
  const [, , ...rest] = script!.split("\n");
  const body = rest.join("\n")
    .replace("const prefill =", `${weights}\nconst prefill =`)
    .replace("console.log(token)", "tokens.push(token)");
  return [load, "ort.env.wasm.numThreads = 1;", about, "const tokens = [];", body].join("\n") +
    "\nglobalThis.tokens = tokens;";
}

/** Serves a folder and the library beside it, as web pages need them. */
function serve(folder: string): Deno.HttpServer<Deno.NetAddr> {
  const types: Record<string, string> = {
    html: "text/html",
    mjs: "text/javascript",
    wasm: "application/wasm",
    json: "application/json",
  };
  const options = { hostname: "127.0.0.1", port: 0, onListen() {} };
  return Deno.serve(options, async ({ url }) => {
    const { pathname } = new URL(url);
    const path = `${pathname.startsWith("/dist/") ? library : folder}${pathname}`;
    const type = types[path.split(".").at(-1)!] ?? "application/octet-stream";
    try {
      return new Response(await Deno.readFile(path), { headers: { "content-type": type } });
    } catch {
      return new Response("", { status: 404 });
    }
  });
}

for (
  const [device, bundle, flags] of [
    ["cpu", "ort.wasm.bundle.min.mjs", []],
    ["webgpu", "ort.webgpu.bundle.min.mjs", WEBGPU],
  ] as const
) {
  Deno.test({
    name: `the page for ${device} runs in a browser, with our tokens`,
    ignore: library === undefined || CHROMIUM === undefined,
    fn: () =>
      withScratch(async (cwd) => {
        const args = ["export", "--model", MODEL, "--onnx", "--out", "onnx", "--device", device];
        const sizes = ["--capacity", "128", "--tokens", "16"];
        assertEquals((await runParscale([...args, ...sizes], { cwd })).code, 0);
        const map = { imports: { "onnxruntime-web/webgpu": `/dist/${bundle}` } };
        const script = browserScript(await Deno.readTextFile(`${cwd}/onnx/README.md`));
        await Deno.writeTextFile(
          `${cwd}/onnx/index.html`,
          `<script type="importmap">${JSON.stringify(map)}</script>` +
            `<script type="module">try {\n${
              script.replace(/^import \* as ort from (".*?");.*$/m, "const ort = await import($1);")
            }\n} catch (error) { globalThis.tokens = String(error); }</script>`,
        );
        const server = serve(`${cwd}/onnx`);
        await using page = await BrowserPage.open({ more: flags });
        await page.navigate(`http://127.0.0.1:${server.addr.port}/index.html`);
        const wait = "new Promise((done) => { const look = () => globalThis.tokens ? " +
          "done(globalThis.tokens) : setTimeout(look, 100); look(); })";
        const tokens = await page.evaluate(wait);
        const asked = ["generate", "--model", MODEL, "--max-tokens", "20", "--ignore-eos"];
        const own = await runParscale([...asked, "--jsonl"], { stdin: '{"tokens":[1,2,3]}\n' });
        assertEquals(tokens, JSON.parse(own.stdout).tokens);
        await server.shutdown();
      }),
  });
}
