/** The proposals to evict clients, which wait for an operator's decision until the run ends. */

import { html } from "../vendor/preact.js";
import { actions } from "../actions.js";
import { ActionButton } from "../action_dialog.js";
import { format_number, format_relative_time, pluralize } from "../format.js";
import { useStoreTopics } from "../hooks.js";
import { href } from "../router.js";

/** @param {{store: import("../run_store.js").RunStore}} props */
export function EvictionProposals({ store }) {
  useStoreTopics(store, "members", "status");
  if (store.has_ended || !store.proposals.length) return null;
  const refresh = () => store.mark_stale("members", "status");
  return html`<section class="panel urgent" aria-labelledby="proposals">
    <h2 id="proposals">${pluralize(store.proposals.length, "proposal")} to evict</h2>
    <ul class="plain">
      ${store.proposals.map(
        (proposal) => html`<li key=${proposal.client_id} class="proposal">
          <div>
            <a class="id" href=${href("clients", proposal.client_id)}>${proposal.client_id}</a>
            <span class="muted"> ${proposal.detector}, score ${format_number(proposal.score)}, limit ${format_number(proposal.threshold)}, round ${proposal.round}, ${format_relative_time(proposal.at)}; dismissed in round ${proposal.until} unless an operator decides before</span>
            <p>${proposal.reason}</p>
          </div>
          <div class="actions">
            <${ActionButton} action=${actions.confirm_eviction(store.run_id, proposal.client_id)} on_success=${refresh} />
            <${ActionButton} action=${actions.dismiss_proposal(store.run_id, proposal.client_id)} on_success=${refresh} />
          </div>
        </li>`,
      )}
    </ul>
  </section>`;
}
