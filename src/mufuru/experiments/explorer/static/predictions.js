// The meaning of a prediction for each kind of run.

import { percent, visible } from "./dom.js";

/** The title of the row of bars, in two lines. */
export function titleOf(info) {
  if (info.estimates) return ["Estimate:", visible(info.estimates, 13)];
  if (info.kind === "lm") return ["Probability", "of what came"];
  return ["Probability", info.labels.length === 2 ? `of ${visible(info.labels[1], 10)}` : "of the likeliest"];
}

/** The probability that a bar shows, and a mark above it. */
export function focus(prediction, info) {
  if (info.kind === "lm") return { p: prediction.came ?? null, mark: "" };
  if (info.kind === "tag") return { p: prediction.top[0][1], mark: prediction.top[0][0] };
  if (info.labels.length !== 2) return { p: prediction.top[0][1], mark: "" };
  const p = Object.fromEntries(prediction.top)[info.labels[1]];
  return { p, mark: prediction.truth ? (prediction.truth === prediction.top[0][0] ? "✓" : "✗") : "" };
}

/** The top of the scale of the bars. The next of many words is seldom likely: its scale ends at a round number above. */
export function ceiling(answer, info) {
  if (info.kind !== "lm") return 1;
  const most = Math.max(1e-4, ...answer.predictions.map((prediction) => prediction.came ?? 0));
  const size = 10 ** Math.floor(Math.log10(most));
  return Math.min(1, [1, 2, 5, 10].find((step) => step * size >= most) * size);
}

/** A prediction in words. */
export function inWords(prediction, { scale }, info) {
  const [label, p] = prediction.top[0];
  if (info.kind === "lm") return `${named(label, info)} comes next, ${percent(p)}`;
  if (scale) return visible(label, 40);
  const right = prediction.truth ? (prediction.truth === label ? ", which is right" : ", which is wrong") : "";
  return `${visible(label, 30)}, ${percent(p)}${right}`;
}

/** A label; the next token of a text, which may be a comma, in quotation marks. */
export function named(label, info) {
  return info.kind === "lm" ? `“${visible(label, 40)}”` : visible(label, 40);
}
