/** Operators' actions on a run and its clients. */

import { html } from "../vendor/preact.js";
import { useAuditLog } from "../audit_log.js";
import { href } from "../router.js";
import { ErrorMessage } from "../widgets.js";
import { AuditEntries } from "./audit.js";

const MAX_ENTRIES_SHOWN = 50;

/** @param {{store: import("../run_store.js").RunStore}} props */
export function RunAuditLog({ store }) {
  const { entries, error } = useAuditLog();
  const run_entries = entries.filter((entry) => entry.target === store.run_id || entry.details.run === store.run_id);
  return html`<section class="panel" aria-labelledby="run-audit">
    <div class="panel-head"><h2 id="run-audit">Audit trail</h2><a href=${href("audit")}>All actions</a></div>
    <${ErrorMessage} error=${error} />
    <${AuditEntries} entries=${run_entries.slice(-MAX_ENTRIES_SHOWN).reverse()} label="Actions on this run, newest first" />
  </section>`;
}
