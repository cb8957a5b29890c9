/** The page after signing in: navigation, and the view for the current address. */

import { html, useEffect } from "./vendor/preact.js";
import { ActDialog } from "./dialog.js";
import { useSession } from "./hooks.js";
import { href, useRoute } from "./router.js";
import { AuditView } from "./views/audit.js";
import { ClientView } from "./views/client.js";
import { ClientsView } from "./views/clients.js";
import { RoundView } from "./views/round.js";
import { RunView } from "./views/run.js";
import { RunsView } from "./views/runs.js";

/**
 * The view for an address.
 *
 * @param {string[]} route
 */
function view(route) {
  const [kind, name, part, number] = route;
  if (kind === "runs" && name && part === "rounds" && /^\d+$/.test(number || "")) {
    return html`<${RoundView} key=${`${name}/${number}`} run=${name} round=${Number(number)} />`;
  }
  if (kind === "runs" && name) return html`<${RunView} key=${name} run=${name} />`;
  if (kind === "clients" && name) return html`<${ClientView} key=${name} client=${name} />`;
  if (kind === "clients") return html`<${ClientsView} />`;
  if (kind === "audit") return html`<${AuditView} />`;
  return html`<${RunsView} />`;
}

const PLACES = [
  ["runs", "Runs"],
  ["clients", "Clients"],
  ["audit", "Audit"],
];

export function Shell() {
  const session = useSession();
  const route = useRoute();
  useEffect(() => {
    document.title = route[1] ? `${route[1]} – Rampart` : "Rampart";
  }, [route.join("/")]);
  const here = route[0] || "runs";
  return html`
    <a class="skip" href="#content" onClick=${skip}>Skip to the content</a>
    <header class="top">
      <a class="brand" href=${href("runs")}><img src="/assets/icon.svg" alt="" width="20" height="20" />Rampart</a>
      <nav aria-label="Views">
        ${PLACES.map(([place, label]) => html`<a key=${place} href=${href(place)} aria-current=${place === here ? "page" : undefined}>${label}</a>`)}
      </nav>
      <p class="who"><b>${session.name}</b> <span class="muted">${session.acts ? "operator" : "viewer"}</span></p>
      <button type="button" class="quiet" onClick=${() => session.end("")}>Sign out</button>
    </header>
    <main id="content" tabindex="-1">${view(route)}</main>
    <footer>
      Everybody with an operator's or a viewer's token sees each client's id, the time of its last request, the verdicts
      on the client with their evidence, and the metrics that the client reports. The page shows no training data. An
      operator may also download the models.
    </footer>
    <${ActDialog} />
  `;
}

/** @param {Event} event */
function skip(event) {
  event.preventDefault(); // Following the link would replace the view's name in the address.
  const content = document.getElementById("content");
  if (content) content.focus();
}
