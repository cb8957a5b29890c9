/** The decisions and scores of the loaded rounds: one row per client, one column per round. */

import { ABSENT, BARRED, DECISIONS, DECISION_INDEX_BY_CODE, DECLINED, EVICTED, LATE, NONE } from "./decisions.js";

export class VerdictTable {
  constructor() {
    /** @type {string[]} */
    this.clients = [];
    /** @type {Map<string, number>} */
    this.row_by_client = new Map();
    /** @type {number[]} rounds in order, one column each */
    this.rounds = [];
    /** @type {Map<number, Uint8Array>} by round: for each row, the decision's index in `DECISIONS` */
    this.decisions_by_round = new Map();
    /** @type {Map<number, Float32Array>} by round: for each row, the score */
    this.scores_by_round = new Map();
    /** @type {Set<number>} rows of clients that declined the run */
    this.declined_rows = new Set();
    /** @type {Map<number, number>} by row: the newest round in which the row's client was evicted */
    this.eviction_round_by_row = new Map();
    /** @type {number[]} for each row, the highest severity of its decisions */
    this.worst_severity = [];
    /** @type {number[]} for each row, the number of rounds that excluded the client's update */
    this.exclusion_count = [];
    /** @type {Map<string, number>} evidence by client, from the round by which the rows are sorted */
    this.evidence_by_client = new Map();
    /** @type {number[]} rows in display order */
    this.row_order = [];
  }

  /**
   * The client's row; adds a row for a new client.
   *
   * @param {string} client_id
   * @returns {number}
   */
  ensure_row(client_id) {
    let row = this.row_by_client.get(client_id);
    if (row === undefined) {
      row = this.clients.length;
      this.clients.push(client_id);
      this.row_by_client.set(client_id, row);
      this.row_order.push(row);
      this.worst_severity.push(0);
      this.exclusion_count.push(0);
    }
    return row;
  }

  /**
   * Adds the rounds of a response from `/verdicts`.
   *
   * @param {{clients: string[], rounds: number[], decisions: string[], scores: string}} matrix
   */
  add_rounds(matrix) {
    const rows = matrix.clients.map((client_id) => this.ensure_row(client_id));
    const scores = decode_float32(matrix.scores);
    const round_count = matrix.rounds.length;
    matrix.rounds.forEach((round, column) => {
      const is_new = !this.decisions_by_round.has(round); // The page may load a round again after a failure.
      const decisions = new Uint8Array(this.clients.length).fill(NONE);
      const round_scores = new Float32Array(this.clients.length).fill(NaN);
      rows.forEach((row, index) => {
        decisions[row] = DECISION_INDEX_BY_CODE[matrix.decisions[index].charCodeAt(column)];
        const { severity } = DECISIONS[decisions[row]];
        if (severity > this.worst_severity[row]) this.worst_severity[row] = severity;
        if (severity > 1 && is_new) this.exclusion_count[row] += 1;
        if (decisions[row] === EVICTED) this.eviction_round_by_row.set(row, Math.max(round, this.eviction_round_by_row.get(row) ?? 0));
        round_scores[row] = scores[index * round_count + column];
      });
      if (is_new) this.rounds.push(round);
      this.decisions_by_round.set(round, decisions);
      this.scores_by_round.set(round, round_scores);
    });
    const last_known_index = this.rounds.length - round_count - 1;
    if (last_known_index >= 0 && round_count && this.rounds[last_known_index] > matrix.rounds[0]) this.rounds.sort((a, b) => a - b);
  }

  /**
   * Marks an absent client as late in a loaded round.
   *
   * @param {string} client_id
   * @param {number} round
   */
  mark_late(client_id, round) {
    const [decisions, row] = [this.decisions_by_round.get(round), this.row_by_client.get(client_id)];
    if (decisions && row !== undefined && decisions[row] === ABSENT) decisions[row] = LATE;
  }

  /**
   * The index of a cell's decision in `DECISIONS`.
   *
   * @param {number} row
   * @param {number} column
   */
  decision_at(row, column) {
    if (this.declined_rows.has(row)) return DECLINED;
    const decisions = /** @type {Uint8Array} */ (this.decisions_by_round.get(this.rounds[column]));
    const decision = row < decisions.length ? decisions[row] : NONE;
    return decision === NONE && this.rounds[column] > (this.eviction_round_by_row.get(row) ?? Infinity) ? BARRED : decision;
  }

  /**
   * @param {number} row
   * @param {number} column
   * @returns {number} the score of a cell; NaN if there is none
   */
  score_at(row, column) {
    const round_scores = this.scores_by_round.get(this.rounds[column]);
    return round_scores && row < round_scores.length ? round_scores[row] : NaN;
  }

  /** Sorts the rows: barred clients first, then by evidence, then by number of exclusions (highest first). */
  sort() {
    const { worst_severity, exclusion_count } = this;
    const barred_severity = (/** @type {number} */ row) => (worst_severity[row] > 3 ? worst_severity[row] : 0);
    const evidence = this.clients.map((client) => this.evidence_by_client.get(client) ?? -Infinity);
    this.row_order.sort(
      (row_a, row_b) =>
        barred_severity(row_b) - barred_severity(row_a) ||
        (evidence[row_a] === evidence[row_b] ? 0 : evidence[row_b] - evidence[row_a]) ||
        exclusion_count[row_b] - exclusion_count[row_a] ||
        (this.clients[row_a] < this.clients[row_b] ? -1 : 1),
    );
  }
}

/**
 * @param {string} base64 base64 of little-endian float32
 * @returns {Float32Array}
 */
function decode_float32(base64) {
  if ("fromBase64" in Uint8Array) {
    return new Float32Array(/** @type {any} */ (Uint8Array).fromBase64(base64).buffer);
  }
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i += 1) bytes[i] = binary.charCodeAt(i);
  return new Float32Array(bytes.buffer);
}
