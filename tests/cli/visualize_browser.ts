/**
 * A headless Chromium for tests of pages, driven through its DevTools protocol.
 *
 * Takes the path of a page; returns what the page did, and which addresses it asked for. Nothing is
 * installed: where no Chromium is found, `CHROMIUM` is undefined and tests are to skip themselves.
 */

/** Names that distributions give it; the variable wins. */
const NAMES = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/** The program, or undefined where there is none. */
export const CHROMIUM: string | undefined = Deno.env.get("CHROMIUM") ?? find();

function find(): string | undefined {
  for (const folder of (Deno.env.get("PATH") ?? "").split(":")) {
    for (const name of NAMES) {
      try {
        if (Deno.statSync(`${folder}/${name}`).isFile) return `${folder}/${name}`;
      } catch {
        // Not in this folder.
      }
    }
  }
}

type Fields = Record<string, unknown>;

/** One tab. */
export class BrowserPage implements AsyncDisposable {
  /** Addresses of all requests of the page. */
  readonly requests: string[] = [];
  /** Messages of errors in its scripts, and of refused requests. */
  readonly complaints: string[] = [];
  readonly #process: Deno.ChildProcess;
  readonly #folder: string;
  readonly #socket: WebSocket;
  readonly #answers = new Map<number, { resolve(x: Fields): void; reject(x: Error): void }>();
  readonly #waiting = new Map<string, (() => void)[]>();
  #session: string | undefined;
  #next = 1;

  private constructor(process: Deno.ChildProcess, folder: string, socket: WebSocket) {
    this.#process = process;
    this.#folder = folder;
    this.#socket = socket;
    socket.onmessage = ({ data }) => this.#receive(JSON.parse(data));
  }

  /** Starts a browser with one empty tab of this size; `more` are flags of its command line. */
  static async open(
    { width = 1000, height = 700, more = ["--disable-gpu"] }: {
      width?: number;
      height?: number;
      more?: readonly string[];
    } = {},
  ): Promise<BrowserPage> {
    const folder = await Deno.makeTempDir({ prefix: "parscale-browser-" });
    const process = new Deno.Command(CHROMIUM!, {
      args: [
        "--headless",
        "--no-sandbox",
        ...more,
        "--disable-background-networking",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--remote-debugging-port=0",
        `--user-data-dir=${folder}`,
        `--window-size=${width},${height}`,
        "about:blank",
      ],
      stdin: "null",
      stdout: "null",
      stderr: "piped",
    }).spawn();
    const socket = new WebSocket(await addressOf(process));
    await new Promise((resolve, reject) => {
      socket.onopen = resolve;
      socket.onerror = reject;
    });
    const page = new BrowserPage(process, folder, socket);
    const { targetId } = await page.send("Target.createTarget", { url: "about:blank" });
    const attached = await page.send("Target.attachToTarget", { targetId, flatten: true });
    page.#session = attached.sessionId as string;
    const metrics = { width, height, deviceScaleFactor: 1, mobile: false };
    await page.send("Emulation.setDeviceMetricsOverride", metrics);
    for (const domain of ["Page", "Network", "Runtime", "Log"]) await page.send(`${domain}.enable`);
    return page;
  }

  /** Sends a command of the protocol. */
  send(method: string, params: Fields = {}): Promise<Fields> {
    const id = this.#next++;
    const message = { id, method, params, ...(this.#session && { sessionId: this.#session }) };
    this.#socket.send(JSON.stringify(message));
    return new Promise((resolve, reject) => this.#answers.set(id, { resolve, reject }));
  }

  /** Opens a file or address and waits until it is loaded and painted; returns how long that took. */
  async navigate(where: string): Promise<number> {
    const loaded = new Promise<void>((resolve) => {
      this.#waiting.set("Page.loadEventFired", [resolve]);
    });
    const start = performance.now();
    await this.send("Page.navigate", { url: where.startsWith("/") ? `file://${where}` : where });
    await loaded;
    await this.evaluate("new Promise((f) => requestAnimationFrame(() => setTimeout(f)))");
    return performance.now() - start;
  }

  /** Value of an expression in the page. */
  // deno-lint-ignore no-explicit-any -- whatever the page answers
  async evaluate(expression: string): Promise<any> {
    const answer = await this.send("Runtime.evaluate", {
      expression,
      awaitPromise: true,
      returnByValue: true,
    });
    if (answer.exceptionDetails) throw new Error(JSON.stringify(answer.exceptionDetails));
    return (answer.result as Fields).value;
  }

  /** Moves the pointer to the middle of the first box of an element. */
  async hover(selector: string): Promise<void> {
    const { x, y } = await this.evaluate(`(() => {
      const element = document.querySelector(${JSON.stringify(selector)});
      element.scrollIntoView({ block: "center" });
      const { left, top, width, height } = element.getClientRects()[0];
      return { x: left + width / 2, y: top + height / 2 };
    })()`);
    await this.send("Input.dispatchMouseEvent", { type: "mouseMoved", x, y });
  }

  /** Presses and releases a key. */
  async press(key: string): Promise<void> {
    for (const type of ["keyDown", "keyUp"]) {
      await this.send("Input.dispatchKeyEvent", { type, key, code: key });
    }
  }

  /** Returns a screenshot as a PNG. */
  async screenshot(): Promise<Uint8Array> {
    const { data } = await this.send("Page.captureScreenshot", { format: "png" });
    return Uint8Array.fromBase64(data as string);
  }

  /** Ends the browser and removes its folder. */
  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise((resolve) => this.#socket.onclose = resolve);
    this.#session = undefined;
    this.send("Browser.close").catch(() => {});
    await closed;
    await this.#process.status;
    await Deno.remove(this.#folder, { recursive: true });
  }

  // deno-lint-ignore no-explicit-any -- the protocol's messages
  #receive({ id, method, result, error, params }: any): void {
    if (id !== undefined) {
      const answer = this.#answers.get(id);
      this.#answers.delete(id);
      if (error) answer?.reject(new Error(error.message));
      else answer?.resolve(result);
      return;
    }
    if (method === "Network.requestWillBeSent") this.requests.push(params.request.url);
    if (method === "Runtime.exceptionThrown") this.complaints.push(params.exceptionDetails.text);
    if (method === "Log.entryAdded") this.complaints.push(params.entry.text);
    for (const resolve of this.#waiting.get(method) ?? []) resolve();
    this.#waiting.delete(method);
  }
}

/**
 * The address that the browser prints when it is ready; the rest of what it says is read and
 * dropped.
 */
async function addressOf(process: Deno.ChildProcess): Promise<string> {
  const reader = process.stderr.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error(`The browser did not start: ${text}`);
    text += value;
    const address = /DevTools listening on (ws:\S+)/.exec(text)?.[1];
    if (address === undefined) continue;
    (async () => {
      while (!(await reader.read()).done);
    })();
    return address;
  }
}
