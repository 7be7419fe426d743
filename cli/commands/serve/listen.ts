/**
 * The HTTP server under a handler of the web's types.
 *
 * It is that of node:http, since `Deno.serve` does not notice a client that goes while its answer is
 * computed if the request came in two packets, as most clients send it.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { once } from "node:events";
import { EnvironmentError } from "../../../core/base/errors.ts";

/** Time that connections may take to close once every response is sent. */
const CLOSE_MS = 2000;

type Handler = (request: Request) => Promise<Response>;

/** An open port. */
export interface HttpServer {
  readonly hostname: string;
  readonly port: number;
  /** Takes no more requests and closes all connections. */
  close(): Promise<void>;
}

/** Opens a port. @throws {EnvironmentError} where it is taken */
export async function listen(
  { host, port }: { readonly host: string; readonly port: number },
  handler: Handler,
): Promise<HttpServer> {
  const server = createServer({ requestTimeout: 0 }, (incoming, outgoing) => {
    respond(incoming, outgoing, handler).catch(() => {
      // Malformed request, or the client disconnected.
      if (outgoing.headersSent) outgoing.destroy();
      else outgoing.writeHead(400).end();
    }).finally(() => incoming.resume()); // a body that was not read would hold the connection
  });
  try {
    server.listen(port, host);
    await once(server, "listening");
  } catch (error) {
    if (error instanceof Deno.errors.NotCapable) throw error;
    const { code, message } = error as { code?: string; message: string };
    if (code === "EADDRINUSE") {
      throw new EnvironmentError(`port ${port} of ${host} is in use`, {
        hints: ["pass another --port; 0 picks a free one"],
      });
    }
    throw new EnvironmentError(`cannot listen on ${host}, port ${port}: ${message}`);
  }
  const address = server.address() as { address: string; port: number };
  return { hostname: address.address, port: address.port, close: () => close(server) };
}

async function close(server: Server): Promise<void> {
  if (!server.listening) return;
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  server.closeIdleConnections();
  const timer = setTimeout(() => server.closeAllConnections(), CLOSE_MS);
  await closed;
  clearTimeout(timer);
}

async function respond(
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  handler: Handler,
): Promise<void> {
  const gone = new AbortController();
  outgoing.on("close", () => gone.abort());
  outgoing.on("error", () => gone.abort());
  const response = await handler(requestOf(incoming, gone.signal));
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  const reader = response.body?.getReader();
  const cancel = () => void reader?.cancel().catch(() => {});
  gone.signal.addEventListener("abort", cancel);
  if (gone.signal.aborted) cancel();
  for (;;) {
    const { done, value } = await reader?.read() ?? { done: true };
    if (done || gone.signal.aborted) break;
    if (!outgoing.write(value)) {
      await once(outgoing, "drain", { signal: gone.signal }).catch(() => {}); // or the client has gone
    }
  }
  outgoing.end();
}

function requestOf(incoming: IncomingMessage, signal: AbortSignal): Request {
  const { method = "GET", url = "/", httpVersion, rawHeaders } = incoming;
  const headers = new Headers();
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    headers.append(rawHeaders[i]!, rawHeaders[i + 1]!);
  }
  // The absolute form names the host itself (RFC 9112, 3.2.2); HTTP/1.0 has none, but browsers have.
  const target = /^https?:\/\//i.test(url) ? URL.parse(url) : null;
  if (target) headers.set("host", target.host);
  else if (httpVersion === "1.0" && !headers.has("host")) headers.set("host", "localhost");
  const path = target ? target.pathname + target.search : url;
  const hasBody = method !== "GET" && method !== "HEAD";
  // A name of our own: the client's is in the headers.
  return new Request(`http://localhost${path.startsWith("/") ? "" : "/"}${path}`, {
    method,
    headers,
    signal,
    ...(hasBody && { body: ReadableStream.from(incoming.iterator({ destroyOnReturn: false })) }),
  });
}
