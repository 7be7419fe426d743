/** The HTTP API: one function from request to response, for any server that speaks the web's types. */
import { type AccessRules, checkAccess, checkKey, corsHeaders } from "./access.ts";
import { parseExactJson } from "../base/exact_json.ts";
import { jsonDepth, jsonValue, show } from "../base/files.ts";
import { ApiError, toApiError } from "./errors.ts";
import { hasStreamWeights } from "../model/config.ts";
import { answer } from "./generate.ts";
import { Recorder, type RequestRecord } from "./record.ts";
import { readRequest } from "./request.ts";
import type { ServedModel, Service } from "./service.ts";
import { detokenize, tokenize, tokenizerInfo } from "./tokenizer_endpoints.ts";

/** Largest request body, in bytes. */
const MAX_BODY = 8 << 20;

/** Deepest nesting of JSON in a request. */
const MAX_DEPTH = 64;

export interface HandlerOptions {
  readonly access: AccessRules;
  /** Device that is reported with the models. */
  readonly device: () => string;
  /** Answers `GET /`; undefined where there is no page. */
  readonly page: (() => Response) | undefined;
  /** Told once per name of a field that is ignored. */
  readonly onUnknownField: (field: string) => void;
  /** Told of errors that are not the client's. */
  readonly onError: (error: unknown) => void;
  /** Told of every request once its response is over. */
  readonly onAnswered?: (record: RequestRecord) => void;
  /** A streaming client that reads nothing for so long is cut. */
  readonly stallMs?: number;
}

type Route = (
  request: Request,
  rest: string,
  recorder: Recorder,
) => Response | Promise<Response>;

/** Makes the handler of a service. */
export function createHandler(
  service: Service,
  options: HandlerOptions,
): (request: Request) => Promise<Response> {
  const { access, page, onError, stallMs = 60_000 } = options;
  const unknown = new Set<string>();
  const onUnknown = (field: string) => {
    // A client that makes up names must not fill the memory.
    if (unknown.has(field) || unknown.size >= 100) return;
    unknown.add(field);
    options.onUnknownField(field);
  };
  const generate = (kind: "completion" | "chat"): Route => async (request, _, recorder) => {
    service.requireReady();
    const wanted = readRequest(kind, await readJson(request), onUnknown);
    const { signal } = request;
    const onLateError = (error: unknown) => {
      onError(error);
      const { status } = toApiError(error);
      service.metrics.count("request_failure_total", { code: String(status) });
    };
    return await answer(service, wanted, { signal, stallMs, onLateError, recorder });
  };
  const first = () => {
    service.requireReady();
    return service.find(undefined);
  };
  const post: Record<string, Route> = {
    "/v1/chat/completions": generate("chat"),
    "/v1/completions": generate("completion"),
    "/tokenize": async (request) => await tokenize(first(), await readJson(request)),
    "/detokenize": async (request) => Response.json(detokenize(first(), await readJson(request))),
  };
  const get: Record<string, Route> = {
    "/v1/models": () => {
      service.requireReady();
      const data = service.models.map((model) => modelDocument(model, service, options.device()));
      return Response.json({ object: "list", data });
    },
    "/v1/models/": (_, id) => {
      service.requireReady();
      const model = service.find(decodePath(id));
      return Response.json(modelDocument(model, service, options.device()));
    },
    "/tokenizer_info": () => Response.json(tokenizerInfo(first())),
    "/health": () => healthOf(service),
    "/metrics": () =>
      new Response(service.metricsText(), {
        headers: { "content-type": "text/plain; version=0.0.4; charset=utf-8" },
      }),
    ...(page ? { "/": page } : {}),
  };

  const route = async (request: Request, recorder: Recorder): Promise<Response> => {
    checkAccess(request, access);
    if (request.method === "OPTIONS") return new Response(null, { status: 204 });
    const pathname = pathOf(request);
    if (pathname !== "/" && pathname !== "/health") checkKey(request, access);
    // HEAD is a GET of which the runtime sends no body; health checks of containers ask so.
    const method = request.method === "HEAD" ? "GET" : request.method;
    const table = method === "POST" ? post : method === "GET" ? get : {};
    if (Object.hasOwn(table, pathname)) return await table[pathname]!(request, "", recorder);
    const models = "/v1/models/";
    if (method === "GET" && pathname.startsWith(models)) {
      return await get[models]!(request, pathname.slice(models.length), recorder);
    }
    if (Object.hasOwn(post, pathname) || Object.hasOwn(get, pathname)) {
      throw new ApiError(405, `${pathname} does not take ${request.method}`);
    }
    const served = Object.keys({ ...post, ...get }).filter((path) => /^\/v1\/.*[^/]$/.test(path));
    throw new ApiError(404, `no such path: ${pathname}; served are ${served.join(", ")}`);
  };

  return async (request) => {
    const id = crypto.randomUUID();
    const path = new URL(request.url).pathname;
    const recorder = new Recorder(request.method, path, options.onAnswered ?? (() => {}));
    let response: Response, refusal: ApiError | undefined;
    try {
      response = await route(request, recorder);
    } catch (error) {
      // Nothing reaches a client that has gone; proxies log this status.
      if (request.signal.aborted) {
        recorder.end(499);
        return new Response(null, { status: 499 });
      }
      refusal = toApiError(error);
      if (refusal.status >= 500 && !(error instanceof ApiError)) onError(error);
      service.metrics.count("request_failure_total", { code: String(refusal.status) });
      const { status, headers, document } = refusal;
      response = Response.json(document, { status, headers });
    }
    if (!recorder.isStreaming) recorder.end(response.status, refusal?.message);
    const more = { "x-request-id": id, "x-content-type-options": "nosniff" };
    const all = { ...more, ...corsHeaders(request, access) };
    for (const [name, value] of Object.entries(all)) response.headers.set(name, value);
    return response;
  };
}

function pathOf({ url, headers }: Request): string {
  if (URL.canParse(`http://${headers.get("host") ?? "localhost"}`)) return new URL(url).pathname;
  throw new ApiError(400, "the Host header is not valid");
}

function decodePath(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    throw new ApiError(400, `the path has invalid percent-encoding: ${show(part)}`);
  }
}

function healthOf(service: Service): Response {
  const { state } = service;
  if (state === "ready") return Response.json({ status: "ok" });
  return Response.json({ status: state }, { status: 503, headers: { "retry-after": "1" } });
}

function modelDocument(model: ServedModel, service: Service, device: string) {
  const { name, parent, maxLength, session: { config } } = model;
  return {
    id: name,
    object: "model",
    created: service.created,
    owned_by: "parscale",
    max_model_len: maxLength,
    root: parent ?? name,
    parent,
    parscale: {
      streams: config.streams,
      default_streams: service.defaultStreams(model),
      weights: hasStreamWeights(config),
      device,
    },
  };
}

/** Reads a body of limited size and depth. */
async function readJson(request: Request): Promise<unknown> {
  const text = await readText(request);
  if (jsonDepth(text) > MAX_DEPTH) {
    throw new ApiError(400, `the request body nests JSON deeper than ${MAX_DEPTH} levels`);
  }
  const value = jsonValue(text, parseExactJson);
  if (value === undefined) throw new ApiError(400, "the request body is not valid JSON");
  return value;
}

async function readText(request: Request): Promise<string> {
  const tooLarge = new ApiError(413, `the request body exceeds ${MAX_BODY} bytes`);
  if (Number(request.headers.get("content-length")) > MAX_BODY) throw tooLarge;
  try {
    const parts: Uint8Array<ArrayBuffer>[] = [];
    let length = 0;
    for await (const part of request.body ?? []) {
      if ((length += part.length) > MAX_BODY) throw tooLarge;
      parts.push(part);
    }
    return await new Blob(parts).text();
  } catch (error) {
    if (error === tooLarge) throw tooLarge;
    throw new ApiError(400, `the request body cannot be read: ${(error as Error).message}`);
  }
}
