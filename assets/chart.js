// A chart of the last hour: lines over time. Pointer and arrow keys read values off it.

import { h, svg, text } from "./dom.js";
import { hourMinute } from "./format.js";

const MINUTE = 60000;
const SPANS = [5, 15, 30, 60].map((it) => it * MINUTE); // a young daemon's few samples fill the chart, too
const HEIGHT = 132;
const EDGE = { top: 8, right: 8, bottom: 20, left: 44 };

// `series`: [{ name, value(sample), line: 1..4 }], `show(number)`, `least`: the scale goes up to that at least.
export function chart(title, series, show, least) {
  const plot = svg("svg", { class: "plot", tabindex: 0, role: "img", height: HEIGHT });
  const legend = h("ul", { class: "legend" });
  const entries = series.map(({ name, line }) => {
    const value = h("b", null, "–");
    legend.append(h("li", { class: `line-${line}` }, name, " ", value));
    return value;
  });
  const when = h("span", { class: "when" });
  const node = h("figure", { class: "chart" }, h("figcaption", null, title, when), plot, legend);
  const state = { samples: [], cursor: null, width: 0, least };

  const read = () => {
    const sample = state.samples[state.cursor ?? state.samples.length - 1];
    series.forEach(({ value }, at) => text(entries[at], sample ? show(value(sample)) : "–"));
    text(when, state.cursor != null && sample ? ` at ${hourMinute(sample.at)}` : "");
  };
  const draw = () => {
    if (state.width > 0) paint(plot, state, series, show);
    read();
    plot.setAttribute("aria-label", summary(title, state.samples, series, show));
  };
  const point = (cursor) => {
    state.cursor = cursor;
    draw();
  };
  new ResizeObserver(([{ contentRect }]) => {
    state.width = Math.round(contentRect.width);
    draw();
  }).observe(plot);
  plot.addEventListener("pointermove", (event) => point(nearest(plot, state, event)));
  plot.addEventListener("pointerleave", () => point(null));
  plot.addEventListener("blur", () => point(null));
  plot.addEventListener("keydown", (event) => {
    const last = state.samples.length - 1;
    const at = state.cursor ?? last;
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last }[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    point(Math.min(Math.max(to, 0), last));
  });
  return { node, update: (samples) => ((state.samples = samples), draw()) };
}

function paint(plot, state, series, show) {
  const { samples, cursor, width } = state;
  plot.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  const { x, y, top, end, span } = scales(state, series);
  const lines = [];
  for (const share of [0, 0.5, 1]) {
    const at = y(top * share);
    lines.push(svg("line", { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: at, y2: at }));
    lines.push(svg("text", { class: "axis", x: EDGE.left - 6, y: at + 4, "text-anchor": "end" }, show(top * share)));
  }
  for (const [share, anchor] of [[1, "start"], [2 / 3, "middle"], [1 / 3, "middle"], [0, "end"]]) {
    const at = end - share * span;
    lines.push(svg("text", { class: "axis", x: x(at), y: HEIGHT - 5, "text-anchor": anchor }, hourMinute(at)));
  }
  for (const { value, line } of series) {
    const points = samples.map((it) => `${x(it.at).toFixed(1)} ${y(Math.max(0, value(it))).toFixed(1)}`);
    if (points.length === 1) points.push(points[0]);
    lines.push(svg("path", { class: `series line-${line}`, d: points.length ? `M${points.join("L")}` : "" }));
  }
  const at = samples[cursor];
  if (at) {
    lines.push(svg("line", { class: "cursor", x1: x(at.at), x2: x(at.at), y1: EDGE.top, y2: HEIGHT - EDGE.bottom }));
    for (const { value, line } of series)
      lines.push(svg("circle", { class: `mark line-${line}`, r: 3, cx: x(at.at), cy: y(Math.max(0, value(at))) }));
  }
  plot.replaceChildren(...lines);
}

function scales({ samples, width, least }, series) {
  const end = samples.at(-1)?.at ?? Date.now();
  const known = end - (samples[0]?.at ?? end);
  const span = SPANS.find((it) => it >= known) ?? SPANS.at(-1);
  const top = round(Math.max(least, ...samples.flatMap((it) => series.map(({ value }) => value(it)))));
  const [across, down] = [width - EDGE.left - EDGE.right, HEIGHT - EDGE.top - EDGE.bottom];
  return {
    top,
    end,
    span,
    x: (at) => EDGE.left + across * Math.max(0, 1 - (end - at) / span),
    y: (value) => EDGE.top + down * (1 - value / top),
  };
}

// The next number that halves well.
function round(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].find((it) => it * power >= value) * power;
}

function nearest(plot, state, event) {
  const { x } = scales(state, []);
  const at = event.clientX - plot.getBoundingClientRect().left;
  let best = null;
  state.samples.forEach((it, index) => {
    const far = Math.abs(x(it.at) - at);
    if (best === null || far < best.far) best = { index, far };
  });
  return best?.index ?? null;
}

function summary(title, samples, series, show) {
  if (samples.length === 0) return `${title}: nothing known yet`;
  const parts = series.map(({ name, value }) =>
    `${name} ${show(value(samples.at(-1)))} now, at most ${show(Math.max(...samples.map(value)))}`);
  return `${title}, last hour: ${parts.join("; ")}. Arrow keys read single values.`;
}
