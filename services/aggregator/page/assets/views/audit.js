/** The audit log: operators' actions, when and why. */

import { html, useState } from "../vendor/preact.js";
import { useAuditLog } from "../audit_log.js";
import { format_time, pluralize, shorten_digest } from "../format.js";
import { ErrorMessage } from "../widgets.js";

const MAX_ENTRIES_SHOWN = 500;

export function AuditView() {
  const { entries, error } = useAuditLog();
  const [filter, set_filter] = useState("");
  const query = filter.trim().toLowerCase();
  const matches = entries.filter((entry) => !query || searchable_text(entry).toLowerCase().includes(query));
  const head_hash = entries.length ? entries[entries.length - 1].hash : "";
  return html`
    <div class="heading">
      <h1>Audit log</h1>
      <p class="muted">${pluralize(entries.length, "entry").replace("entrys", "entries")}${head_hash && html`, head <code title=${head_hash}>${shorten_digest(head_hash)}</code>`}. <code>rampart audit --verify</code> checks that no entry was altered.</p>
      <input type="search" aria-label="Filter the log" placeholder="Filter, such as evict" value=${filter}
        onInput=${(/** @type {any} */ event) => set_filter(event.target.value)} />
    </div>
    <${ErrorMessage} error=${error} />
    <section class="panel" aria-label="Entries"><${AuditEntries} entries=${matches.slice(-MAX_ENTRIES_SHOWN).reverse()} label="Actions, newest first" tall=${true} /></section>
  `;
}

/** @param {{entries: any[], label: string, tall?: boolean}} props */
export function AuditEntries({ entries, label, tall = false }) {
  if (!entries.length) return html`<p class="empty">No operator has taken an action yet.</p>`;
  return html`<ol class=${`log ${tall ? "tall" : ""}`} tabindex="0" aria-label=${label}>
    ${entries.map(
      (entry) => html`<li key=${entry.number}>
        <time dateTime=${entry.time}>${format_time(Date.parse(entry.time) / 1000)}</time>
        <span class="event">${entry.act}</span>
        <span><b>${entry.actor}</b> <span class="id">${entry.target}</span>${entry.details.run && html` <span class="muted">in ${entry.details.run}</span>`}${entry.details.mode && html` to ${entry.details.mode}`}<br /><span class="muted">${entry.reason}</span></span>
      </li>`,
    )}
  </ol>`;
}

/** @param {any} entry */
function searchable_text(entry) {
  return `${entry.actor} ${entry.act} ${entry.target} ${entry.reason} ${JSON.stringify(entry.details)}`;
}
