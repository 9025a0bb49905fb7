// Every number of a figure as tables, for those who cannot see it, or want to copy it.

import { html, percent, signed, visible } from "./dom.js";
import { scrolled } from "./details.js";
import { leader, states } from "./figure.js";

/** Predictions with weights, states, and leading operations. */
export function tables(answer, mode) {
  const values = states(answer), units = values[0].map((_, k) => `unit ${k}`);
  const shown = values.map((row) => row.map((value) => signed(value, 4)));
  return html("div", { class: "tables" },
    predictions(answer, mode), table("States after each token", answer.tokens, units, shown),
    answer.map ? table("Leading operation of every unit, and its weight", answer.tokens, units, leaders(answer)) : null);
}

function leaders(answer) {
  return answer.map.ops.map((row, t) => row.map((op, unit) => `${answer.ops[op]} ${leader(answer, t, unit).share.toFixed(3)}`));
}

function predictions(answer, mode) {
  const columns = ["prediction", "probability", ...(answer.ops ?? [])];
  const rows = answer.predictions.map(({ top: [[label, p]] }) => [visible(label, 24), percent(p)]);
  if (!answer.ops) return table("Predictions", answer.tokens, columns, rows);
  const one = mode === "one", weights = one ? answer.unit.weights : answer.weights;
  const caption = `Predictions and ${one ? `weights of unit ${answer.unit.index}` : "mean weights"}`;
  const whole = rows.map((row, t) => [...row, ...weights[t].map((value) => value.toFixed(3))]);
  return table(caption, answer.tokens, columns, whole);
}

function table(caption, tokens, columns, rows) {
  const head = (scope, text) => html("th", { scope }, text);
  const body = rows.map((row, t) =>
    html("tr", {}, head("row", visible(tokens[t])), ...row.map((value) => html("td", {}, value))));
  const top = html("tr", {}, head("col", "token"), ...columns.map((name) => head("col", name)));
  const parts = [html("caption", {}, caption), html("thead", {}, top), html("tbody", {}, ...body)];
  return scrolled(caption, html("table", {}, ...parts));
}
