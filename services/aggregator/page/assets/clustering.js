/** Orders the rows of a matrix so that similar rows are neighbours. */

/** Maximum number of rows to sort, because the time grows quadratically. */
const MOST = 1500;

/** Cosine between rows i and j of a matrix with `wide` columns.
 *
 * @param {ArrayLike<number>} values
 * @param {number} rows
 * @param {number} wide
 * @returns {Float32Array} rows by rows
 */
export function cosines(values, rows, wide) {
  const norms = new Float64Array(rows);
  for (let i = 0; i < rows; i += 1) {
    let sum = 0;
    for (let k = 0; k < wide; k += 1) sum += values[i * wide + k] ** 2;
    norms[i] = Math.sqrt(sum) || 1;
  }
  const found = new Float32Array(rows * rows);
  for (let i = 0; i < rows; i += 1) {
    for (let j = i; j < rows; j += 1) {
      let sum = 0;
      for (let k = 0; k < wide; k += 1) sum += values[i * wide + k] * values[j * wide + k];
      found[i * rows + j] = found[j * rows + i] = sum / (norms[i] * norms[j]);
    }
  }
  return found;
}

/**
 * Orders rows: the first row is closest to all others, and each next row is the one most similar to
 * any earlier row, as Prim's algorithm builds a maximum spanning tree. Clusters become blocks on
 * the diagonal. The order is deterministic.
 *
 * @param {Float32Array} similar rows by rows
 * @param {number} rows
 * @returns {number[]}
 */
export function cluster_order(similar, rows) {
  const order = [];
  if (rows > MOST) return Array.from({ length: rows }, (_, row) => row);
  const taken = new Uint8Array(rows);
  const best = new Float64Array(rows).fill(-Infinity);
  let next = 0;
  let most = -Infinity;
  for (let i = 0; i < rows; i += 1) {
    let sum = 0;
    for (let j = 0; j < rows; j += 1) sum += similar[i * rows + j];
    if (sum > most) [most, next] = [sum, i];
  }
  while (order.length < rows) {
    order.push(next);
    taken[next] = 1;
    let closest = -1;
    for (let j = 0; j < rows; j += 1) {
      if (taken[j]) continue;
      best[j] = Math.max(best[j], similar[next * rows + j]);
      if (closest < 0 || best[j] > best[closest]) closest = j;
    }
    next = closest;
  }
  return order;
}
