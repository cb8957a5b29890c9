/** Small components shared by several views. */

import { html } from "./vendor/preact.js";
import { DECISIONS } from "./decisions.js";

/** @param {{state: string}} props */
export function State({ state }) {
  return html`<span class=${`state ${state}`}>${state}</span>`;
}

/** @param {{name: string}} props */
export function DecisionMark({ name }) {
  const known = DECISIONS.some((decision) => decision.name === name);
  return html`<span class="decision"><i class=${`cell ${known ? name : "none"}`} aria-hidden="true"></i>${name}</span>`;
}

/** @param {{of: number, done: number, label: string}} props */
export function Bar({ of, done, label }) {
  return html`<progress max=${Math.max(1, of)} value=${Math.min(done, of)} aria-label=${label}></progress>`;
}

/** @param {{error: string}} props */
export function Failure({ error }) {
  return error ? html`<p class="error" role="alert">${error}</p>` : null;
}

/**
 * One fact with its name.
 *
 * @param {{name: string, children?: any, title?: string}} props
 */
export function Fact({ name, children, title }) {
  return html`<div class="fact" title=${title}><dt>${name}</dt><dd>${children}</dd></div>`;
}
