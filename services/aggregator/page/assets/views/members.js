/** The clients of a run, with buttons for operators' actions. */

import { html, useMemo, useState } from "../vendor/preact.js";
import { acts } from "../acts.js";
import { ActButton } from "../dialog.js";
import { plural } from "../format.js";
import { useTopics } from "../hooks.js";
import { href } from "../router.js";

const SHOWN = 50;
/** States that need no attention: clients in these states come last. */
const CALM = new Set(["online", "offline", "declined"]);

/** @param {{model: import("../run_model.js").RunModel}} props */
export function Members({ model }) {
  const count = useTopics(model, "standing");
  const [filter, write] = useState("");
  const wanted = filter.trim().toLowerCase();
  const found = useMemo(
    () =>
      model.members
        .map((one) => ({ ...one, state: standing(one) }))
        .filter((one) => !wanted || `${one.client_id} ${one.state}`.toLowerCase().includes(wanted))
        .sort((a, b) => Number(CALM.has(a.state)) - Number(CALM.has(b.state)) || (a.client_id < b.client_id ? -1 : 1)),
    [count, wanted],
  );
  const again = () => model.touch("standing", "status");
  return html`<section class="panel below" aria-labelledby="members">
    <div class="panel-head">
      <h2 id="members">Clients <small class="muted">${plural(model.members.length, "client")}</small></h2>
      <input type="search" aria-label="Filter clients" placeholder="Filter, such as evicted" value=${filter}
        onInput=${(/** @type {any} */ event) => write(event.target.value)} />
    </div>
    <div class="table-box" tabindex="0" role="region" aria-label="Clients of the run">
      <table class="stacks">
        <thead><tr><th scope="col">Client</th><th scope="col">Standing</th><th scope="col">Why</th><th scope="col" class="number">Slot</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
        <tbody>
          ${found.slice(0, SHOWN).map(
            (one) => html`<tr key=${one.client_id}>
              <th scope="row"><a class="id" href=${href("clients", one.client_id)}>${one.client_id}</a></th>
              <td>${one.state}</td>
              <td class="why">${String((one.eviction || one.quarantine || {}).reason || one.reason)}</td>
              <td data-label="Slot" class="number">${one.slot ?? "–"}</td>
              <td class="actions">
                ${!model.over &&
                (one.evicted || one.quarantine
                  ? html`<${ActButton} act=${acts.reinstate(model.run, one.client_id)} done=${again} />`
                  : html`<${ActButton} act=${acts.evict(model.run, one.client_id)} done=${again} />`)}
              </td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${found.length > SHOWN && html`<p class="muted">${found.length - SHOWN} more; filter to see them.</p>`}
  </section>`;
}

/** @param {any} member */
export function standing(member) {
  if (member.evicted) return "evicted";
  if (member.quarantine) return member.quarantine.kind === "proposal" ? "proposed" : "quarantined";
  if (member.accept === false && member.slot === null) return "declined";
  return member.online ? "online" : "offline";
}
