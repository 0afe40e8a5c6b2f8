const SVG = "http://www.w3.org/2000/svg";
const RIGHT = 10;
const BOTTOM = 24;

/** An element with attributes and children; text goes in as text, never as markup. */
function element(name, attributes = {}, ...children) {
  const made = attributes.svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "tone") made.style.setProperty("--tone", value);
    else if (key !== "svg") made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

const draw = (name, attributes, ...children) => element(name, { svg: true, ...attributes }, ...children);
const swatch = (tone, kind = "") => element("span", { class: `swatch ${kind}`, tone });

function legend(entries) {
  const items = entries.map(([tone, label, kind]) => element("li", {}, ...[].concat(tone).map((one) => swatch(one, kind)), label));
  return element("ul", { class: "legend" }, ...items);
}

/**
 * A plot with the run's axis below it, drawn anew when its width changes.
 *
 * spec: name, height(width), left(width), top, legend, paint(frame), rows(border, at) for the tip;
 * columns: whether it shows columns rather than states at borders. A frame has svg, width, height,
 * left, top, right, bottom, x(border).
 */
function plot(host, spec) {
  if (spec.legend) host.before(legend(spec.legend));
  host.tabIndex = 0;
  host.setAttribute("role", "img");
  host.setAttribute("aria-label", `${spec.name}. Arrow keys move along it.`);
  const render = () => {
    const width = host.clientWidth;
    if (!width) return;
    const height = spec.height(width);
    const frame = { host, width, height, left: spec.left(width), top: spec.top, right: width - RIGHT, bottom: height - BOTTOM };
    frame.x = (border) => frame.left + ((frame.right - frame.left) * border) / axis.columns;
    frame.svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, height });
    host.replaceChildren(frame.svg);
    paintAxis(frame);
    spec.paint(frame);
    if (!spec.unmarked) paintViolations(frame, spec.flagged);
    frame.line = draw("line", { class: "cursor", y1: frame.top, y2: frame.bottom, visibility: "hidden" });
    frame.svg.append(frame.line);
    host.frame = frame;
  };
  watchWidth(host, render);
  follow(host, spec);
}

function watchWidth(host, render) {
  let known = 0;
  render();
  known = host.clientWidth;
  new ResizeObserver(() => {
    if (host.clientWidth === known) return;
    known = host.clientWidth;
    render();
  }).observe(host);
}

function paintAxis(frame) {
  const { svg, left, right, bottom } = frame;
  svg.append(draw("line", { class: "grid", x1: left, x2: right, y1: bottom, y2: bottom }));
  let free = -Infinity;
  for (const [border, label] of axisTicks(Math.max(2, Math.floor((right - left) / 110)))) {
    const x = frame.x(border);
    const half = label.length * 3.4;
    if (x - half < free || x > right + 1) continue;
    const anchor = x + half > right + RIGHT ? "end" : "middle";
    svg.append(draw("line", { class: "grid", x1: x, x2: x, y1: bottom, y2: bottom + 4 }));
    svg.append(draw("text", { x: anchor === "end" ? right : x, y: bottom + 17, "text-anchor": anchor }, label));
    free = x + half + 12;
  }
  if (!byTime) svg.append(draw("text", { class: "unit", x: 0, y: bottom + 17 }, "seq"));
}

/** Grid lines and labels of the vertical axis, from 0 to `high`; returns the scale. */
function paintScale(frame, high, unit, label = short, whole = true) {
  const { svg, left, right, top, bottom } = frame;
  const y = (value) => bottom - ((bottom - top) * value) / (high || 1);
  for (const value of ticks(0, high, Math.max(2, Math.floor((bottom - top) / 52)), whole)) {
    if (value > 0) svg.append(draw("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }));
    svg.append(draw("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, label(value)));
  }
  svg.append(draw("text", { class: "unit", x: 0, y: top - 9 }, unit));
  return y;
}

/** A line for each column in which something was violated; a flag names the first. */
function paintViolations(frame, flagged) {
  const columns = [...new Set(content.violations.map(([column]) => column))].slice(0, 60);
  for (const column of columns) {
    const x = frame.x(column + 0.5);
    frame.svg.append(draw("line", { class: "violation", x1: x, x2: x, y1: frame.top, y2: frame.bottom }));
    frame.svg.append(draw("path", { class: "flag", d: `M${x - 5} ${frame.top - 7}h10l-5 8z` }));
  }
  if (flagged && columns.length) paintFlag(frame, frame.x(columns[0] + 0.5), frame.x(columns[columns.length - 1] + 0.5));
}

/** The first violation's name beside the flags, where there is room for it. */
function paintFlag(frame, first, last) {
  const id = content.violations[0][2];
  const before = first - frame.left > id.length * 8 + 50;
  const place = { x: before ? first - 10 : last + 10, y: frame.top - 1, "text-anchor": before ? "end" : "start" };
  frame.svg.append(draw("text", { class: "broken", ...place }, id));
}

const points = (frame, y, values) => values.map((value, border) => `${frame.x(border).toFixed(1)} ${y(value).toFixed(1)}`);

function paintLine(frame, y, values, tone, more = {}) {
  const d = `M${points(frame, y, values).join("L")}`;
  frame.svg.append(draw("path", { d, fill: "none", stroke: tone, "stroke-width": 1.6, "stroke-linejoin": "round", ...more }));
}

function paintArea(frame, y, lows, highs, tone, opacity = 1) {
  const d = `M${points(frame, y, highs).join("L")}L${points(frame, y, lows).reverse().join("L")}Z`;
  frame.svg.append(draw("path", { d, fill: tone, "fill-opacity": opacity }));
}
