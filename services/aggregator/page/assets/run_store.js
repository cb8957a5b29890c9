/** The page's data about one run: loads its past rounds, and follows its events. */

import { ApiError, get_json, is_refusal, null_if_refused } from "./api.js";
import { follow_events } from "./event_stream.js";
import { VerdictTable } from "./verdict_table.js";

/** Maximum number of rounds in one response. */
const ROUNDS_PER_REQUEST = 100;
/** Minimum time between two refreshes of the data. */
const REFRESH_INTERVAL_MS = 400;
/** While a run has no events, the data is refreshed after this many ticks of the server, one every 2 s. */
const TICKS_PER_REFRESH = 5;
/** Time after which the store repeats a failed request. */
const RETRY_DELAY_MS = 2000;
/** The store keeps only this many of the newest events. */
const MAX_EVENTS = 5000;
/** States of runs that have ended. */
const FINAL_STATES = new Set(["finished", "failed", "cancelled"]);
/** Topics that `notify` reports at once, because a `refresh` may wait long for a stalled network. */
const PROMPT_TOPICS = new Set(["connection", "events"]);
/** Types of events after which a round has ended. */
const ROUND_END_EVENTS = new Set(["published", "failed", "evaluating", "ended"]);
/** Types of events that change which clients are barred, or which clients take part. */
const MEMBERSHIP_EVENTS = new Set(["evicted", "quarantined", "proposed", "confirmed", "dismissed", "reinstated", "released", "slots_assigned", "accepted", "declined"]);

/**
 * Holds the data about one run, and dispatches an event for each change. The event's type is the topic:
 * `status`, `verdicts`, `clients`, `row_order`, `summaries`, `members`, `events` or `connection`.
 */
export class RunStore extends EventTarget {
  /** @param {string} run_id */
  constructor(run_id) {
    super();
    this.run_id = run_id;
    /** @type {any} */
    this.run_info = null;
    /** @type {any} */
    this.round_status = null;
    /** @type {any[]} */
    this.proposals = [];
    /** @type {any[]} */
    this.members = [];
    /** @type {any[]} the summaries of the loaded rounds, which the API calls figures, oldest first */
    this.summaries = [];
    this.verdict_table = new VerdictTable();
    /** @type {import("./event_stream.js").RunEvent[]} */
    this.events = [];
    this.connection_error = "";
    /** Whether the API refused the events; if so, the page does not connect again. */
    this.events_are_refused = false;
    this.error = "";
    /** Whether the API refused the previous request; if so, repeating the request cannot help. */
    this.error_is_permanent = false;
    this.abort_controller = new AbortController();
    /** Aborts the requests of the current `refresh`. */
    this.refresh_controller = new AbortController();
    /** Ends the stream of events. */
    this.stream_controller = new AbortController();
    /** The first round that the next call of `load_new_rounds` loads. */
    this.next_round = 0;
    /** Whether the page has loaded the rounds that were the newest when it opened the run. */
    this.rounds_loaded = false;
    /** Whether the page has also loaded all earlier rounds. */
    this.history_loaded = false;
    /** Parts of the data that must be requested again. */
    this.stale = { status: true, rounds: true, members: true };
    this.is_refreshing = false;
    this.tick_count = 0;
    /** @type {Set<string> | null} topics that `refresh` reports when it ends; null while no `refresh` runs */
    this.deferred_topics = null;
    this.load_and_follow();
  }

  close() {
    this.abort_controller.abort();
    this.refresh_controller.abort();
    this.stream_controller.abort();
  }

  /**
   * @param {string} path a path below the run's path
   * @param {AbortSignal} [signal]
   */
  get_json(path, signal = this.abort_controller.signal) {
    return get_json(`/v1/runs/${this.run_id}${path}`, signal);
  }

  /**
   * Dispatches one event per topic. A `refresh` defers most events to its end, so that the page renders
   * only once.
   *
   * @param {...string} topics
   */
  notify(...topics) {
    for (const topic of topics) {
      if (this.deferred_topics && !PROMPT_TOPICS.has(topic)) this.deferred_topics.add(topic);
      else this.dispatchEvent(new Event(topic));
    }
  }

  /** Loads the run, and follows its events. Stops on `close`, or when the run has ended and all its data is loaded. */
  async load_and_follow() {
    while (!this.run_info) {
      this.stale = { status: true, rounds: true, members: true };
      await this.refresh();
      if (!this.run_info && !(await this.wait_to_retry())) return;
    }
    if (this.abort_controller.signal.aborted) return;
    const listener = {
      on_events: (/** @type {import("./event_stream.js").RunEvent[]} */ events) => this.receive_events(events),
      on_connection_change: (/** @type {string} */ connection_error) => this.change_connection(connection_error),
      on_tick: () => {
        // Browsers open only about six connections to a host, so close the stream of a run that no longer changes.
        if (this.is_complete) this.stream_controller.abort();
        // No event of the run says that clients went offline, or that a queued run was cancelled.
        else if (++this.tick_count % TICKS_PER_REFRESH === 0) this.mark_stale("status", "members");
      },
      on_refusal: (/** @type {string} */ detail) => {
        this.events_are_refused = true;
        this.change_connection(detail);
      },
    };
    follow_events(this.run_id, listener, this.stream_controller.signal);
    await this.load_history();
  }

  /** @param {string} connection_error "" after connecting, or the reason why the connection is lost */
  change_connection(connection_error) {
    if (this.connection_error !== connection_error) {
      this.connection_error = connection_error;
      this.notify("connection");
    }
    if (connection_error) this.refresh_controller.abort();
    else this.mark_stale("status", "rounds", "members");
  }

  /** Loads the verdicts and summaries of earlier rounds, newest first. */
  async load_history() {
    const newest_round = this.round_status ? this.round_status.round : -1;
    for (let first_round = Math.max(0, newest_round - ROUNDS_PER_REQUEST + 1), last_round = newest_round; last_round >= 0; last_round = first_round - 1, first_round = Math.max(0, last_round - ROUNDS_PER_REQUEST + 1)) {
      while (!(await this.load_old_rounds(first_round, last_round))) if (!(await this.wait_to_retry())) return;
      if (last_round === newest_round) {
        this.next_round = Math.max(this.next_round, this.get_newest_round() + 1);
        this.rounds_loaded = true;
        await this.sort_by_evidence();
      }
      if (first_round === 0) break;
    }
    this.rounds_loaded = true;
    this.history_loaded = true;
    this.sort_rows();
    this.mark_stale("rounds");
  }

  /**
   * Loads some rounds of the history, and handles an error.
   *
   * @param {number} first_round
   * @param {number} last_round
   * @returns {Promise<boolean>} whether all responses arrived
   */
  async load_old_rounds(first_round, last_round) {
    try {
      await this.load_rounds(first_round, last_round, this.abort_controller.signal);
      return true;
    } catch (error) {
      this.handle_error(error);
      return false;
    }
  }

  /** The newest loaded round; -1 if there is none. */
  get_newest_round() {
    const { rounds } = this.verdict_table;
    return rounds.length ? rounds[rounds.length - 1] : -1;
  }

  /**
   * Loads the verdicts and summaries of some rounds.
   *
   * @param {number} first_round
   * @param {number} last_round
   * @param {AbortSignal} signal
   */
  async load_rounds(first_round, last_round, signal) {
    const matrix = await this.get_json(`/verdicts?from=${first_round}&to=${last_round}`, signal);
    // A round may end between the two requests, so request the summaries of exactly the rounds in the matrix.
    const { rounds } = matrix;
    const summaries = rounds.length ? await this.get_json(`/figures?from=${rounds[0]}&limit=${rounds[rounds.length - 1] - rounds[0] + 1}`, signal) : [];
    const known_client_count = this.verdict_table.rounds.length ? this.verdict_table.clients.length : -1;
    this.verdict_table.add_rounds(matrix);
    this.notify("verdicts", ...(this.verdict_table.clients.length > known_client_count ? ["clients"] : []));
    this.add_summaries(summaries);
  }

  /** @param {any[]} summaries the rounds must be all older or all newer than the loaded rounds */
  add_summaries(summaries) {
    const is_older = this.summaries.length && summaries.length && summaries[0].round < this.summaries[0].round;
    this.summaries = is_older ? [...summaries, ...this.summaries] : [...this.summaries, ...summaries];
    this.notify("summaries");
  }

  /** @param {unknown} error */
  handle_error(error) {
    if (this.abort_controller.signal.aborted) return;
    this.error_is_permanent = is_refusal(error);
    this.error = error instanceof ApiError ? error.message : String(error);
    this.notify("status");
  }

  /** Waits after a failure, because the aggregator may be restarting; returns whether to repeat the request. */
  async wait_to_retry() {
    if (!this.error_is_permanent) await new Promise((resolve) => setTimeout(resolve, RETRY_DELAY_MS));
    return !this.error_is_permanent && !this.abort_controller.signal.aborted;
  }

  /** @param {import("./event_stream.js").RunEvent[]} events */
  receive_events(events) {
    if (!events.length) return;
    this.events.push(...events);
    if (this.events.length > MAX_EVENTS) this.events.splice(0, this.events.length - MAX_EVENTS);
    this.notify("events");
    const late_events = events.filter((event) => event.type === "late");
    for (const event of late_events) this.verdict_table.mark_late(event.data.client, Number(event.data.round));
    if (late_events.length) this.notify("verdicts");
    this.mark_stale(
      "status",
      ...(events.some((event) => ROUND_END_EVENTS.has(event.type)) ? ["rounds"] : []),
      ...(events.some((event) => MEMBERSHIP_EVENTS.has(event.type)) ? ["members"] : []),
    );
  }

  /**
   * Marks parts of the data as stale, and requests them soon.
   *
   * @param {...string} parts keys of `stale`
   */
  mark_stale(...parts) {
    for (const part of parts) this.stale[/** @type {"status"} */ (part)] = true;
    if (this.is_refreshing) return;
    this.is_refreshing = true;
    const refresh_until_current = async () => {
      while (Object.values(this.stale).some(Boolean) && !this.abort_controller.signal.aborted && !this.connection_error) {
        const delay_ms = (await this.refresh()) ? REFRESH_INTERVAL_MS : RETRY_DELAY_MS;
        if (!this.connection_error) await new Promise((resolve) => setTimeout(resolve, delay_ms));
      }
      this.is_refreshing = false;
    };
    refresh_until_current();
  }

  /**
   * Requests the stale parts of the data. Parts that could not be loaded become stale again, unless the API
   * refused the request.
   *
   * @returns {Promise<boolean>} whether all parts were loaded
   */
  async refresh() {
    const parts = this.stale;
    let is_complete = false;
    this.stale = { status: false, rounds: false, members: false };
    this.deferred_topics = new Set();
    this.refresh_controller = new AbortController();
    const { signal } = this.refresh_controller;
    try {
      if (parts.status) {
        this.round_status = await this.get_json("/rounds/current", signal).catch(null_if_refused);
        // The run's entry changes only if the run's state changes, or if the run waits for something else.
        if (!this.round_status || !this.run_info || this.run_info.waits_for !== this.round_status.waits_for || this.run_info.state !== this.round_status.status || this.has_ended) this.run_info = await this.get_json("", signal);
        parts.status = false;
        this.notify("status");
      }
      if (parts.members) {
        this.proposals = (await this.get_json("/proposals", signal).catch(null_if_refused)) ?? [];
        this.members = await this.get_json("/members", signal);
        this.mark_declined_clients();
        parts.members = false;
        this.notify("members");
      }
      if (parts.rounds && this.rounds_loaded) await this.load_new_rounds(signal);
      is_complete = true;
      this.error = "";
      this.notify("status");
    } catch (error) {
      if (!signal.aborted) this.handle_error(error);
      if (!is_refusal(error)) {
        this.stale = { status: this.stale.status || parts.status, rounds: this.stale.rounds || parts.rounds, members: this.stale.members || parts.members };
      }
    }
    const topics = [...this.deferred_topics];
    this.deferred_topics = null;
    this.notify(...topics);
    return is_complete;
  }

  /** @param {AbortSignal} signal */
  async load_new_rounds(signal) {
    if (!this.round_status) return;
    while (this.next_round <= this.round_status.round) {
      const known_client_count = this.verdict_table.clients.length;
      const last_round = Math.min(this.round_status.round, this.next_round + ROUNDS_PER_REQUEST - 1);
      await this.load_rounds(this.next_round, last_round, signal);
      if (this.get_newest_round() < this.next_round) return;
      this.next_round = this.get_newest_round() + 1;
      if (this.verdict_table.clients.length > known_client_count || this.newest_round_bars_clients()) this.sort_rows();
    }
  }

  /** Whether the newest round barred a client; if so, the order of rows changes. */
  newest_round_bars_clients() {
    const { decisions } = this.summaries[this.summaries.length - 1];
    return ["evicted", "quarantined", "proposed"].some((name) => decisions[name]);
  }

  mark_declined_clients() {
    for (const member of this.members) {
      if (member.accept === false && member.slot === null) this.verdict_table.declined_rows.add(this.verdict_table.ensure_row(member.client_id));
    }
  }

  /** Loads every client's evidence in the newest round, and sorts the rows again. */
  async sort_by_evidence() {
    const newest_round = this.get_newest_round();
    if (newest_round >= 0) {
      const record = await this.get_json(`/rounds/${newest_round}`).catch(() => null);
      for (const verdict of record ? record.verdicts : []) this.verdict_table.evidence_by_client.set(verdict.client, verdict.evidence);
    }
    this.sort_rows();
  }

  sort_rows() {
    this.verdict_table.sort();
    this.notify("row_order");
  }

  get has_ended() {
    return this.run_info !== null && FINAL_STATES.has(this.run_info.state);
  }

  /** Whether the run has ended and all its data is loaded; some events may not have arrived yet. */
  get is_complete() {
    return this.has_ended && this.history_loaded && !this.is_refreshing && !this.error && !Object.values(this.stale).some(Boolean);
  }
}
