/** Errors of the HTTP API: status, and the document that OpenAI clients read. */
import { NumericalError, ParscaleError } from "../base/errors.ts";

/** Error types by status; others below 500 are invalid requests. */
const TYPES: Readonly<Record<number, string>> = {
  401: "authentication_error",
  403: "permission_error",
  429: "overloaded",
  503: "unavailable_error",
};

export interface ApiErrorOptions {
  /** The field at fault. */
  readonly param?: string;
  readonly code?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Error response of the HTTP API. */
export class ApiError extends Error {
  constructor(readonly status: number, message: string, readonly options: ApiErrorOptions = {}) {
    super(message);
  }

  get headers(): Readonly<Record<string, string>> {
    return this.options.headers ?? {};
  }

  /** The document of the response. */
  get document() {
    const { message, status, options: { param = null, code = null } } = this;
    const type = TYPES[status] ?? (status < 500 ? "invalid_request_error" : "server_error");
    return { error: { message, type, param, code } };
  }
}

/** A field whose value cannot be used. */
export function badField(param: string, message: string, code?: string): ApiError {
  return new ApiError(400, message, code === undefined ? { param } : { param, code });
}

/** Error of a server without room or time, with the seconds after which clients try again. */
export function tryLater(status: 429 | 503, message: string, seconds: number): ApiError {
  return new ApiError(status, message, { headers: { "retry-after": String(seconds) } });
}

/** Returns the API error of an exception. Details of internal errors are left out. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  // Another try would end the same way.
  const headers = { "x-should-retry": "false" };
  if (error instanceof NumericalError) return new ApiError(500, error.message, { headers });
  if (!(error instanceof ParscaleError)) return new ApiError(500, "internal error", { headers });
  const message = [error.message, ...error.hints].join("; ");
  return new ApiError(error.kind === "environment" ? 500 : 400, message);
}
