/** The audit log. The page loads the log once, and then requests only new entries. */

import { useEffect, useState } from "./vendor/preact.js";
import { get } from "./api.js";

/** The number of entries in one response, and the milliseconds between requests. */
const PAGE = 1000;
const EVERY = 3000;

/** All entries read so far, oldest first, and the error if the log could not be read. */
export function useAudit() {
  const [found, set] = useState({ entries: /** @type {any[]} */ ([]), error: "" });
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    /** @type {any[]} */
    let entries = [];
    const ask = async () => {
      try {
        let page;
        do {
          page = await get(`/v1/audit?since=${entries.length}&limit=${PAGE}`, abort.signal);
          entries = page.length ? [...entries, ...page] : entries;
        } while (page.length === PAGE);
        set((old) => (old.entries === entries && !old.error ? old : { entries, error: "" }));
      } catch (error) {
        if (abort.signal.aborted) return;
        set({ entries, error: error instanceof Error ? error.message : String(error) });
      }
      if (!abort.signal.aborted) timer = setTimeout(ask, EVERY);
    };
    ask();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, []);
  return found;
}
