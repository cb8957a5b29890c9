/** Hooks that load data from the API and render again when the data change. */

import { useCallback, useEffect, useReducer, useState } from "./vendor/preact.js";
import { ApiError, get_json } from "./api.js";
import { session } from "./session.js";

/**
 * The API's response for a path. Repeats the request every `interval_ms` milliseconds, and on `refresh()`.
 *
 * @param {string | null} path null to send no request
 * @param {number} [interval_ms] 0 to send only one request
 * @param {(path: string, signal: AbortSignal) => Promise<any>} [load] sends the request
 * @returns {{data: any, error: string, refresh: () => void}}
 */
export function useFetch(path, interval_ms = 0, load = get_json) {
  const [result, set_result] = useState(/** @type {any} */ ({ path: "", data: null, error: "" }));
  const [refresh_count, request_refresh] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    if (path === null) return undefined;
    const abort_controller = new AbortController();
    let timer = 0;
    const poll = async () => {
      try {
        const data = await load(path, abort_controller.signal);
        set_result({ path, data, error: "" });
      } catch (error) {
        if (abort_controller.signal.aborted) return;
        const detail = error instanceof ApiError ? error.message : String(error);
        set_result((/** @type {any} */ previous) => ({ path, data: previous.path === path ? previous.data : null, error: detail }));
      }
      if (interval_ms && !abort_controller.signal.aborted) timer = setTimeout(poll, interval_ms);
    };
    poll();
    return () => {
      abort_controller.abort();
      clearTimeout(timer);
    };
  }, [path, interval_ms, refresh_count]);
  const is_current = result.path === path;
  return { data: is_current ? result.data : null, error: is_current ? result.error : "", refresh: useCallback(() => request_refresh(0), []) };
}

/** Renders again when the operator signs in or out. */
export function useSession() {
  const [, rerender] = useReducer((count) => count + 1, 0);
  useEffect(() => session.subscribe(() => rerender(0)), []);
  return session;
}

/**
 * Renders again, at most once a frame, when a store reports a change of one of the topics.
 *
 * @param {EventTarget} store
 * @param {...string} topics
 * @returns {number} a version that grows with each change, as a dependency for other hooks
 */
export function useStoreTopics(store, ...topics) {
  const [version, rerender] = useReducer((/** @type {number} */ previous) => previous + 1, 0);
  useEffect(() => {
    let frame_id = 0;
    const schedule_render = () => {
      frame_id ||= requestAnimationFrame(() => {
        frame_id = 0;
        rerender(0);
      });
    };
    topics.forEach((topic) => store.addEventListener(topic, schedule_render));
    schedule_render();
    return () => {
      cancelAnimationFrame(frame_id);
      topics.forEach((topic) => store.removeEventListener(topic, schedule_render));
    };
  }, [store, topics.join()]);
  return version;
}

/** The current time in seconds; renders again every second. */
export function useNow() {
  const [now, set_now] = useState(() => Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => set_now(Date.now() / 1000), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}
