/** The page's data about one run: loads its past rounds, and follows its events. */

import { Problem, get } from "./api.js";
import { follow } from "./event_stream.js";
import { VerdictTable } from "./verdict_table.js";

/** Number of rounds in one response while a run is loaded. */
const CHUNK = 100;
/** Minimum time between requests for the run's state, in milliseconds. */
const CALM = 400;
/** Milliseconds until the page repeats a request that failed while it loads a run. */
const RETRY = 2000;
/** Number of events that are kept. */
const KEPT = 5000;
const OVER = new Set(["finished", "failed", "cancelled"]);
/** Events after which a round has ended. */
const ENDS = new Set(["published", "failed", "evaluating", "ended"]);
/** Events that change which clients are barred, or which clients take part. */
const STANDING = new Set(["evicted", "quarantined", "proposed", "confirmed", "dismissed", "reinstated", "released", "seated", "accepted", "declined"]);

/** Reports changes as events of the types `status`, `verdicts`, `rows`, `sorted`, `figures`, `standing`, `events`, `connection`. */
export class RunModel extends EventTarget {
  /** @param {string} run */
  constructor(run) {
    super();
    this.run = run;
    /** @type {any} */
    this.info = null;
    /** @type {any} */
    this.status = null;
    /** @type {any[]} */
    this.proposals = [];
    /** @type {any[]} */
    this.members = [];
    /** @type {any[]} the summaries of the newest rounds, in order */
    this.figures = [];
    this.table = new VerdictTable();
    /** @type {import("./event_stream.js").RunEvent[]} */
    this.events = [];
    this.lost = "";
    this.error = "";
    /** Whether the last error is a refusal, which a repeated request would only repeat. */
    this.refused = false;
    this.abort = new AbortController();
    this.next = 0;
    this.loaded = false;
    this.dirty = { status: true, rounds: true, standing: true };
    this.busy = false;
    /** @type {Set<string> | null} */
    this.told = null;
    this.load();
  }

  close() {
    this.abort.abort();
  }

  /** @param {string} path */
  ask(path) {
    return get(`/v1/runs/${this.run}${path}`, this.abort.signal);
  }

  /**
   * Reports changes. A `refresh` reports only at its end, so that the page renders only once.
   *
   * @param {...string} topics
   */
  tell(...topics) {
    if (this.told) topics.forEach((topic) => this.told?.add(topic));
    else topics.forEach((topic) => this.dispatchEvent(new Event(topic)));
  }

  /** Loads the run, and follows it until `close`. */
  async load() {
    while (!this.info) {
      this.dirty = { status: true, rounds: true, standing: true };
      await this.refresh();
      if (!this.info && !(await this.may_retry())) return;
    }
    if (this.abort.signal.aborted) return;
    const listener = {
      events: (/** @type {import("./event_stream.js").RunEvent[]} */ burst) => this.heard(burst),
      connection: (/** @type {string} */ lost) => {
        if (this.lost !== lost) {
          this.lost = lost;
          this.tell("connection");
        }
        if (!lost) this.touch("status", "rounds", "standing");
      },
    };
    follow(this.run, listener, this.abort.signal);
    await this.load_history();
  }

  /** Loads the verdicts and summaries of earlier rounds, newest first. */
  async load_history() {
    const last = this.status ? this.status.round : -1;
    for (let first = Math.max(0, last - CHUNK + 1), to = last; to >= 0; to = first - 1, first = Math.max(0, to - CHUNK + 1)) {
      while (!(await this.load_rounds(first, to))) if (!(await this.may_retry())) return;
      if (to === last) {
        this.next = Math.max(this.next, this.newest() + 1);
        this.loaded = true;
        await this.sort();
      }
      if (first === 0) break;
    }
    this.loaded = true;
    this.resort();
    this.touch("rounds");
  }

  newest() {
    const { rounds } = this.table;
    return rounds.length ? rounds[rounds.length - 1] : -1;
  }

  /**
   * @param {number} first
   * @param {number} last
   * @returns {Promise<boolean>} whether all responses arrived
   */
  async load_rounds(first, last) {
    try {
      const figures = this.ask(`/figures?from=${first}&limit=${last - first + 1}`);
      figures.catch(() => {}); // The error is handled below; the browser must not report it earlier.
      const matrix = await this.ask(`/verdicts?from=${first}&to=${last}`);
      const before = this.table.rounds.length ? this.table.clients.length : -1;
      this.table.add(matrix);
      this.tell("verdicts", ...(this.table.clients.length > before ? ["rows"] : []));
      this.add_figures(await figures);
      return true;
    } catch (error) {
      this.failed(error);
      return false;
    }
  }

  /** @param {any[]} figures summaries of rounds that are all older or all newer than the known ones */
  add_figures(figures) {
    const older = this.figures.length && figures.length && figures[0].round < this.figures[0].round;
    this.figures = older ? [...figures, ...this.figures] : [...this.figures, ...figures];
    this.tell("figures");
  }

  /** @param {unknown} error */
  failed(error) {
    if (this.abort.signal.aborted) return;
    this.refused = error instanceof Problem && error.status >= 400 && error.status < 500;
    this.error = error instanceof Problem ? error.message : String(error);
    this.tell("status");
  }

  /** Waits after a failure; returns whether to repeat the request, because an aggregator may restart. */
  async may_retry() {
    if (!this.refused) await new Promise((done) => setTimeout(done, RETRY));
    return !this.refused && !this.abort.signal.aborted;
  }

  /** @param {import("./event_stream.js").RunEvent[]} burst */
  heard(burst) {
    if (!burst.length) return;
    this.events.push(...burst);
    if (this.events.length > KEPT) this.events.splice(0, this.events.length - KEPT);
    this.tell("events");
    const late = burst.filter((event) => event.type === "late");
    for (const event of late) this.table.mark_late(event.data.client, Number(event.data.round));
    if (late.length) this.tell("verdicts");
    this.touch(
      "status",
      ...(burst.some((event) => ENDS.has(event.type)) ? ["rounds"] : []),
      ...(burst.some((event) => STANDING.has(event.type)) ? ["standing"] : []),
    );
  }

  /** @param {...string} parts the parts of the state to request again soon */
  touch(...parts) {
    for (const part of parts) this.dirty[/** @type {"status"} */ (part)] = true;
    if (this.busy) return;
    this.busy = true;
    const work = async () => {
      while (Object.values(this.dirty).some(Boolean) && !this.abort.signal.aborted && !this.lost) {
        await this.refresh();
        await new Promise((done) => setTimeout(done, CALM));
      }
      this.busy = false;
    };
    work();
  }

  /** Requests the parts of the state that may have changed. */
  async refresh() {
    const { status, rounds, standing } = this.dirty;
    this.dirty = { status: false, rounds: false, standing: false };
    this.told = new Set();
    try {
      if (status) {
        this.status = await this.ask("/rounds/current").catch((error) => {
          if (error instanceof Problem && error.status && error.status < 500) return null;
          throw error;
        });
        // The other fields of the run's entry change only with its state, and while the run waits.
        if (!this.status || !this.info || this.info.waits_for || this.info.state !== this.status.status || this.over) this.info = await this.ask("");
        this.error = "";
        this.tell("status");
      }
      if (standing) {
        this.proposals = await this.ask("/proposals").catch(() => []);
        this.members = await this.ask("/members");
        this.mark_declined();
        this.tell("standing");
      }
      if (rounds && this.loaded) await this.load_new_rounds();
    } catch (error) {
      this.failed(error);
    }
    const topics = [...this.told];
    this.told = null;
    this.tell(...topics);
  }

  async load_new_rounds() {
    if (!this.status) return;
    while (this.next <= this.status.round) {
      const before = this.table.clients.length;
      const last = Math.min(this.status.round, this.next + CHUNK - 1);
      if (!(await this.load_rounds(this.next, last))) return;
      if (this.newest() < this.next) return;
      this.next = this.newest() + 1;
      if (this.table.clients.length > before || this.bars_somebody()) this.resort();
    }
  }

  /** Whether the newest round barred a client, so that the order of rows changes. */
  bars_somebody() {
    const { decisions } = this.figures[this.figures.length - 1];
    return ["evicted", "quarantined", "proposed"].some((name) => decisions[name]);
  }

  mark_declined() {
    for (const member of this.members) {
      if (member.accept === false && member.slot === null) this.table.declined.add(this.table.row(member.client_id));
    }
  }

  /** Reads every client's evidence in the newest round, and sorts by it. */
  async sort() {
    const newest = this.newest();
    if (newest >= 0) {
      const record = await this.ask(`/rounds/${newest}`).catch(() => null);
      for (const verdict of record ? record.verdicts : []) this.table.evidence.set(verdict.client, verdict.evidence);
    }
    this.resort();
  }

  resort() {
    this.table.sort();
    this.tell("sorted");
  }

  get over() {
    return this.info !== null && OVER.has(this.info.state);
  }
}
