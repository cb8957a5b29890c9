/** Small components shared by several views. */

import { html } from "./vendor/preact.js";
import { DECISIONS } from "./decisions.js";

/** @param {{state: string}} props */
export function RunState({ state }) {
  return html`<span class=${`state ${state}`}>${state}</span>`;
}

/** @param {{name: string}} props */
export function DecisionLabel({ name }) {
  const is_known = DECISIONS.some((decision) => decision.name === name);
  return html`<span class="decision"><i class=${`cell ${is_known ? name : "none"}`} aria-hidden="true"></i>${name}</span>`;
}

/** @param {{total: number, completed: number, label: string}} props */
export function ProgressBar({ total, completed, label }) {
  return html`<progress max=${Math.max(1, total)} value=${Math.min(completed, total)} aria-label=${label}></progress>`;
}

/** @param {{error: string}} props */
export function ErrorMessage({ error }) {
  return error ? html`<p class="error" role="alert">${error}</p>` : null;
}

/**
 * The name and the value of one property of a run, a round or a client.
 *
 * @param {{name: string, children?: any, title?: string}} props
 */
export function SummaryItem({ name, children, title }) {
  return html`<div class="fact" title=${title}><dt>${name}</dt><dd>${children}</dd></div>`;
}
