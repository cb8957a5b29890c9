/** Evictions that wait for an operator. */

import { html } from "../vendor/preact.js";
import { acts } from "../acts.js";
import { ActButton } from "../dialog.js";
import { number, plural, relative } from "../format.js";
import { useTopics } from "../hooks.js";
import { href } from "../router.js";

/** @param {{model: import("../run_model.js").RunModel}} props */
export function Proposals({ model }) {
  useTopics(model, "standing");
  if (!model.proposals.length) return null;
  const again = () => model.touch("standing", "status");
  return html`<section class="panel urgent" aria-labelledby="proposals">
    <h2 id="proposals">${plural(model.proposals.length, "proposal")} to evict</h2>
    <ul class="plain">
      ${model.proposals.map(
        (one) => html`<li key=${one.client_id} class="proposal">
          <div>
            <a class="id" href=${href("clients", one.client_id)}>${one.client_id}</a>
            <span class="muted"> ${one.detector}, score ${number(one.score)}, limit ${number(one.threshold)}, round ${one.round}, ${relative(one.at)}; dismissed in round ${one.until} unless an operator decides</span>
            <p>${one.reason}</p>
          </div>
          <div class="actions">
            <${ActButton} act=${acts.confirm(model.run, one.client_id)} done=${again} />
            <${ActButton} act=${acts.dismiss(model.run, one.client_id)} done=${again} />
          </div>
        </li>`,
      )}
    </ul>
  </section>`;
}
