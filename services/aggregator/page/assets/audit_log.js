/** Loads the whole audit log, and then requests only new entries. */

import { useEffect, useState } from "./vendor/preact.js";
import { get_json } from "./api.js";

/** Maximum number of entries in one response. */
const PAGE_SIZE = 1000;
const REFRESH_INTERVAL_MS = 3000;

/** The entries loaded so far, oldest first, and the error of the newest request ("" if the request succeeded). */
export function useAuditLog() {
  const [log, set_log] = useState({ entries: /** @type {any[]} */ ([]), error: "" });
  useEffect(() => {
    const abort_controller = new AbortController();
    let timer = 0;
    /** @type {any[]} */
    let entries = [];
    const poll = async () => {
      try {
        let page;
        do {
          page = await get_json(`/v1/audit?since=${entries.length}&limit=${PAGE_SIZE}`, abort_controller.signal);
          entries = page.length ? [...entries, ...page] : entries;
        } while (page.length === PAGE_SIZE);
        set_log((previous) => (previous.entries === entries && !previous.error ? previous : { entries, error: "" }));
      } catch (error) {
        if (abort_controller.signal.aborted) return;
        set_log({ entries, error: error instanceof Error ? error.message : String(error) });
      }
      if (!abort_controller.signal.aborted) timer = setTimeout(poll, REFRESH_INTERVAL_MS);
    };
    poll();
    return () => {
      abort_controller.abort();
      clearTimeout(timer);
    };
  }, []);
  return log;
}
