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
 * @property {any} data the x values, then one array of y values per line
 * @property {[number, number]} [band] indices of the two lines between which the area is filled
 * @property {(value: number) => string} format
 * @property {boolean} [logarithmic]
 * @property {number} [height]
 * @property {string} [empty_text] the text that is shown instead of a chart without values
 */

/** Milliseconds between attempts to load uPlot while the aggregator does not answer. */
const RETRY_MS = 2000;

/** Loads uPlot. Only charts call this function, so uPlot is loaded when the first chart is drawn. */
async function load_library() {
  for (let attempt = 0; ; attempt++) {
    try {
      // A browser may remember that an address failed, so each attempt uses another address.
      return attempt ? await import(`./vendor/uplot.js?attempt=${attempt}`) : await import("./vendor/uplot.js");
    } catch {
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

/** @param {ChartProps} props */
export function Chart(props) {
  const container = useRef(/** @type {HTMLElement | null} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const newest_props = useRef(props);
  const is_visible = useRef(false);
  newest_props.current = props;
  const series_key = props.lines.map((line) => line.label).join() + (props.logarithmic ? "log" : "");
  useEffect(() => {
    let is_unmounted = false;
    let resize_observer = /** @type {ResizeObserver | null} */ (null);
    const dark_scheme_query = matchMedia("(prefers-color-scheme: dark)");
    const create_plot = async () => {
      const { default: UPlot } = await load_library();
      if (is_unmounted || !container.current) return;
      if (plot.current) plot.current.destroy();
      plot.current = new UPlot(plot_options(newest_props.current, container.current), newest_props.current.data, container.current);
    };
    // A chart that is out of view gets no new data before it scrolls into view.
    const visibility_observer = new IntersectionObserver((entries) => {
      is_visible.current = entries[entries.length - 1].isIntersecting;
      if (is_visible.current && plot.current && plot.current.data !== newest_props.current.data) plot.current.setData(newest_props.current.data);
    });
    if (container.current) visibility_observer.observe(container.current);
    create_plot().then(() => {
      if (is_unmounted || !container.current) return;
      resize_observer = new ResizeObserver(() => {
        const { current } = container;
        if (plot.current && current) plot.current.setSize({ width: current.clientWidth, height: newest_props.current.height || 180 });
      });
      resize_observer.observe(container.current);
    });
    dark_scheme_query.addEventListener("change", create_plot);
    return () => {
      is_unmounted = true;
      visibility_observer.disconnect();
      dark_scheme_query.removeEventListener("change", create_plot);
      if (resize_observer) resize_observer.disconnect();
      if (plot.current) plot.current.destroy();
      plot.current = null;
    };
  }, [series_key]);
  useEffect(() => {
    if (plot.current && is_visible.current) plot.current.setData(props.data);
  }, [props.data]);
  const last_index = props.data[0].length - 1;
  const is_empty = !props.data.slice(1).some((/** @type {(number | null)[]} */ row) => row.some((value) => value !== null));
  return html`<figure class="chart">
    <figcaption class="keys">
      ${props.lines.map((line, index) => {
        const value = last_index >= 0 ? props.data[index + 1][last_index] : null;
        return html`<span class="key" key=${line.label}>
          <i class="swatch" style=${{ background: `var(${line.colour})` }}></i>${line.label}
          ${value === null || value === undefined ? "" : html`<b>${props.format(value)}</b>`}
        </span>`;
      })}
    </figcaption>
    <div class="plot" role="img" aria-label=${props.label} hidden=${is_empty} ref=${container} style=${{ height: `${props.height || 180}px` }}></div>
    ${is_empty && html`<p class="empty">${props.empty_text || "There are no values yet."}</p>`}
  </figure>`;
}

/**
 * @param {ChartProps} props
 * @param {HTMLElement} container
 * @returns {any} uPlot's options
 */
function plot_options(props, container) {
  const style = getComputedStyle(container);
  const read_colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  const axis = {
    stroke: read_colour("--muted"),
    grid: { stroke: read_colour("--line"), width: 1 },
    ticks: { show: false },
    font: `11px ${read_colour("--sans")}`,
  };
  return {
    width: container.clientWidth,
    height: props.height || 180,
    legend: { show: false },
    cursor: { points: { size: 6 }, drag: { x: true, y: false } },
    padding: [8, 16, 0, 0],
    // Without this range, uPlot draws a single round at the edge of an axis from 0 to 100.
    scales: { x: { time: false, range: (/** @type {any} */ plot, /** @type {number} */ min, /** @type {number} */ max) => (plot.data[0].length === 1 ? [plot.data[0][0], plot.data[0][0] + 1] : [min, max]) }, y: props.logarithmic ? { distr: 3 } : {} },
    axes: [
      { ...axis, size: 26, values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks.map((value) => (Number.isInteger(value) ? String(value) : "")) },
      { ...axis, size: 52, values: (/** @type {any} */ _, /** @type {(number | null)[]} */ ticks) => ticks.map((value) => (value === null ? "" : props.format(value))) },
    ],
    series: [
      {},
      ...props.lines.map((line) => ({
        label: line.label,
        stroke: read_colour(line.colour),
        width: line.width ?? 1.5,
        dash: line.dash,
        spanGaps: true,
        points: { show: (/** @type {any} */ plot) => plot.data[0].length < 3, size: 5 },
      })),
    ],
    bands: props.band ? [{ series: props.band, fill: `${read_colour("--series-1")}22` }] : [],
  };
}
