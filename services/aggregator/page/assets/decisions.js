/** The decisions of the verdict matrix: their letters, names, colours and marks. */

/**
 * @typedef {object} Decision
 * @property {string} code the letter in a `VerdictMatrix`
 * @property {string} name
 * @property {string} title what the decision means, for the legend
 * @property {number} severity sort key of the rows
 * @property {(pen: CanvasRenderingContext2D, s: number) => void} [mark] drawn in a square of side s
 */

/** @param {...number[]} lines each x1, y1, x2, y2 as shares of the side */
function strokes(...lines) {
  return (/** @type {CanvasRenderingContext2D} */ pen, /** @type {number} */ s) => {
    pen.lineWidth = Math.max(1, s / 9);
    pen.beginPath();
    for (const [x1, y1, x2, y2] of lines) {
      pen.moveTo(x1 * s, y1 * s);
      pen.lineTo(x2 * s, y2 * s);
    }
    pen.stroke();
  };
}

/** @type {Decision[]} */
export const DECISIONS = [
  { code: "a", name: "accepted", title: "the update counts", severity: 0 },
  { code: "r", name: "rejected", title: "left out of this round", severity: 3, mark: strokes([0.28, 0.72, 0.72, 0.28]) },
  { code: "b", name: "abstained", title: "left out, because no more clients may be barred", severity: 2, mark: strokes([0.25, 0.5, 0.75, 0.5]) },
  { code: "q", name: "quarantined", title: "barred for some rounds", severity: 4, mark: strokes([0.38, 0.26, 0.38, 0.74], [0.62, 0.26, 0.62, 0.74]) },
  {
    code: "p",
    name: "proposed",
    title: "an eviction that waits for an operator",
    severity: 5,
    mark: (pen, s) => {
      pen.beginPath();
      pen.arc(s / 2, s / 2, s / 5, 0, 7);
      pen.fill();
    },
  },
  { code: "e", name: "evicted", title: "barred for good", severity: 6, mark: strokes([0.26, 0.26, 0.74, 0.74], [0.26, 0.74, 0.74, 0.26]) },
  { code: "l", name: "late", title: "the update came after the end of the round", severity: 1, mark: strokes([0.5, 0.26, 0.5, 0.52], [0.5, 0.52, 0.68, 0.64]) },
  { code: "-", name: "absent", title: "no update", severity: 1, mark: strokes([0.44, 0.5, 0.56, 0.5]) },
  { code: "x", name: "failed", title: "the whole round failed", severity: 0, mark: strokes([0.2, 0.5, 0.5, 0.2], [0.5, 0.8, 0.8, 0.5]) },
  { code: "d", name: "declined", title: "the client declined the run", severity: 0, mark: strokes([0.3, 0.3, 0.7, 0.7]) },
  { code: "", name: "barred", title: "evicted in an earlier round", severity: 0 },
  { code: ".", name: "none", title: "no part in the round", severity: 0 },
];

/** Indices into `DECISIONS`, by the letter's character code. */
export const INDEX = new Uint8Array(128).fill(DECISIONS.length - 1);
DECISIONS.forEach((decision, index) => {
  if (decision.code) INDEX[decision.code.charCodeAt(0)] = index;
});
export const NONE = DECISIONS.length - 1;
export const [EVICTED, LATE, ABSENT, DECLINED, BARRED] = ["evicted", "late", "absent", "declined", "barred"].map((name) => DECISIONS.findIndex((decision) => decision.name === name));
