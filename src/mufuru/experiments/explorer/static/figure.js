// The picture of one run: tokens, prediction, operation weights and units, all over the same columns. The units are a map
// of their leading operations, or of their states.
// Colours are attributes and not rules of a style sheet, so that a saved picture is whole.

import { LEVELS, inkOn, levelOf, rampOf, shade } from "./colour.js";
import { svg, text, visible } from "./dom.js";
import { ceiling, focus, titleOf } from "./predictions.js";
import { chart, chartLabels, written } from "./series.js";

const FONT = 'system-ui, -apple-system, "Segoe UI", "Noto Sans", Roboto, sans-serif';

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

/** The leading operation of a unit after a token: its place, its weight, and from 0 to 1 how far it leads. */
export function leader(answer, token, unit) {
  const { ops, shares, scale } = answer.map, least = 1 / answer.ops.length, share = shares[token][unit] * scale;
  return { op: ops[token][unit], share, strength: least < 1 ? Math.max(0, (share - least) / (1 - least)) : 1 };
}

/** Every unit at every token in the colour of its leading operation: the more of the weight it has, the stronger. */
function map(answer, place, colours) {
  const rows = answer.tokens.map((_, t) => place.order.map((unit) => leader(answer, t, unit)));
  const colourOf = ({ op, strength }) => shade(rampOf(colours, op), levelOf(strength, 0, 1));
  const names = place.column < 40 || place.row < 14 ? [] : rows.flatMap((row, t) => row.map((cell, k) => text(
    (t + 0.5) * place.column, place.units + (k + 0.5) * place.row, visible(answer.ops[cell.op], Math.floor(place.column / 5.6)),
    { "text-anchor": "middle", "font-size": 10, fill: inkOn(colourOf(cell)) })));
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
  const parts = [title(place.prediction, titleOf(info)), ...(place.chart ? chartLabels(answer, place, at, title) : [])];
  const ends = answer.scale ?? [0, `${Number((100 * ceiling(answer, info)).toPrecision(1))} %`];
  for (const [p, end] of ends.entries()) {
    const name = typeof end === "number" ? written(end) : end;
    parts.push(at(place.prediction + place.bars * (1 - p), name, { "font-size": 10, fill: colours.quiet }));
  }
  if (answer.ops) {
    parts.push(title(place.weights, mode === "one" ? `Unit ${answer.unit.index}, %` : "Weights, %"));
    answer.ops.forEach((name, k) => parts.push(at(place.weights + (k + 0.5) * place.op, visible(name, 10))));
    if (shown === "ops") parts.push(...swatches(answer, place, colours));
  }
  parts.push(title(place.units, shown === "ops" ? "Leading op" : "States"));
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
  return answer.ops.map((_, k) => svg("rect", {
    x: 0, y: place.weights + (k + 0.5) * place.op - 5, width: 10, height: 10, rx: 2, fill: shade(rampOf(colours, k), LEVELS),
  }));
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
    if (mark && place.column >= 14) parts.push(text(x, top - 8, mark, { "text-anchor": "middle", fill: colours.ink }));
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
  if (place.column < 26) return [];
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
  return [
    svg("rect", { ...frame, class: "token-frame", x, y: top, width: place.column + 1, height: place.height - top - 4 }),
    svg("rect", { ...frame, "stroke-width": 1.5, x: 0, y: row, width: end, height: place.row + 1 }),
  ];
}

/** The two scales. */
export function legend(answer, { colours, baseline, cells: shown }, width) {
  const size = { width, height: 34, viewBox: `0 0 ${width} 34`, "font-family": FONT };
  const far = reach(answer), end = Number.isInteger(far) ? String(far) : far.toFixed(1);
  const scales = answer.ops ? [["weight", colours.weights, "0", "1"]] : [];
  if (shown === "ops") scales.push(["lead", [colours.operations[0][0], [128, 128, 128]], "even", "alone"]);
  else scales.push(["state", colours.states, `−${end}`, end]);
  const names = scales.map(([name]) => name).join(" and ");
  const parts = svg("svg", { ...size, role: "img", "aria-label": `Scales of ${names}` });
  scales.forEach(([name, ramp, low, high], k) => {
    const x = k * 120, steps = 24;
    for (let step = 0; step < steps; step += 1) {
      const level = (step / (steps - 1)) * LEVELS;
      parts.append(svg("rect", { x: x + step * 4, y: 4, width: 4.3, height: 10, fill: shade(ramp, level) }));
    }
    const label = (where, content, anchor) =>
      parts.append(text(where, 25, content, { "font-size": 11, fill: colours.quiet, "text-anchor": anchor }));
    label(x, low, "start"); label(x + 48, name, "middle"); label(x + 96, high, "end");
  });
  if (baseline) {
    const x = scales.length * 120;
    parts.append(svg("line", { x1: x, x2: x + 34, y1: 9, y2: 9, stroke: colours.ink, "stroke-width": 2 }));
    parts.append(text(x, 25, "all operations", { "font-size": 11, fill: colours.quiet }));
  }
  return parts;
}
