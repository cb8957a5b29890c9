/** Numbers, times and sizes as text. A missing value is "–". */

const NOTHING = "–";

/** @param {number | null | undefined} share */
export function percent(share) {
  return share === null || share === undefined ? NOTHING : `${(100 * share).toFixed(1)} %`;
}

/** @param {number | null | undefined} value */
export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return NOTHING;
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return sign(String(value));
  const size = Math.abs(value);
  return sign(size >= 1e5 || size < 1e-3 ? value.toExponential(2) : value.toPrecision(3));
}

/** @param {string} text */
function sign(text) {
  return text.replace(/^-/, "−");
}

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return NOTHING;
  if (seconds < 1) return `${Math.round(1000 * seconds)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

/** @param {number | null | undefined} time Unix time in seconds */
export function clock(time) {
  if (!time) return NOTHING;
  const moment = new Date(1000 * time);
  const minute = `${two(moment.getHours())}:${two(moment.getMinutes())}`;
  return moment.toDateString() === new Date().toDateString()
    ? `${minute}:${two(moment.getSeconds())}`
    : `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())} ${minute}`;
}

/** @param {number} part of a date */
function two(part) {
  return String(part).padStart(2, "0");
}

/**
 * The time since or until a given time.
 *
 * @param {number | null | undefined} time Unix time in seconds
 */
export function relative(time) {
  if (!time) return NOTHING;
  const away = time - Date.now() / 1000;
  if (Math.abs(away) < 1) return "now";
  const text = duration(Math.abs(away) < 60 ? Math.round(Math.abs(away)) : Math.abs(away)).replace(".0 s", " s");
  return away > 0 ? `in ${text}` : `${text} ago`;
}

/** @param {number} bytes */
export function size(bytes) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (bytes >= 1000 && unit < units.length - 1) {
    bytes /= 1000;
    unit += 1;
  }
  return `${unit && bytes < 10 ? bytes.toFixed(1) : Math.round(bytes)} ${units[unit]}`;
}

/** @param {string} digest */
export function short(digest) {
  return digest ? digest.slice(0, 12) : NOTHING;
}

/**
 * A count with its noun.
 *
 * @param {number} count
 * @param {string} noun
 */
export function plural(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}
