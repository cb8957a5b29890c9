/** Hooks that load data from the API and render again when it changes. */

import { useCallback, useEffect, useReducer, useState } from "./vendor/preact.js";
import { Problem, get } from "./api.js";
import { session } from "./session.js";

/**
 * The API's response for a path. Repeats the request every `every` milliseconds, and on `again()`.
 *
 * @param {string | null} path null sends no request
 * @param {number} [every] 0 sends one request
 * @param {(path: string, signal: AbortSignal) => Promise<any>} [load]
 * @returns {{data: any, error: string, again: () => void}}
 */
export function useAnswer(path, every = 0, load = get) {
  const [answer, set] = useState(/** @type {any} */ ({ path: "", data: null, error: "" }));
  const [asked, again] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    if (path === null) return undefined;
    const abort = new AbortController();
    let timer = 0;
    const ask = async () => {
      try {
        const data = await load(path, abort.signal);
        set({ path, data, error: "" });
      } catch (error) {
        if (abort.signal.aborted) return;
        const detail = error instanceof Problem ? error.message : String(error);
        set((/** @type {any} */ old) => ({ path, data: old.path === path ? old.data : null, error: detail }));
      }
      if (every && !abort.signal.aborted) timer = setTimeout(ask, every);
    };
    ask();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [path, every, asked]);
  const fresh = answer.path === path;
  return { data: fresh ? answer.data : null, error: fresh ? answer.error : "", again: useCallback(() => again(0), []) };
}

/** Renders again when the operator signs in or out. */
export function useSession() {
  const [, again] = useReducer((count) => count + 1, 0);
  useEffect(() => session.listen(() => again(0)), []);
  return session;
}

/**
 * Renders again, at most once a frame, when a part of a model changes.
 *
 * @param {EventTarget} model
 * @param {...string} topics
 */
export function useTopics(model, ...topics) {
  const [count, again] = useReducer((/** @type {number} */ n) => n + 1, 0);
  useEffect(() => {
    let frame = 0;
    const changed = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        again(0);
      });
    };
    topics.forEach((topic) => model.addEventListener(topic, changed));
    changed();
    return () => {
      cancelAnimationFrame(frame);
      topics.forEach((topic) => model.removeEventListener(topic, changed));
    };
  }, [model, topics.join()]);
  return count;
}

/** The current time in seconds; renders again every second. */
export function useNow() {
  const [now, set] = useState(() => Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => set(Date.now() / 1000), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}
