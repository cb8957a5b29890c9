/** The audit log: operators' actions, when and why. */

import { html, useState } from "../vendor/preact.js";
import { useAudit } from "../audit_log.js";
import { clock, plural, short } from "../format.js";
import { Failure } from "../widgets.js";

const SHOWN = 500;

export function AuditView() {
  const { entries, error } = useAudit();
  const [filter, write] = useState("");
  const wanted = filter.trim().toLowerCase();
  const found = entries.filter((entry) => !wanted || text(entry).toLowerCase().includes(wanted));
  const head = entries.length ? entries[entries.length - 1].hash : "";
  return html`
    <div class="heading">
      <h1>Audit log</h1>
      <p class="muted">${plural(entries.length, "entry").replace("entrys", "entries")}${head && html`, head <code title=${head}>${short(head)}</code>`}. <code>rampart audit --verify</code> checks that no entry was altered.</p>
      <input type="search" aria-label="Filter the log" placeholder="Filter, such as evict" value=${filter}
        onInput=${(/** @type {any} */ event) => write(event.target.value)} />
    </div>
    <${Failure} error=${error} />
    <section class="panel" aria-label="Entries"><${AuditLines} entries=${found.slice(-SHOWN).reverse()} label="Actions, newest first" tall=${true} /></section>
  `;
}

/** @param {{entries: any[], label: string, tall?: boolean}} props */
export function AuditLines({ entries, label, tall = false }) {
  if (!entries.length) return html`<p class="empty">No operator has taken an action yet.</p>`;
  return html`<ol class=${`log ${tall ? "tall" : ""}`} tabindex="0" aria-label=${label}>
    ${entries.map(
      (entry) => html`<li key=${entry.number}>
        <time dateTime=${entry.time}>${clock(Date.parse(entry.time) / 1000)}</time>
        <span class="event">${entry.act}</span>
        <span><b>${entry.actor}</b> <span class="id">${entry.target}</span>${entry.details.run && html` <span class="muted">in ${entry.details.run}</span>`}${entry.details.mode && html` to ${entry.details.mode}`}<br /><span class="muted">${entry.reason}</span></span>
      </li>`,
    )}
  </ol>`;
}

/** @param {any} entry */
function text(entry) {
  return `${entry.actor} ${entry.act} ${entry.target} ${entry.reason} ${JSON.stringify(entry.details)}`;
}
