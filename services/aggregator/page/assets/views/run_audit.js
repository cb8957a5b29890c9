/** Operators' actions on a run and its clients. */

import { html } from "../vendor/preact.js";
import { useAudit } from "../audit_log.js";
import { href } from "../router.js";
import { Failure } from "../widgets.js";
import { AuditLines } from "./audit.js";

const SHOWN = 50;

/** @param {{model: import("../run_model.js").RunModel}} props */
export function RunAudit({ model }) {
  const { entries, error } = useAudit();
  const own = entries.filter((entry) => entry.target === model.run || entry.details.run === model.run);
  return html`<section class="panel" aria-labelledby="run-audit">
    <div class="panel-head"><h2 id="run-audit">Audit trail</h2><a href=${href("audit")}>All actions</a></div>
    <${Failure} error=${error} />
    <${AuditLines} entries=${own.slice(-SHOWN).reverse()} label="Actions on this run, newest first" />
  </section>`;
}
