// A strip of a whole text that is wider than the page: what led at every token, and which part is in sight.

import { LEVELS, rampOf, shade } from "./colour.js";
import { svg } from "./dom.js";
import { ceiling, focus } from "./predictions.js";

const HEIGHT = 26;
const LED = 8;

/** The strip for a figure that scrolls; it follows the figure, and the figure follows a press on it. */
export function overview(answer, info, place, width, colours, box) {
  const column = width / answer.tokens.length, most = ceiling(answer, info);
  const marks = answer.tokens.flatMap((_, t) => marksOf(answer, info, t, column, most, colours));
  const sight = svg("rect", { y: 1, height: HEIGHT - 2, rx: 3, fill: "none", stroke: colours.accent, "stroke-width": 2 });
  const size = { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}` };
  const strip = svg("svg", { class: "overview", "aria-hidden": "true", ...size }, ...marks, sight);
  const share = width / place.body;
  const follow = () => {
    const seen = Math.max(0, box.clientWidth - place.labels);
    sight.setAttribute("x", Math.min(box.scrollLeft * share, width - 4));
    sight.setAttribute("width", Math.max(4, Math.min(width, seen * share)));
  };
  const go = (event) => {
    const x = event.clientX - strip.getBoundingClientRect().left;
    box.scrollLeft = x / share - (box.clientWidth - place.labels) / 2;
  };
  strip.addEventListener("pointerdown", (event) => { strip.setPointerCapture(event.pointerId); go(event); });
  strip.addEventListener("pointermove", (event) => { if (event.buttons) go(event); });
  box.addEventListener("scroll", follow);
  requestAnimationFrame(follow);
  return strip;
}

/** A token's prediction as a bar, on the colour of the operation with the largest mean weight. */
function marksOf(answer, info, t, column, most, colours) {
  const x = t * column, room = HEIGHT - LED - 2, p = focus(answer.predictions[t], info).p ?? 0;
  const tall = Math.max(1, room * Math.min(1, p / most)), width = Math.max(0.5, column - 0.5);
  const parts = [svg("rect", { x, width, y: 1 + room - tall, height: tall, fill: colours.bar })];
  if (answer.ops) {
    const weights = answer.weights[t], op = weights.indexOf(Math.max(...weights));
    parts.push(svg("rect", { x, width, y: HEIGHT - LED - 1, height: LED, fill: shade(rampOf(colours, op), LEVELS) }));
  }
  return parts;
}
