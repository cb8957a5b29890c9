/** All clients of the federation. */

import { html, useState } from "../vendor/preact.js";
import { get_clients } from "../api.js";
import { clock, plural, relative } from "../format.js";
import { useAnswer } from "../hooks.js";
import { href } from "../router.js";
import { Failure } from "../widgets.js";

const SHOWN = 200;

export function ClientsView() {
  const { data, error } = useAnswer("/v1/clients", 5000, get_clients);
  const [filter, write] = useState("");
  const wanted = filter.trim().toLowerCase();
  const clients = data || [];
  const found = clients.filter((/** @type {any} */ one) => !wanted || text(one).includes(wanted));
  return html`
    <div class="heading">
      <h1>Clients</h1>
      <p class="muted">${data ? `${plural(clients.length, "client")}, ${clients.filter((/** @type {any} */ one) => one.online).length} online` : "Loading…"}</p>
      <input type="search" aria-label="Filter clients" placeholder="Filter by id, label or software" value=${filter}
        onInput=${(/** @type {any} */ event) => write(event.target.value)} />
    </div>
    <${Failure} error=${error} />
    <div class="table-box" tabindex="0" role="region" aria-label="Clients">
      <table class="stacks">
        <thead><tr><th scope="col">Client</th><th scope="col">Liveness</th><th scope="col">Last request</th><th scope="col">Software</th><th scope="col">Labels</th><th scope="col">Registered</th><th scope="col">Token</th></tr></thead>
        <tbody>
          ${found.slice(0, SHOWN).map(
            (/** @type {any} */ one) => html`<tr key=${one.client_id}>
              <th scope="row"><a class="id" href=${href("clients", one.client_id)}>${one.client_id}</a></th>
              <td>${one.barred ? html`<span class="alarm">barred</span>` : one.online ? html`<span class="good">online</span>` : html`<span class="muted">offline</span>`}</td>
              <td data-label="Last request">${relative(one.last_seen)}</td>
              <td data-label="Software">${one.software || "–"}</td>
              <td data-label="Labels">${Object.entries(one.labels).map(([key, value]) => `${key}=${value}`).join(", ") || "–"}</td>
              <td data-label="Registered">${clock(one.registered_at)}</td>
              <td data-label="Token">${token(one)}</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${found.length > SHOWN && html`<p class="muted">${found.length - SHOWN} more; filter to see them.</p>`}
  `;
}

/** @param {any} client */
export function token(client) {
  if (client.token_expires_at === null) return "revoked";
  return client.token_expires_at < Date.now() / 1000 ? "expired" : `expires ${relative(client.token_expires_at)}`;
}

/** @param {any} client */
function text(client) {
  return `${client.client_id} ${client.software} ${Object.entries(client.labels).join(" ")} ${client.barred ? "barred" : ""}`.toLowerCase();
}
