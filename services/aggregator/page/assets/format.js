/** Formats numbers, times and sizes as text. A missing value becomes "–". */

const MISSING_VALUE = "–";

/** @param {number | null | undefined} fraction */
export function format_percent(fraction) {
  return fraction === null || fraction === undefined ? MISSING_VALUE : `${(100 * fraction).toFixed(1)} %`;
}

/** @param {number | null | undefined} value */
export function format_number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return MISSING_VALUE;
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return use_minus_sign(String(value));
  const magnitude = Math.abs(value);
  return use_minus_sign(magnitude >= 1e5 || magnitude < 1e-3 ? value.toExponential(2) : value.toPrecision(3));
}

/**
 * Replaces a leading hyphen by a minus sign.
 *
 * @param {string} text
 */
function use_minus_sign(text) {
  return text.replace(/^-/, "−");
}

/** @param {number | null | undefined} seconds */
export function format_duration(seconds) {
  if (seconds === null || seconds === undefined) return MISSING_VALUE;
  if (seconds < 1) return `${Math.round(1000 * seconds)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

/**
 * The time of day; for a time before today, also the date.
 *
 * @param {number | null | undefined} time Unix time in seconds
 */
export function format_time(time) {
  if (!time) return MISSING_VALUE;
  const date = new Date(1000 * time);
  const minute = `${two_digits(date.getHours())}:${two_digits(date.getMinutes())}`;
  return date.toDateString() === new Date().toDateString()
    ? `${minute}:${two_digits(date.getSeconds())}`
    : `${date.getFullYear()}-${two_digits(date.getMonth() + 1)}-${two_digits(date.getDate())} ${minute}`;
}

/** @param {number} part a part of a date or a time */
function two_digits(part) {
  return String(part).padStart(2, "0");
}

/**
 * The time since or until a given time.
 *
 * @param {number | null | undefined} time Unix time in seconds
 */
export function format_relative_time(time) {
  if (!time) return MISSING_VALUE;
  const seconds_from_now = time - Date.now() / 1000;
  if (Math.abs(seconds_from_now) < 1) return "now";
  const text = format_duration(Math.abs(seconds_from_now) < 60 ? Math.round(Math.abs(seconds_from_now)) : Math.abs(seconds_from_now)).replace(".0 s", " s");
  return seconds_from_now > 0 ? `in ${text}` : `${text} ago`;
}

/** @param {number} bytes */
export function format_bytes(bytes) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (bytes >= 1000 && unit < units.length - 1) {
    bytes /= 1000;
    unit += 1;
  }
  return `${unit && bytes < 10 ? bytes.toFixed(1) : Math.round(bytes)} ${units[unit]}`;
}

/** @param {string} digest */
export function shorten_digest(digest) {
  return digest ? digest.slice(0, 12) : MISSING_VALUE;
}

/**
 * A count with its noun.
 *
 * @param {number} count
 * @param {string} noun
 */
export function pluralize(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}
