/** The clients of a run, with buttons for operators' actions. */

import { html, useMemo, useState } from "../vendor/preact.js";
import { actions } from "../actions.js";
import { ActionButton } from "../action_dialog.js";
import { pluralize } from "../format.js";
import { useStoreTopics } from "../hooks.js";
import { href } from "../router.js";

const MAX_MEMBERS_SHOWN = 50;
/** States that need no attention. Clients in these states come last. */
const NORMAL_STATES = new Set(["online", "offline", "declined"]);

/** @param {{store: import("../run_store.js").RunStore}} props */
export function RunMembers({ store }) {
  const version = useStoreTopics(store, "members");
  useStoreTopics(store, "status"); // After the end of the run, other actions are possible.
  const [filter, set_filter] = useState("");
  const query = filter.trim().toLowerCase();
  const matches = useMemo(
    () =>
      store.members
        .map((member) => ({ ...member, state: member_state(member) }))
        .filter((member) => !query || `${member.client_id} ${member.state}`.toLowerCase().includes(query))
        .sort((a, b) => Number(NORMAL_STATES.has(a.state)) - Number(NORMAL_STATES.has(b.state)) || (a.client_id < b.client_id ? -1 : 1)),
    [version, query],
  );
  const refresh = () => store.mark_stale("members", "status");
  return html`<section class="panel below" aria-labelledby="members">
    <div class="panel-head">
      <h2 id="members">Clients <small class="muted">${pluralize(store.members.length, "client")}</small></h2>
      <input type="search" aria-label="Filter clients" placeholder="Filter, such as evicted" value=${filter}
        onInput=${(/** @type {any} */ event) => set_filter(event.target.value)} />
    </div>
    <div class="table-box" tabindex="0" role="region" aria-label="Clients of the run">
      <table class="stacks">
        <thead><tr><th scope="col">Client</th><th scope="col">Standing</th><th scope="col">Why</th><th scope="col" class="number">Slot</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
        <tbody>
          ${matches.slice(0, MAX_MEMBERS_SHOWN).map(
            (member) => html`<tr key=${member.client_id}>
              <th scope="row"><a class="id" href=${href("clients", member.client_id)}>${member.client_id}</a></th>
              <td>${member.state}</td>
              <td class="why">${String((member.barred || member.eviction || member.quarantine || {}).reason || member.reason)}</td>
              <td data-label="Slot" class="number">${member.slot ?? "–"}</td>
              <td class="actions"><${MemberAction} store=${store} member=${member} refresh=${refresh} /></td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${matches.length > MAX_MEMBERS_SHOWN && html`<p class="muted">${matches.length - MAX_MEMBERS_SHOWN} more; filter to see them.</p>`}
  </section>`;
}

/** @param {{store: import("../run_store.js").RunStore, member: any, refresh: () => void}} props */
function MemberAction({ store, member, refresh }) {
  const { run_id } = store;
  const { client_id } = member;
  if (store.has_ended) return member.evicted && html`<${ActionButton} action=${actions.reinstate_after_end(run_id, client_id)} on_success=${refresh} />`;
  const action = member.evicted || member.quarantine ? actions.reinstate_client(run_id, client_id) : actions.evict_client(run_id, client_id);
  return html`<${ActionButton} action=${action} on_success=${refresh} />`;
}

/** @param {any} member */
export function member_state(member) {
  if (member.barred) return "barred";
  if (member.evicted) return "evicted";
  if (member.quarantine) return member.quarantine.kind === "proposal" ? "proposed" : "quarantined";
  if (member.abstained) return "abstained";
  if (member.accept === false && member.slot === null) return "declined";
  return member.online ? "online" : "offline";
}
