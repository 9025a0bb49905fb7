// The picture of one run: tokens, prediction, operation weights and units, all over the same columns. The units are a map
// of their leading operations, or of their states.
// Colours are attributes and not rules of a style sheet, so that a saved picture is whole.

import { LEVELS, inkOn, levelOf, rampOf, shade } from "./colour.js";
import { FONT, svg, text, visible, widthOf } from "./dom.js";
import { keyAt, linesAt } from "./layout.js";
import { ceiling, focus, titleOf } from "./predictions.js";
import { chart, chartLabels, written } from "./series.js";

const NUMBERED = 26;
const LINE = 18;

/** The two halves of the picture: labels that stay, and a body that may be wider than the page. */
export function draw(answer, info, place, options) {
  const { colours } = options;
  const size = (width) => ({ width, height: place.height, viewBox: `0 0 ${width} ${place.height}`, "font-family": FONT });
  const labels = svg("svg", { ...size(place.labels), "aria-hidden": "true" }, ...rowLabels(answer, info, place, options));
  const body = svg("svg", { ...size(place.body), role: "img", "aria-label": options.description });
  const heading = place.chart ? chart : heads;
  body.append(...heading(answer, place, options), ...bars(answer, info, place, options));
  if (answer.ops) {
    const weights = options.mode === "one" ? answer.unit.weights : answer.weights;
    const colourOf = (value) => shade(colours.weights, levelOf(value, 0, 1));
    body.append(...cells(weights, place.weights, place.column, place.op, colourOf), ...numbers(weights, place, colourOf));
  }
  body.append(...(options.cells === "ops" ? map(answer, place, colours) : stateMap(answer, place, colours)));
  body.append(...chosen(answer, place, options));
  return { labels, body };
}

/** The states after every token, as numbers. */
export function states(answer) {
  const { scale, values } = answer.states;
  return values.map((row) => row.map((value) => value * scale));
}

/** The leading operation of a unit after a token: its place, and its weight. */
export function leader(answer, token, unit) {
  const { ops, shares, scale } = answer.map;
  return { op: ops[token][unit], share: shares[token][unit] * scale };
}

/** Every unit at every token in the colour of its leading operation: the more weight it has, the stronger, in all runs alike. */
function map(answer, place, colours) {
  const rows = answer.tokens.map((_, t) => place.order.map((unit) => leader(answer, t, unit)));
  const colourOf = ({ op, share }) => shade(rampOf(colours, op), levelOf(share, 0, 1));
  const size = place.captions.wordSize;
  const names = !size ? [] : rows.flatMap((row, t) => row.map((cell, k) => text(
    (t + 0.5) * place.column, place.units + (k + 0.5) * place.row, visible(answer.ops[cell.op]),
    { "text-anchor": "middle", "font-size": size, fill: inkOn(colourOf(cell)) })));
  return [...cells(rows, place.units, place.column, place.row, colourOf), ...names];
}

function stateMap(answer, place, colours) {
  const far = reach(answer), rows = states(answer).map((row) => place.order.map((unit) => row[unit]));
  return cells(rows, place.units, place.column, place.row, (value) => shade(colours.states, levelOf(value, -far, far)));
}

/** The end of the scale of states: 1, unless an operation went beyond. */
export function reach(answer) {
  return Math.max(1, ...answer.states.values.map((row) => Math.max(...row.map(Math.abs)) * answer.states.scale));
}

function rowLabels(answer, info, place, { colours, unit, mode, cells: shown }) {
  const right = place.labels - 10;
  const at = (y, content, more = {}) => text(right, y, content, { "text-anchor": "end", fill: colours.ink, ...more });
  const title = (y, content) => text(0, y - 12, content, { fill: colours.quiet, "font-size": 11, "font-weight": 600 });
  const [what, of] = titleOf(info);
  const parts = [title(place.prediction - 12, what), title(place.prediction, of)];
  if (place.chart) parts.push(...chartLabels(answer, place, at, title));
  const ends = answer.scale ?? [0, `${Number((100 * ceiling(answer, info)).toPrecision(1))} %`];
  for (const [p, end] of ends.entries()) {
    const name = typeof end === "number" ? written(end) : end;
    parts.push(at(place.prediction + place.bars * (1 - p), name, { "font-size": 10, fill: colours.quiet }));
  }
  if (answer.ops) {
    parts.push(title(place.weights, mode === "one" ? `Weight of each operation in unit ${answer.unit.index}, %` : "Mean weight of each operation, %"));
    answer.ops.forEach((name, k) => parts.push(at(place.weights + (k + 0.5) * place.op, visible(name, 10))));
    if (shown === "ops") parts.push(...swatches(answer, place, colours));
  }
  const { captions } = place, quiet = { "font-size": 11, fill: colours.quiet };
  parts.push(...linesAt(place.marks, captions.marks).map(([y, line]) => text(0, y, line, quiet)));
  const headed = linesAt(place.heading, [...captions.title, ...captions.note]);
  parts.push(...headed.map(([y, line], k) => (k < captions.title.length ? title(y + 12, line) : text(0, y, line, quiet))));
  parts.push(...keyAt(place).flatMap(([y, row]) => row.flatMap(({ name, op, x, beside }) =>
    [swatch(colours, op, x, y), text(beside, y, name, { ...quiet, fill: colours.ink })])));
  const every = Math.ceil(14 / place.row), chosenRow = place.order.indexOf(unit);
  place.order.forEach((k, row) => {
    const own = k === unit;
    if (!own && (row % every || Math.abs(row - chosenRow) * place.row < 12)) return;
    const look = own ? { "font-weight": 700 } : { fill: colours.quiet };
    parts.push(at(place.units + (row + 0.5) * place.row, own ? `unit ${k}` : String(k), { "font-size": 11, ...look }));
  });
  return parts;
}

/** The colour of each operation on the map, beside its name. */
function swatches(answer, place, colours) {
  return answer.ops.map((_, k) => swatch(colours, k, 0, place.weights + (k + 0.5) * place.op));
}

function swatch(colours, op, x, y) {
  return svg("rect", { x, y: y - 5, width: 10, height: 10, rx: 2, fill: shade(rampOf(colours, op), LEVELS) });
}

function heads(answer, place, { colours, token }) {
  return answer.tokens.flatMap((name, t) => {
    const beside = t !== token && Math.abs(t - token) * place.column < 14;
    if (t !== token && (t % place.every || (beside && place.every > 1))) return [];
    const x = (t + 0.5) * place.column, y = place.head - 8;
    const turn = { transform: `rotate(-55 ${x} ${y})`, "text-anchor": "start" };
    const turned = place.slanted ? turn : { "text-anchor": "middle" };
    const look = t === token ? { fill: colours.accent, "font-weight": 700 } : { fill: colours.ink };
    return [text(x, y, visible(name), { "font-size": 12, ...turned, ...look })];
  });
}

/** A bar for every prediction; with interventions a line where it would be without. */
function bars(answer, info, place, { colours, baseline, token }) {
  const top = place.prediction, height = place.bars, width = Math.max(2, Math.min(34, place.column - 4));
  const end = answer.tokens.length * place.column, most = ceiling(answer, info);
  const level = (p) => top + height * (1 - Math.min(1, p / most));
  const line = (x1, x2, y, look) => svg("line", { x1, x2, y1: y, y2: y, ...look });
  const parts = [0, 0.5, 1].map((p) =>
    line(0, end, top + height * p, { stroke: colours.line, "stroke-dasharray": p === 0.5 ? "2 3" : null }));
  answer.predictions.forEach((prediction, t) => {
    const { p, mark } = focus(prediction, info), x = (t + 0.5) * place.column;
    if (p === null) return;
    const tall = Math.max(1, top + height - level(p)), look = { rx: 2, fill: colours.bar, opacity: t === token ? 1 : 0.75 };
    parts.push(svg("rect", { x: x - width / 2, width, y: top + height - tall, height: tall, ...look }));
    const before = baseline && focus(baseline.predictions[t], info).p;
    if (typeof before === "number") {
      const half = width / 2 + 3;
      parts.push(line(x - half, x + half, level(before), { stroke: colours.ink, "stroke-width": 2 }));
    }
    const room = Math.floor(place.column / 6), name = visible(mark, room);
    const size = Math.min(11, 11 * (place.column - 3) / widthOf(name, 11));
    if (mark && room >= 2) parts.push(text(x, top - 8, name, { "text-anchor": "middle", "font-size": size, fill: colours.ink }));
  });
  return parts;
}

/** A heat map with one path for each colour: fast to draw, and still lines of vectors in a saved picture. */
function cells(rows, top, width, height, colourOf) {
  const paths = new Map();
  const gap = width > 12 && height > 6 ? 1 : 0;
  rows.forEach((row, t) => row.forEach((value, k) => {
    const colour = colourOf(value);
    const x = (t * width).toFixed(1), y = (top + k * height).toFixed(1);
    const w = (width - gap).toFixed(1), h = (height - gap).toFixed(1);
    paths.set(colour, `${paths.get(colour) ?? ""}M${x} ${y}h${w}v${h}h-${w}z`);
  }));
  const edges = gap ? null : "crispEdges";
  return [...paths].map(([fill, d]) => svg("path", { d, fill, "shape-rendering": edges }));
}

function numbers(rows, place, colourOf) {
  if (place.column < NUMBERED) return [];
  return rows.flatMap((row, t) => row.map((value, k) => text(
    (t + 0.5) * place.column, place.weights + (k + 0.5) * place.op, String(Math.round(100 * value)),
    { "text-anchor": "middle", "font-size": 11, fill: inkOn(colourOf(value)) },
  )));
}

/** Frames around the chosen token and unit. */
function chosen(answer, place, { colours, token, unit }) {
  const frame = { fill: "none", stroke: colours.accent, "stroke-width": 2, rx: 3, "pointer-events": "none" };
  const x = token * place.column - 1, top = place.chart ? 18 : place.prediction - 2;
  const row = place.units + place.order.indexOf(unit) * place.row - 1, end = answer.tokens.length * place.column;
  // one for each row of the figure: words stand between them
  const framed = (y, bottom, look = {}) => svg("rect", { ...frame, ...look, x, y, width: place.column + 1, height: bottom - y });
  return [
    framed(top, place.prediction + place.bars + 2, { class: "token-frame" }),
    framed(place.units - 2, place.units + place.order.length * place.row + 1),
    ...(answer.ops ? [framed(place.weights - 2, place.weights + answer.ops.length * place.op + 1)] : []),
    svg("rect", { ...frame, "stroke-width": 1.5, x: 0, y: row, width: end, height: place.row + 1 }),
  ];
}

/** The scales, one beneath the other: a ramp, and what it means in words. */
export function legend(answer, { colours, baseline, cells: shown }, place, width) {
  const scales = [];
  if (shown === "ops") {
    const gray = [colours.operations[0][0], [128, 128, 128]];
    scales.push([gray, "any colour: fainter = less weight, 0 % to 100 %"]);
  } else {
    const far = reach(answer), end = Number.isInteger(far) ? String(far) : far.toFixed(1);
    scales.push([colours.states, `state, −${end} to ${end}`]);
  }
  // wide cells have their number
  if (answer.ops && place.column < NUMBERED) scales.push([colours.weights, "weight, 0 % to 100 %"]);
  if (baseline) scales.push([null, "the prediction with all operations"]);
  const names = scales.map(([, name]) => name).join("; "), height = LINE * scales.length;
  const parts = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "font-family": FONT, role: "img", "aria-label": `Scales: ${names}` });
  scales.forEach(([ramp, name], k) => {
    const y = k * LINE + LINE / 2, steps = 24;
    for (let step = 0; ramp && step < steps; step += 1) {
      const level = (step / (steps - 1)) * LEVELS;
      parts.append(svg("rect", { x: step * 3, y: y - 5, width: 3.3, height: 10, fill: shade(ramp, level) }));
    }
    if (!ramp) parts.append(svg("line", { x1: 20, x2: 52, y1: y, y2: y, stroke: colours.ink, "stroke-width": 2 }));
    parts.append(text(80, y, name, { "font-size": 11, fill: colours.quiet }));
  });
  return parts;
}
