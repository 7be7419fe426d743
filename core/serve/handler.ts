/** The HTTP API: one function from request to response, for any server that speaks the web's types. */
import { type AccessRules, checkAccess, checkKey, corsHeaders } from "./access.ts";
import { show } from "../base/files.ts";
import { HeldBytes, LONG_BODY, readBytes, streamBytes } from "./body.ts";
import { ApiError, toApiError } from "./errors.ts";
import { hasStreamWeights } from "../model/config.ts";
import { answer } from "./generate.ts";
import { documentOf, requestOf } from "./long_bodies.ts";
import { detokenize, promptModelOf, readBody, tokenize } from "./prompts.ts";
import { Recorder, type RequestRecord } from "./record.ts";
import { readRequest } from "./request.ts";
import type { ServedModel, Service } from "./service.ts";

export interface HandlerOptions {
  readonly access: AccessRules;
  /** Device that is reported with the models. */
  readonly device: () => string;
  /** Answers `GET /`; undefined where there is no page. */
  readonly page: (() => Response) | undefined;
  /** Told of errors that are not the client's. */
  readonly onError: (error: unknown) => void;
  /** Told of every request once its response is over. */
  readonly onAnswered?: (record: RequestRecord) => void;
  /** A streaming client that reads nothing for so long is cut. */
  readonly stallMs?: number;
}

type Route = (request: Request, rest: string, recorder: Recorder) => Response | Promise<Response>;

/** Makes the handler of a service. */
export function createHandler(
  service: Service,
  options: HandlerOptions,
): (request: Request) => Promise<Response> {
  const { access, page, onError, stallMs = 60_000 } = options;
  const generate = (kind: "completion" | "chat"): Route => async (request, _, recorder) => {
    service.requireReady();
    using memory = new HeldBytes();
    const bytes = await readBytes(request, memory);
    const { signal } = request;
    const isLong = bytes.length >= LONG_BODY;
    if (isLong) service.requireRoom(1); // before it is tokenized
    const { wanted, prompts } = isLong
      ? await requestOf(kind, bytes, longestModel(), signal)
      : { wanted: readRequest(kind, readBody(bytes)), prompts: undefined };
    memory.hold(0);
    const onLateError = (error: unknown) => {
      onError(error);
      const { status } = toApiError(error);
      service.metrics.count("request_failure_total", { code: String(status) });
    };
    return await answer(service, wanted, { signal, stallMs, onLateError, recorder }, prompts);
  };
  const first = () => {
    service.requireReady();
    return service.find(undefined);
  };
  /** All share the tokenizer; the one that is asked checks the length again. */
  const longestModel = () => {
    const maxLength = Math.max(...service.models.map((model) => model.maxLength));
    return { ...promptModelOf(first()), maxLength };
  };
  const document = (use: "tokenize" | "detokenize"): Route => async (request) => {
    const model = promptModelOf(first()), memory = new HeldBytes();
    const headers = { "content-type": "application/json" };
    let isSent = false;
    try {
      const bytes = await readBytes(request, memory);
      if (bytes.length < LONG_BODY) {
        const work = { tokenize, detokenize }[use];
        return new Response(await work(model, readBody(bytes)), { headers });
      }
      const long = await documentOf(use, bytes, model, request.signal);
      memory.hold(long.length);
      isSent = true;
      return new Response(streamBytes(long, stallMs, () => memory.hold(0)), { headers });
    } finally {
      if (!isSent) memory.hold(0);
    }
  };
  const post: Record<string, Route> = {
    "/v1/chat/completions": generate("chat"),
    "/v1/completions": generate("completion"),
    "/tokenize": document("tokenize"),
    "/detokenize": document("detokenize"),
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
      refusal = refusalOf(error, service.models);
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

/** Returns the error for a client, who knows the model by its name and not by its folder. */
function refusalOf(error: unknown, models: readonly ServedModel[]): ApiError {
  const { status, message, options } = toApiError(error);
  const text = models.reduce(
    (text, { name, session }) => text.replaceAll(`"${session.tokenizer.directory}"`, `"${name}"`),
    message,
  );
  return new ApiError(status, text, options);
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

/** Document of `GET /tokenizer_info`, in the layout that lm-evaluation-harness asks for. */
function tokenizerInfo({ session: { tokenizer }, tokenizerClass }: ServedModel) {
  const { namedTokens, chatTemplate } = tokenizer;
  return {
    tokenizer_class: tokenizerClass,
    eos_token: namedTokens.eos_token ?? null,
    bos_token: namedTokens.bos_token ?? null,
    pad_token: namedTokens.pad_token ?? null,
    chat_template: chatTemplate ?? null,
  };
}
