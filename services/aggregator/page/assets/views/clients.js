/** All clients of the federation. */

import { html, useState } from "../vendor/preact.js";
import { get_all_clients } from "../api.js";
import { format_relative_time, format_time, pluralize } from "../format.js";
import { useFetch } from "../hooks.js";
import { href } from "../router.js";
import { ErrorMessage } from "../widgets.js";

const MAX_CLIENTS_SHOWN = 200;

export function ClientsView() {
  const { data, error } = useFetch("/v1/clients", 5000, get_all_clients);
  const [filter, set_filter] = useState("");
  const query = filter.trim().toLowerCase();
  const clients = data || [];
  const matches = clients.filter((/** @type {any} */ client) => !query || searchable_text(client).includes(query));
  return html`
    <div class="heading">
      <h1>Clients</h1>
      <p class="muted">${data ? `${pluralize(clients.length, "client")}, ${clients.filter((/** @type {any} */ client) => client.online).length} online` : "Loading…"}</p>
      <input type="search" aria-label="Filter clients" placeholder="Filter by id, label or software" value=${filter}
        onInput=${(/** @type {any} */ event) => set_filter(event.target.value)} />
    </div>
    <${ErrorMessage} error=${error} />
    <div class="table-box" tabindex="0" role="region" aria-label="Clients">
      <table class="stacks">
        <thead><tr><th scope="col">Client</th><th scope="col">Liveness</th><th scope="col">Last request</th><th scope="col">Software</th><th scope="col">Labels</th><th scope="col">Registered</th><th scope="col">Token</th></tr></thead>
        <tbody>
          ${matches.slice(0, MAX_CLIENTS_SHOWN).map(
            (/** @type {any} */ client) => html`<tr key=${client.client_id}>
              <th scope="row"><a class="id" href=${href("clients", client.client_id)}>${client.client_id}</a></th>
              <td>${client.barred ? html`<span class="alarm">barred</span>` : client.online ? html`<span class="good">online</span>` : html`<span class="muted">offline</span>`}</td>
              <td data-label="Last request">${format_relative_time(client.last_seen)}</td>
              <td data-label="Software">${client.software || "–"}</td>
              <td data-label="Labels">${Object.entries(client.labels).map(([key, value]) => `${key}=${value}`).join(", ") || "–"}</td>
              <td data-label="Registered">${format_time(client.registered_at)}</td>
              <td data-label="Token">${token_status(client)}</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${matches.length > MAX_CLIENTS_SHOWN && html`<p class="muted">${matches.length - MAX_CLIENTS_SHOWN} more; filter to see them.</p>`}
  `;
}

/** @param {any} client */
export function token_status(client) {
  if (client.token_expires_at === null) return "revoked";
  return client.token_expires_at < Date.now() / 1000 ? "expired" : `expires ${format_relative_time(client.token_expires_at)}`;
}

/** @param {any} client */
function searchable_text(client) {
  return `${client.client_id} ${client.software} ${Object.entries(client.labels).join(" ")} ${client.barred ? "barred" : ""}`.toLowerCase();
}
