/** The page after signing in: the navigation, and the view for the current route. */

import { html, useEffect } from "./vendor/preact.js";
import { ActionDialog } from "./action_dialog.js";
import { useSession } from "./hooks.js";
import { href, useRoute } from "./router.js";
import { AuditView } from "./views/audit.js";
import { ClientView } from "./views/client.js";
import { ClientsView } from "./views/clients.js";
import { RoundView } from "./views/round.js";
import { RunView } from "./views/run.js";
import { RunsView } from "./views/runs.js";

/**
 * The view for a route.
 *
 * @param {string[]} route
 */
function view_for(route) {
  const [section, id, subsection, round] = route;
  if (section === "runs" && id && subsection === "rounds" && /^\d+$/.test(round || "")) {
    return html`<${RoundView} key=${`${id}/${round}`} run_id=${id} round=${Number(round)} />`;
  }
  if (section === "runs" && id) return html`<${RunView} key=${id} run_id=${id} />`;
  if (section === "clients" && id) return html`<${ClientView} key=${id} client_id=${id} />`;
  if (section === "clients") return html`<${ClientsView} />`;
  if (section === "audit") return html`<${AuditView} />`;
  return html`<${RunsView} />`;
}

const NAVIGATION_LINKS = [
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
  const current_section = route[0] || "runs";
  return html`
    <a class="skip" href="#content" onClick=${skip_to_content}>Skip to the content</a>
    <header class="top">
      <a class="brand" href=${href("runs")}><img src="/assets/icon.svg" alt="" width="20" height="20" />Rampart</a>
      <nav aria-label="Views">
        ${NAVIGATION_LINKS.map(([target, label]) => html`<a key=${target} href=${href(target)} aria-current=${target === current_section ? "page" : undefined}>${label}</a>`)}
      </nav>
      <p class="who"><b>${session.name}</b> <span class="muted">${session.is_operator ? "operator" : "viewer"}</span></p>
      <button type="button" class="quiet" onClick=${() => session.sign_out("")}>Sign out</button>
    </header>
    <main id="content" tabindex="-1">${view_for(route)}</main>
    <footer>
      Everybody with an operator's or a viewer's token sees each client's id, the time of its last request, the verdicts
      on the client with their evidence, and the metrics that the client reports. The page shows no training data. An
      operator may also download the models.
    </footer>
    <${ActionDialog} />
  `;
}

/** @param {Event} event */
function skip_to_content(event) {
  event.preventDefault(); // Following the link would replace the route in the address.
  const content = document.getElementById("content");
  if (content) content.focus();
}
