/** Requests to the API with the operator's token. */

import { session } from "./session.js";

/** Number of clients in one response. */
const PAGE = 1000;

/** A refused or failed request, with the text of the API's problem document. */
export class Problem extends Error {
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
 * The response to a request. A 401 ends the session.
 *
 * @param {string} path
 * @param {RequestInit & {token?: string}} [options]
 * @returns {Promise<Response>}
 */
export async function request(path, options = {}) {
  const { token = session.token, headers, ...rest } = options;
  let answer;
  try {
    answer = await fetch(path, {
      ...rest,
      headers: { Authorization: `Bearer ${token}`, ...headers },
      cache: "no-store",
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem(0, "The aggregator does not answer.");
  }
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => ({}));
  const detail = String(body.detail || body.title || `HTTP ${answer.status}`);
  if (answer.status === 401 && token === session.token) session.end(`Signed out: ${detail}.`);
  throw new Problem(answer.status, detail);
}

/**
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function get(path, signal) {
  return (await request(path, { signal })).json();
}

/**
 * All clients of the federation, fetched page by page.
 *
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {Promise<any[]>}
 */
export async function get_clients(path, signal) {
  const found = [];
  for (let after = ""; ; after = `&after=${encodeURIComponent(found[found.length - 1].client_id)}`) {
    const page = await get(`${path}?limit=${PAGE}${after}`, signal);
    found.push(...page);
    if (page.length < PAGE) return found;
  }
}

/**
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @returns {Promise<any>}
 */
export async function send(method, path, body) {
  const answer = await request(path, {
    method,
    headers: body === undefined ? {} : { "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  return answer.status === 204 ? null : answer.json();
}

/**
 * Saves a response as a file.
 *
 * @param {string} path
 * @param {string} name
 */
export async function download(path, name) {
  const url = URL.createObjectURL(await (await request(path)).blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}
