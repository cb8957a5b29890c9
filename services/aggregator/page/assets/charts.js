/** Line charts with uPlot, in the page's colours. */

import { html, useEffect, useRef } from "./vendor/preact.js";

/**
 * @typedef {object} Line
 * @property {string} label
 * @property {string} colour a custom property, such as "--series-1"
 * @property {number[]} [dash]
 * @property {number} [width]
 *
 * @typedef {object} ChartProps
 * @property {string} label what the chart shows, for screen readers
 * @property {Line[]} lines
 * @property {any} data x, then one row per line
 * @property {[number, number]} [band] indices of the two lines between which the area is filled
 * @property {(value: number) => string} format
 * @property {boolean} [log]
 * @property {number} [height]
 * @property {string} [none] the text that replaces a chart without values
 */

/** The library, loaded when the first chart is drawn. */
const library = () => import("./vendor/uplot.js");

/** @param {ChartProps} props */
export function Chart(props) {
  const host = useRef(/** @type {HTMLElement | null} */ (null));
  const chart = useRef(/** @type {any} */ (null));
  const newest = useRef(props);
  const seen = useRef(false);
  newest.current = props;
  const shape = props.lines.map((line) => line.label).join() + (props.log ? "log" : "");
  useEffect(() => {
    let closed = false;
    let watch = /** @type {ResizeObserver | null} */ (null);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const build = async () => {
      const { default: UPlot } = await library();
      if (closed || !host.current) return;
      if (chart.current) chart.current.destroy();
      chart.current = new UPlot(options(newest.current, host.current), newest.current.data, host.current);
    };
    // A chart is drawn when it scrolls into view.
    const view = new IntersectionObserver((entries) => {
      seen.current = entries[entries.length - 1].isIntersecting;
      if (seen.current && chart.current && chart.current.data !== newest.current.data) chart.current.setData(newest.current.data);
    });
    if (host.current) view.observe(host.current);
    build().then(() => {
      if (closed || !host.current) return;
      watch = new ResizeObserver(() => {
        const { current } = host;
        if (chart.current && current) chart.current.setSize({ width: current.clientWidth, height: newest.current.height || 180 });
      });
      watch.observe(host.current);
    });
    dark.addEventListener("change", build);
    return () => {
      closed = true;
      view.disconnect();
      dark.removeEventListener("change", build);
      if (watch) watch.disconnect();
      if (chart.current) chart.current.destroy();
      chart.current = null;
    };
  }, [shape]);
  useEffect(() => {
    if (chart.current && seen.current) chart.current.setData(props.data);
  }, [props.data]);
  const last = props.data[0].length - 1;
  const empty = !props.data.slice(1).some((/** @type {(number | null)[]} */ row) => row.some((value) => value !== null));
  return html`<figure class="chart">
    <figcaption class="keys">
      ${props.lines.map((line, index) => {
        const value = last >= 0 ? props.data[index + 1][last] : null;
        return html`<span class="key" key=${line.label}>
          <i class="swatch" style=${{ background: `var(${line.colour})` }}></i>${line.label}
          ${value === null || value === undefined ? "" : html`<b>${props.format(value)}</b>`}
        </span>`;
      })}
    </figcaption>
    <div class="plot" role="img" aria-label=${props.label} hidden=${empty} ref=${host} style=${{ height: `${props.height || 180}px` }}></div>
    ${empty && html`<p class="empty">${props.none || "There are no values yet."}</p>`}
  </figure>`;
}

/**
 * @param {ChartProps} props
 * @param {HTMLElement} host
 * @returns {any} uPlot's options
 */
function options(props, host) {
  const style = getComputedStyle(host);
  const colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  const axis = {
    stroke: colour("--muted"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { show: false },
    font: `11px ${colour("--sans")}`,
  };
  return {
    width: host.clientWidth,
    height: props.height || 180,
    legend: { show: false },
    cursor: { points: { size: 6 }, drag: { x: true, y: false } },
    padding: [8, 16, 0, 0],
    // Without a range, uPlot draws a single round at the edge of an axis from 0 to 100.
    scales: { x: { time: false, range: (/** @type {any} */ chart, /** @type {number} */ low, /** @type {number} */ high) => (chart.data[0].length === 1 ? [chart.data[0][0], chart.data[0][0] + 1] : [low, high]) }, y: props.log ? { distr: 3 } : {} },
    axes: [
      { ...axis, size: 26, values: (/** @type {any} */ _, /** @type {number[]} */ at) => at.map((value) => (Number.isInteger(value) ? String(value) : "")) },
      { ...axis, size: 52, values: (/** @type {any} */ _, /** @type {(number | null)[]} */ at) => at.map((value) => (value === null ? "" : props.format(value))) },
    ],
    series: [
      {},
      ...props.lines.map((line) => ({
        label: line.label,
        stroke: colour(line.colour),
        width: line.width ?? 1.5,
        dash: line.dash,
        spanGaps: true,
        points: { show: (/** @type {any} */ chart) => chart.data[0].length < 3, size: 5 },
      })),
    ],
    bands: props.band ? [{ series: props.band, fill: `${colour("--series-1")}22` }] : [],
  };
}
