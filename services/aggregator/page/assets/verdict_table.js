/** The loaded verdicts: one column of decisions per round, one row per client. */

import { ABSENT, BARRED, DECISIONS, DECLINED, EVICTED, INDEX, LATE, NONE } from "./decisions.js";

export class VerdictTable {
  constructor() {
    /** @type {string[]} */
    this.clients = [];
    /** @type {Map<string, number>} */
    this.row_of = new Map();
    /** @type {number[]} rounds in order, one column each */
    this.rounds = [];
    /** @type {Map<number, Uint8Array>} decisions by round, one per row */
    this.columns = new Map();
    /** @type {Map<number, Float32Array>} scores by round */
    this.scores = new Map();
    /** @type {Set<number>} rows of clients that declined the run */
    this.declined = new Set();
    /** @type {Map<number, number>} the last round in which each row was evicted */
    this.gone = new Map();
    /** @type {number[]} worst severity of each row so far, and how often it was left out */
    this.gravest = [];
    /** @type {number[]} */
    this.times = [];
    /** @type {Map<string, number>} evidence by client when the rows were last sorted */
    this.evidence = new Map();
    /** @type {number[]} rows in display order */
    this.order = [];
  }

  /**
   * @param {string} client
   * @returns {number}
   */
  row(client) {
    let row = this.row_of.get(client);
    if (row === undefined) {
      row = this.clients.length;
      this.clients.push(client);
      this.row_of.set(client, row);
      this.order.push(row);
      this.gravest.push(0);
      this.times.push(0);
    }
    return row;
  }

  /**
   * Adds the rounds of a response of `/verdicts`.
   *
   * @param {{clients: string[], rounds: number[], decisions: string[], scores: string}} matrix
   */
  add(matrix) {
    const rows = matrix.clients.map((client) => this.row(client));
    const scores = floats(matrix.scores);
    const wide = matrix.rounds.length;
    matrix.rounds.forEach((round, column) => {
      const codes = new Uint8Array(this.clients.length).fill(NONE);
      const values = new Float32Array(this.clients.length).fill(NaN);
      rows.forEach((row, index) => {
        codes[row] = INDEX[matrix.decisions[index].charCodeAt(column)];
        const { severity } = DECISIONS[codes[row]];
        if (severity > this.gravest[row]) this.gravest[row] = severity;
        if (severity > 1) this.times[row] += 1;
        if (codes[row] === EVICTED) this.gone.set(row, Math.max(round, this.gone.get(row) ?? 0));
        values[row] = scores[index * wide + column];
      });
      if (!this.columns.has(round)) this.rounds.push(round);
      this.columns.set(round, codes);
      this.scores.set(round, values);
    });
    const last = this.rounds.length - wide - 1;
    if (last >= 0 && wide && this.rounds[last] > matrix.rounds[0]) this.rounds.sort((a, b) => a - b);
  }

  /**
   * Marks an absent client as late in a loaded round.
   *
   * @param {string} client
   * @param {number} round
   */
  mark_late(client, round) {
    const [codes, row] = [this.columns.get(round), this.row_of.get(client)];
    if (codes && row !== undefined && codes[row] === ABSENT) codes[row] = LATE;
  }

  /**
   * Index of a decision in `DECISIONS`.
   *
   * @param {number} row
   * @param {number} column
   */
  at(row, column) {
    if (this.declined.has(row)) return DECLINED;
    const codes = /** @type {Uint8Array} */ (this.columns.get(this.rounds[column]));
    const code = row < codes.length ? codes[row] : NONE;
    return code === NONE && this.rounds[column] > (this.gone.get(row) ?? Infinity) ? BARRED : code;
  }

  /**
   * @param {number} row
   * @param {number} column
   * @returns {number} NaN if there is none
   */
  score(row, column) {
    const values = this.scores.get(this.rounds[column]);
    return values && row < values.length ? values[row] : NaN;
  }

  /** Sorts clients by worst decision, then evidence, then how often they were left out. */
  sort() {
    const { gravest, times } = this;
    const barred = (/** @type {number} */ row) => (gravest[row] > 3 ? gravest[row] : 0);
    const proof = this.clients.map((client) => this.evidence.get(client) ?? -Infinity);
    this.order.sort(
      (a, b) =>
        barred(b) - barred(a) ||
        (proof[a] === proof[b] ? 0 : proof[b] - proof[a]) ||
        times[b] - times[a] ||
        (this.clients[a] < this.clients[b] ? -1 : 1),
    );
  }
}

/**
 * @param {string} text base64 of little-endian float32
 * @returns {Float32Array}
 */
function floats(text) {
  if ("fromBase64" in Uint8Array) {
    return new Float32Array(/** @type {any} */ (Uint8Array).fromBase64(text).buffer);
  }
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i += 1) bytes[i] = binary.charCodeAt(i);
  return new Float32Array(bytes.buffer);
}
