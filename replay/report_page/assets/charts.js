const PAGE_USES = [
  ["private", "held by requests", "var(--private)"],
  ["cached_used", "cached, in use", "var(--cached-used)"],
  ["cached_idle", "cached, can be evicted", "var(--cached-idle)"],
  ["quarantined", "quarantined", "var(--quarantined)"],
  ["free", "free", "var(--free)"],
];
const LANES = [
  ["admitted", "admitted", "var(--private)", true],
  ["finished", "finished", "var(--cached-used)", true],
  ["aborted", "aborted", "var(--faint)", false],
  ["retracted", "retracted", "var(--violet)", true],
  ["resumed", "resumed", "var(--violet)", false],
  ["evicted_pages", "pages evicted", "var(--quarantined)", true],
  ["notes", "notes", "var(--faint)", false],
];

const margin = (width) => (width < 520 ? 44 : 52);
const highest = (rows) => Math.max(1, ...rows.map((row) => row.reduce((high, value) => Math.max(high, value), 0)));

function pagesChart(host, space) {
  const uses = PAGE_USES.filter(([use]) => use === "free" || use === "private" || space.uses[use].some((num) => num > 0));
  const stacked = [space.uses.free.map(() => 0)];
  for (const [use] of uses) stacked.push(space.uses[use].map((num, border) => num + stacked[stacked.length - 1][border]));
  const totals = stacked[stacked.length - 1];
  plot(host, {
    name: "Pages by state over time", top: 26, left: margin, flagged: true,
    height: (width) => (width < 520 ? 230 : 300),
    legend: uses.map(([, label, tone]) => [tone, label]),
    paint: (frame) => {
      const y = paintScale(frame, highest([totals]), "pages");
      uses.forEach(([, , tone], place) => paintArea(frame, y, stacked[place], stacked[place + 1], tone));
    },
    rows: (border) => [...uses].reverse().map(([use, label, tone]) => [tone, label, `${count(space.uses[use][border])} · ${percent(space.uses[use][border], totals[border])}`]),
  });
}

function linesChart(host, name, unit, lines, filled) {
  plot(host, {
    name, top: 26, left: margin, height: (width) => (width < 520 ? 190 : 220),
    legend: lines.map(([, label, tone]) => [tone, label, "line"]),
    paint: (frame) => {
      const y = paintScale(frame, highest(lines.map(([values]) => values)) * 1.05, unit);
      paintArea(frame, y, filled.map(() => 0), filled, lines[0][2], 0.14);
      for (const [values, , tone] of [...lines].reverse()) paintLine(frame, y, values, tone);
    },
    rows: (border) => lines.map(([values, label, tone]) => [tone, label, count(values[border])]),
  });
}

function requestsChart(host) {
  const { running, waiting, idle_sessions: sessions, draining, pins } = content.levels;
  const more = [[waiting, "retracted, waiting", "var(--violet)"], [sessions, "idle sessions", "var(--cached-used)"], [draining, "rows draining", "var(--quarantined)"], [pins, "pins", "var(--faint)"]];
  const lines = more.filter(([values]) => values.some((num) => num > 0));
  linesChart(host, "Requests over time", "requests", [[running, "running", "var(--private)"], ...lines], running);
}

function tokensChart(host) {
  const { allocated_tokens: allocated, committed_tokens: committed } = content.levels;
  linesChart(host, "Tokens over time", "tokens", [[committed, "committed", "var(--private)"], [allocated, "allocated", "var(--quarantined)"]], committed);
}

function lanesChart(host) {
  const lanes = LANES.map(([name, label, tone, always]) => ({ label, tone, always, values: content.counts[name] }));
  const broken = content.counts.admitted.map(() => 0);
  for (const [column] of content.violations) broken[column] += 1;
  lanes.push({ label: "violations", tone: "var(--bad)", always: false, values: broken });
  const shown = lanes.filter(({ always, values }) => always || values.some((num) => num > 0));
  const step = 40;
  plot(host, {
    name: "Events over time", columns: true, top: 4, unmarked: true,
    left: (width) => (width < 520 ? 92 : 110), height: () => 4 + shown.length * step + BOTTOM,
    paint: (frame) => shown.forEach((lane, place) => paintLane(frame, lane, frame.top + (place + 1) * step - 6, step - 12)),
    rows: (border) => shown.map(({ label, tone, values }) => [tone, label, count(values[Math.max(border, 1) - 1] || 0)]),
  });
}

function paintLane(frame, { label, tone, values }, base, room) {
  const high = highest([values]);
  const some = values.some((num) => num > 0);
  const wide = Math.max((frame.right - frame.left) / axis.columns, 1.2);
  const bars = values.map((num, column) => (num ? `M${frame.x(column).toFixed(1)} ${base}v${(-Math.max((num / high) * room, 2)).toFixed(1)}h${wide.toFixed(1)}V${base}z` : ""));
  frame.svg.append(draw("line", { class: "grid", x1: frame.left, x2: frame.right, y1: base, y2: base }));
  frame.svg.append(draw("path", { d: bars.join("") || "M0 0", fill: tone }));
  frame.svg.append(draw("text", { class: "strong", x: 0, y: base - room / 2 + 1 }, label));
  frame.svg.append(draw("text", { class: "unit", x: 0, y: base - room / 2 + 15 }, some ? `max ${short(high)}` : "none"));
}

function hitsChart(host) {
  const { prompt_tokens: prompts, hit_tokens: hits } = content.counts;
  const wide = Math.max(1, Math.round(axis.columns / 60));
  const rates = [];
  let [asked, found] = [0, 0];
  prompts.forEach((num, column) => {
    asked += num - (column >= wide ? prompts[column - wide] : 0);
    found += hits[column] - (column >= wide ? hits[column - wide] : 0);
    rates.push(asked ? (100 * found) / asked : null);
  });
  const total = prompts.reduce((sum, num) => sum + num, 0);
  const overall = total ? (100 * hits.reduce((sum, num) => sum + num, 0)) / total : 0;
  plot(host, {
    name: "Hit rate over time", columns: true, top: 26, left: margin, height: () => 190,
    paint: (frame) => {
      const y = paintScale(frame, 100, "% of prompt tokens", (value) => `${value}`);
      if (!total) return;
      paintPieces(frame, y, rates);
      frame.svg.append(draw("line", { x1: frame.left, x2: frame.right, y1: y(overall), y2: y(overall), stroke: "var(--soft)", "stroke-dasharray": "2 4" }));
      frame.svg.append(draw("text", { class: "strong", x: frame.right, y: y(overall) - 6, "text-anchor": "end" }, `overall ${overall.toFixed(1)} %`));
    },
    rows: (border) => {
      const column = Math.max(border, 1) - 1;
      const rate = rates[column];
      return [["var(--cached-used)", `in the last ${span((wide * (axis.stop - axis.start)) / axis.columns)}`, rate === null || rate === undefined ? "no admission" : `${rate.toFixed(1)} %`], [null, "overall", `${overall.toFixed(1)} %`]];
    },
  });
}

/** A line that breaks where there is nothing to say. */
function paintPieces(frame, y, rates) {
  let [d, pen] = ["", "M"];
  rates.forEach((rate, column) => {
    if (rate === null) { pen = "M"; return; }
    d += `${pen}${frame.x(column + 0.5).toFixed(1)} ${y(rate).toFixed(1)}`;
    pen = "L";
  });
  frame.svg.append(draw("path", { d: d || "M0 0", fill: "none", stroke: "var(--cached-used)", "stroke-width": 1.6, "stroke-linejoin": "round" }));
}

function histograms(host, entries) {
  host.classList.add("histograms");
  for (const [title, histogram, tone] of entries) {
    const place = element("div", {});
    host.append(element("div", {}, element("h4", {}, title), element("p", {}, summary(histogram)), place));
    if (histogram.total) watchWidth(place, () => paintHistogram(place, histogram, tone));
  }
}

function summary({ total, zero, median, p99, longest }) {
  if (!total) return "none";
  const none = zero ? ` · ${count(zero)} of no length` : "";
  return `${count(total)} · median ${span(median)} · 99 % below ${span(p99)} · longest ${span(longest)}${none}`;
}

function paintHistogram(host, histogram, tone) {
  const [width, height, top, left] = [host.clientWidth, 150, 8, 44];
  const { counts, first, per_decade: per } = histogram;
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, height });
  const frame = { svg, left, right: width - RIGHT, top, bottom: height - BOTTOM };
  host.replaceChildren(svg);
  const y = paintScale(frame, highest([counts]), "");
  const wide = (frame.right - left) / Math.max(counts.length, 1);
  const edge = (bin) => 10 ** ((first + bin) / per);
  let free = -Infinity;
  for (let bin = (per - (first % per)) % per; bin <= counts.length; bin += per) {
    const x = left + bin * wide;
    const label = span(edge(bin));
    if (x - label.length * 3.4 < free) continue;
    svg.append(draw("line", { class: "grid", x1: x, x2: x, y1: frame.bottom, y2: frame.bottom + 4 }));
    svg.append(draw("text", { x, y: frame.bottom + 17, "text-anchor": x > frame.right - 24 ? "end" : "middle" }, label));
    free = x + label.length * 3.4 + 10;
  }
  svg.append(draw("line", { class: "grid", x1: left, x2: frame.right, y1: frame.bottom, y2: frame.bottom }));
  counts.forEach((num, bin) => {
    const high = num ? Math.max(frame.bottom - y(num), 1.5) : 0;
    svg.append(draw("rect", { x: left + bin * wide + 0.75, y: frame.bottom - high, width: Math.max(wide - 1.5, 1), height: high, fill: tone, rx: 1.5 }));
  });
  svg.onpointermove = (event) => {
    const bin = Math.floor((event.clientX - svg.getBoundingClientRect().left - left) / wide);
    if (bin < 0 || bin >= counts.length) { tip.hidden = true; return; }
    showTip(`${span(edge(bin))} to ${span(edge(bin + 1))}`, [[tone, count(counts[bin]), percent(counts[bin], histogram.total)]], event.clientX, event.clientY);
  };
  svg.onpointerleave = () => { tip.hidden = true; };
}
