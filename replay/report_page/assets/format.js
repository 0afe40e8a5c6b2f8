"use strict";

const content = JSON.parse(document.getElementById("content").textContent);
const axis = content.axis;
const byTime = axis.kind === "time";

const UNITS = [[864e11, "d"], [36e11, "h"], [6e10, "min"], [1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];

const count = (number) => number.toLocaleString("en-US");

/** A number in at most four characters and a letter: 950, 1.2k, 34M. */
function short(number) {
  const steps = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  for (const [size, letter] of steps) {
    if (Math.abs(number) >= size) return `${digits(number / size)}${letter}`;
  }
  return String(Math.round(number * 100) / 100);
}

const digits = (value) => String(value >= 100 ? Math.round(value) : value >= 10 ? Math.round(value * 10) / 10 : Math.round(value * 100) / 100);

/** A length on the axis: nanoseconds in a fitting unit, or events. */
function span(length) {
  if (!byTime) return `${count(Math.round(length))} event${Math.round(length) === 1 ? "" : "s"}`;
  for (const [size, unit] of UNITS) {
    if (length >= size) return `${digits(length / size)} ${unit}`;
  }
  return "0 s";
}

const percent = (part, whole) => (whole ? `${(100 * part / whole).toFixed(1)} %` : "none");

/** A step of 1, 2, 2.5 or 5 times a power of ten that cuts a length into about so many parts. */
function niceStep(length, parts, whole) {
  const rough = Math.max(length / Math.max(parts, 1), whole ? 1 : Number.MIN_VALUE);
  const power = 10 ** Math.floor(Math.log10(rough));
  const factors = whole && power < 10 ? [1, 2, 5, 10] : [1, 2, 2.5, 5, 10];
  return factors.find((factor) => factor * power >= rough * 0.999) * power;
}

function ticks(low, high, parts, whole) {
  const step = niceStep(high - low, parts, whole);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-6; value += step) found.push(value);
  return found;
}

/** Ticks of the horizontal axis: [border, label], with the unit at each. */
function axisTicks(parts) {
  const length = axis.stop - axis.start;
  const borderOf = (value) => ((value - axis.start) / length) * axis.columns;
  if (!byTime) return ticks(axis.start, axis.stop, parts, true).map((seq) => [borderOf(seq), short(seq)]);
  const [size, unit] = UNITS.find(([candidate]) => length >= 2 * candidate) || UNITS[UNITS.length - 1];
  return ticks(0, length / size, parts, false).map((value) => [borderOf(axis.start + value * size), `${digits(value)} ${unit}`]);
}

/** Where a border lies: time since the run's first event, and the next event there. */
function whenOf(border) {
  const seq = content.levels.next_seq[Math.min(border, content.levels.next_seq.length - 1)];
  if (!byTime) return `seq ${count(seq)}`;
  return `${span(((axis.stop - axis.start) * border) / axis.columns)} · seq ${count(seq)}`;
}
