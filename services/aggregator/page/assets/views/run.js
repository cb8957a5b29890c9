/** The live view of one run: its state, the verdicts on its clients, and its events. */

import { html, useEffect, useState } from "../vendor/preact.js";
import { useStoreTopics } from "../hooks.js";
import { RunStore } from "../run_store.js";
import { AccuracyChart, NormChart } from "./run_charts.js";
import { EventList } from "./event_list.js";
import { RunMembers } from "./run_members.js";
import { RunStatus } from "./run_status.js";
import { EvictionProposals } from "./eviction_proposals.js";
import { RunAuditLog } from "./run_audit_log.js";
import { VerdictMatrix } from "./verdict_matrix.js";

/** @param {{run_id: string}} props */
export function RunView({ run_id }) {
  const [store, set_store] = useState(/** @type {RunStore | null} */ (null));
  const [is_loaded, set_is_loaded] = useState(false);
  useEffect(() => {
    const new_store = new RunStore(run_id);
    new_store.addEventListener("status", () => set_is_loaded(new_store.run_info !== null));
    set_store(new_store);
    return () => new_store.close();
  }, [run_id]);
  if (!store) return null;
  if (!is_loaded) return html`<${RunStatus} store=${store} />`;
  return html`
    <${ConnectionWarning} store=${store} />
    <${RunStatus} store=${store} />
    <${EvictionProposals} store=${store} />
    <${VerdictMatrix} store=${store} />
    <div class="columns">
      <${AccuracyChart} store=${store} />
      <${NormChart} store=${store} />
    </div>
    <div class="columns">
      <${EventList} store=${store} />
      <${RunAuditLog} store=${store} />
    </div>
    <${RunMembers} store=${store} />
  `;
}

/** @param {{store: RunStore}} props */
function ConnectionWarning({ store }) {
  useStoreTopics(store, "connection");
  return html`<p class="lost" role="alert" hidden=${!store.connection_error}>
    ${store.connection_error &&
    (store.events_are_refused
      ? html`<b>Events refused:</b> ${store.connection_error}. The page may be out of date, and no longer updates. To try again, reload the page.`
      : html`<b>Connection lost.</b> ${store.connection_error} The page may be out of date; it keeps trying to reconnect.`)}
  </p>`;
}
