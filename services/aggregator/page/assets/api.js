/** Requests to the API with the operator's token. */

import { session } from "./session.js";

/** Maximum number of clients in one response. */
const PAGE_SIZE = 1000;
/** Times after which `get_json` and `send_json` give up, because a stalled network reports no error. */
const GET_TIMEOUT_MS = 30_000;
/** This timeout is longer, because a worker has 30 s to check a submitted experiment. */
const SEND_TIMEOUT_MS = 60_000;
const NO_RESPONSE = "The aggregator does not answer.";

/** A refused or failed request, with the text of the API's problem document. */
export class ApiError extends Error {
  /**
   * @param {number} status HTTP status; 0 if there was no response
   * @param {string} detail
   */
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/**
 * Whether the API refused a request in such a way that repeating the request cannot help. The status 429 does not
 * count as a refusal, because the request may succeed later.
 *
 * @param {unknown} error
 */
export function is_refusal(error) {
  return error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429;
}

/**
 * Returns null for a refusal by the API, for example because the run has not started; throws all other errors.
 *
 * @param {unknown} error
 */
export function null_if_refused(error) {
  if (is_refusal(error)) return null;
  throw error;
}

/**
 * Sends a request with the session's token, or with `token`. If the API answers the session's token with 401, the user is signed out.
 *
 * @param {string} path
 * @param {RequestInit & {token?: string}} [options]
 * @returns {Promise<Response>}
 */
export async function request(path, options = {}) {
  const { token = session.token, headers, ...fetch_options } = options;
  let response;
  try {
    response = await fetch(path, {
      ...fetch_options,
      headers: { Authorization: `Bearer ${token}`, ...headers },
      cache: "no-store",
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, NO_RESPONSE);
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  const detail = String(body.detail || body.title || `HTTP ${response.status}`);
  if (response.status === 401 && token === session.token) session.sign_out(`Signed out: ${detail}.`);
  throw new ApiError(response.status, detail);
}

/**
 * Sends a GET request, and returns the parsed JSON of the response. Fails if the response takes too long.
 *
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export function get_json(path, signal) {
  return request_json(path, { signal }, GET_TIMEOUT_MS);
}

/**
 * Sends a request, and returns the parsed JSON of the response; null for a 204.
 *
 * @param {string} path
 * @param {RequestInit} options
 * @param {number} timeout_ms
 * @returns {Promise<any>}
 */
async function request_json(path, options, timeout_ms) {
  const { signal } = options;
  // Older browsers lack AbortSignal.any, so one controller serves both the caller's signal and the timeout.
  const abort_controller = new AbortController();
  const abort = () => abort_controller.abort();
  const timer = setTimeout(abort, timeout_ms);
  signal?.addEventListener("abort", abort);
  if (signal?.aborted) abort();
  try {
    const response = await request(path, { ...options, signal: abort_controller.signal });
    return response.status === 204 ? null : await response.json();
  } catch (error) {
    if (signal?.aborted || error instanceof ApiError || error instanceof SyntaxError) throw error;
    throw new ApiError(0, NO_RESPONSE);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
  }
}

/**
 * All clients of the federation, fetched page by page.
 *
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {Promise<any[]>}
 */
export async function get_all_clients(path, signal) {
  const clients = [];
  for (let cursor = ""; ; cursor = `&after=${encodeURIComponent(clients[clients.length - 1].client_id)}`) {
    const page = await get_json(`${path}?limit=${PAGE_SIZE}${cursor}`, signal);
    clients.push(...page);
    if (page.length < PAGE_SIZE) return clients;
  }
}

/**
 * Sends a request with a JSON body, and returns the parsed JSON of the response; null for a 204. Fails if the
 * response takes too long.
 *
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @returns {Promise<any>}
 */
export function send_json(method, path, body) {
  /** @type {RequestInit} */
  const options = {
    method,
    headers: body === undefined ? {} : { "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  };
  return request_json(path, options, SEND_TIMEOUT_MS);
}

/**
 * Downloads a response as a file.
 *
 * @param {string} path
 * @param {string} file_name
 */
export async function download(path, file_name) {
  const url = URL.createObjectURL(await (await request(path)).blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = file_name;
  link.click();
  URL.revokeObjectURL(url);
}
