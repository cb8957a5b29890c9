/** Orders the rows of a matrix so that similar rows are neighbours. */

/** A matrix with more rows than this is not sorted, because sorting takes time quadratic in the number of rows. */
const MAX_ROWS = 1500;

/**
 * The cosine similarity of each pair of rows of a matrix.
 *
 * @param {ArrayLike<number>} values the matrix, row by row
 * @param {number} row_count
 * @param {number} column_count
 * @returns {Float32Array} a matrix of `row_count` by `row_count` similarities, row by row
 */
export function cosine_similarities(values, row_count, column_count) {
  const norms = new Float64Array(row_count);
  for (let i = 0; i < row_count; i += 1) {
    let sum = 0;
    for (let k = 0; k < column_count; k += 1) sum += values[i * column_count + k] ** 2;
    norms[i] = Math.sqrt(sum) || 1;
  }
  const similarities = new Float32Array(row_count * row_count);
  for (let i = 0; i < row_count; i += 1) {
    for (let j = i; j < row_count; j += 1) {
      let sum = 0;
      for (let k = 0; k < column_count; k += 1) sum += values[i * column_count + k] * values[j * column_count + k];
      similarities[i * row_count + j] = similarities[j * row_count + i] = sum / (norms[i] * norms[j]);
    }
  }
  return similarities;
}

/**
 * Orders rows. The first row has the highest sum of similarities to all rows. Then, in each step, the next row is the
 * one with the highest similarity to any of the rows before it. Prim's algorithm for a maximum spanning tree uses the
 * same order. Clusters become blocks on the diagonal. The order is deterministic.
 *
 * @param {Float32Array} similarities a matrix of `row_count` by `row_count` similarities, row by row
 * @param {number} row_count
 * @returns {number[]} indices of the rows in the new order
 */
export function cluster_order(similarities, row_count) {
  const order = [];
  if (row_count > MAX_ROWS) return Array.from({ length: row_count }, (_, row) => row);
  const is_placed = new Uint8Array(row_count);
  const highest_similarity = new Float64Array(row_count).fill(-Infinity);
  let next = 0;
  let highest_sum = -Infinity;
  for (let i = 0; i < row_count; i += 1) {
    let sum = 0;
    for (let j = 0; j < row_count; j += 1) sum += similarities[i * row_count + j];
    if (sum > highest_sum) [highest_sum, next] = [sum, i];
  }
  while (order.length < row_count) {
    order.push(next);
    is_placed[next] = 1;
    let closest = -1;
    for (let j = 0; j < row_count; j += 1) {
      if (is_placed[j]) continue;
      highest_similarity[j] = Math.max(highest_similarity[j], similarities[next * row_count + j]);
      if (closest < 0 || highest_similarity[j] > highest_similarity[closest]) closest = j;
    }
    next = closest;
  }
  return order;
}
