// A series of numbers as a line over the same columns as everything beneath it.

import { rampOf, shade, LEVELS } from "./colour.js";
import { svg, text } from "./dom.js";

const TOP = 22;

/** A line for every channel, a dot at the chosen step, and the numbers of some steps above. */
export function chart(answer, place, { colours, token }) {
  const steps = valuesOf(answer), bounds = boundsOf(steps), end = steps.length * place.column;
  const x = (t) => (t + 0.5) * place.column, y = (value) => level(value, bounds, place);
  const edge = (at) => svg("line", { x1: 0, x2: end, y1: at, y2: at, stroke: colours.line });
  const parts = [edge(TOP), edge(place.head)];
  steps[0].forEach((_, channel) => {
    const colour = steps[0].length === 1 ? colours.ink : shade(rampOf(colours, channel), LEVELS);
    const points = steps.map((row, t) => `${x(t).toFixed(1)},${y(row[channel]).toFixed(1)}`).join(" ");
    const look = { fill: "none", stroke: colour, "stroke-width": 1.8, "stroke-linejoin": "round" };
    parts.push(svg("polyline", { points, class: "series", ...look }));
    parts.push(svg("circle", { cx: x(token), cy: y(steps[token][channel]), r: 4, fill: colours.accent }));
  });
  steps.forEach((_, t) => {
    const near = t !== token && Math.abs(t - token) < place.every;
    if (t !== token && (t % place.every || near)) return;
    const look = t === token ? { fill: colours.accent, "font-weight": 700 } : { fill: colours.quiet };
    parts.push(text(x(t), 8, String(t + 1), { "text-anchor": "middle", "font-size": 11, ...look }));
  });
  return parts;
}

/** The title and both ends of the scale. */
export function chartLabels(answer, place, at, title) {
  const [low, high] = boundsOf(valuesOf(answer));
  const small = { "font-size": 10 };
  const ends = low === high ? [low] : [low, high];
  return [title(20, "Series"), ...ends.map((value) => at(level(value, [low, high], place), written(value), small))];
}

/** A number of the data in few places. */
export function written(value) {
  return String(Number(value.toPrecision(3))).replace("-", "−");
}

/** The numbers of every step, one for each channel, as far as tokens show them. */
function valuesOf(answer) {
  return answer.tokens.map((token) => token.split(" ").map(Number));
}

function boundsOf(steps) {
  const all = steps.flat();
  return [Math.min(...all), Math.max(...all)];
}

function level(value, [low, high], place) {
  const share = high > low ? (value - low) / (high - low) : 0.5;
  return place.head - 4 - share * (place.head - TOP - 8);
}
