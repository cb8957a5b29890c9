/** The decisions of the verdict matrix: their letters, names, colours and marks. */

/**
 * @typedef {object} Decision
 * @property {string} code the decision's letter in the API's `VerdictMatrix`; "" if only the page knows the decision
 * @property {string} name
 * @property {string} description what the decision means, for the legend
 * @property {number} severity clients with severer decisions come first
 * @property {(context: CanvasRenderingContext2D, side: number) => void} [draw_mark] draws the decision's mark in a square with this side
 */

/**
 * Returns a function that draws lines.
 *
 * @param {...number[]} lines x1, y1, x2 and y2 of each line, as fractions of the side
 */
function line_drawer(...lines) {
  return (/** @type {CanvasRenderingContext2D} */ context, /** @type {number} */ side) => {
    context.lineWidth = Math.max(1, side / 9);
    context.beginPath();
    for (const [x1, y1, x2, y2] of lines) {
      context.moveTo(x1 * side, y1 * side);
      context.lineTo(x2 * side, y2 * side);
    }
    context.stroke();
  };
}

/** @type {Decision[]} */
export const DECISIONS = [
  { code: "a", name: "accepted", description: "the update counts", severity: 0 },
  { code: "r", name: "rejected", description: "left out of this round", severity: 3, draw_mark: line_drawer([0.28, 0.72, 0.72, 0.28]) },
  { code: "b", name: "abstained", description: "left out, because no more clients may be barred", severity: 2, draw_mark: line_drawer([0.25, 0.5, 0.75, 0.5]) },
  { code: "q", name: "quarantined", description: "barred for some rounds", severity: 4, draw_mark: line_drawer([0.38, 0.26, 0.38, 0.74], [0.62, 0.26, 0.62, 0.74]) },
  {
    code: "p",
    name: "proposed",
    description: "an eviction that waits for an operator",
    severity: 5,
    draw_mark: (context, side) => {
      context.beginPath();
      context.arc(side / 2, side / 2, side / 5, 0, 7);
      context.fill();
    },
  },
  { code: "e", name: "evicted", description: "barred for good", severity: 6, draw_mark: line_drawer([0.26, 0.26, 0.74, 0.74], [0.26, 0.74, 0.74, 0.26]) },
  { code: "l", name: "late", description: "the update came after the end of the round", severity: 1, draw_mark: line_drawer([0.5, 0.26, 0.5, 0.52], [0.5, 0.52, 0.68, 0.64]) },
  { code: "-", name: "absent", description: "no update", severity: 1, draw_mark: line_drawer([0.44, 0.5, 0.56, 0.5]) },
  { code: "x", name: "failed", description: "the whole round failed", severity: 0, draw_mark: line_drawer([0.2, 0.5, 0.5, 0.2], [0.5, 0.8, 0.8, 0.5]) },
  { code: "d", name: "declined", description: "the client declined the run", severity: 0, draw_mark: line_drawer([0.3, 0.3, 0.7, 0.7]) },
  { code: "", name: "barred", description: "evicted in an earlier round", severity: 0 },
  { code: ".", name: "none", description: "no part in the round", severity: 0 },
];

/** Indices into `DECISIONS` by the character code of the decision's letter. */
export const DECISION_INDEX_BY_CODE = new Uint8Array(128).fill(DECISIONS.length - 1);
DECISIONS.forEach((decision, index) => {
  if (decision.code) DECISION_INDEX_BY_CODE[decision.code.charCodeAt(0)] = index;
});
/** Indices into `DECISIONS`. */
export const NONE = DECISIONS.length - 1;
export const [EVICTED, LATE, ABSENT, DECLINED, BARRED] = ["evicted", "late", "absent", "declined", "barred"].map((name) => DECISIONS.findIndex((decision) => decision.name === name));
