/** Decodes a safetensors file that holds the weights with which a customizer mixed a round's models. */

/**
 * The weights row by row: one row per model, one column per client.
 *
 * @typedef {{models: string[], clients: string[], weights: Float32Array | Float64Array}} MixingWeights
 */

/**
 * @param {ArrayBuffer} file
 * @returns {MixingWeights}
 */
export function decode_mixing_weights(file) {
  const header_length = Number(new DataView(file).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(file, 8, header_length)));
  const { dtype } = header.mixing;
  const data = file.slice(8 + header_length); // Copies the data, because they may not be aligned in `file`.
  return {
    models: JSON.parse(header.__metadata__.models),
    clients: JSON.parse(header.__metadata__.clients),
    weights: dtype === "F64" ? new Float64Array(data) : new Float32Array(data),
  };
}
