// One run on the page: its headline, its figure, and what is behind the chosen token and unit.

import { alone, at, cellOf, columnOf, counted } from "./about.js";
import { captions } from "./captions.js";
import { palette } from "./colour.js";
import { decomposition, distribution } from "./details.js";
import { html, percent, signed, visible } from "./dom.js";
import { draw, leader, legend, states } from "./figure.js";
import { layout, measures, under } from "./layout.js";
import { overview } from "./overview.js";
import { inWords, named } from "./predictions.js";
import { forRun } from "./switches.js";
import { search } from "./search.js";
import { tables } from "./tables.js";

/** A run's element, and its picture's parts for a download. `choose({token, unit})` is called on clicks and keys. */
export function panel({ info, answer, baseline, error, view }, state, width, choose) {
  const name = { "aria-label": info.name, "data-run": info.name };
  const element = html("article", { class: "card panel", ...name }, html("h2", {}, info.name));
  if (!answer) {
    element.append(html("p", { class: error ? "error" : "quiet" }, error ?? "Nothing to read yet."));
    return { element, parts: null };
  }
  const chosen = { token: chosenToken(state.token, answer), unit: Math.min(state.unit, info.units - 1) };
  const tokens = answer.tokens.map((token) => visible(token));
  // with interventions, the rows stay where they were without
  const order = (baseline ?? answer).map?.order ?? [...Array(info.units).keys()];
  const cells = answer.map ? state.cells : "states", room = measures(tokens, info.units, info.takes, width);
  const words = captions(answer, info, { cells, ...room });
  const place = layout(tokens, answer.ops?.length ?? 0, order, info.takes, room, words);
  const look = { colours: palette(), mode: state.units, cells, baseline, description: description(answer, info) };
  const options = { ...chosen, ...look };
  const picture = { ...draw(answer, info, place, options), legend: legend(answer, options, place, Math.min(width, 340)) };
  const readout = html("p", { class: "readout quiet" }, sayChosen(answer, info, chosen));
  const behind = decomposition(answer, info, chosen.token) ?? noOperations(info);
  if (answer.unit) behind.append(search({ ...view, token: chosen.token }, columnOf(info), choose));
  const box = figure(picture, answer, info, place, chosen, readout, choose);
  const wider = place.labels + place.body > 1.25 * width;
  element.append(
    headline(answer, info, baseline),
    html("p", { class: "quiet facts" }, facts(info), state.with ? null : html("span", {}, alone(info))),
    ...answer.notes.map((note) => html("p", { class: "note" }, note)),
    ...(wider ? [overview(answer, info, place, width, options.colours, box)] : []),
    box,
    readout,
    html("div", { class: "scales" }, picture.legend),
    html("div", { class: "details" }, distribution(answer, info, chosen.token, baseline), behind),
  );
  if (state.tables) element.append(tables(answer, state.units));
  return { element, parts: { ...picture, ...titles(answer, info, state, tokens) } };
}

/** The chosen token; below 0 it is the last one. */
export function chosenToken(token, answer) {
  return token < 0 ? answer.tokens.length - 1 : Math.min(token, answer.tokens.length - 1);
}

/** A run's last prediction in a sentence, for the place where operations are forbidden. */
export function sayVerdict({ info, answer, baseline }) {
  const now = inWords(answer.predictions.at(-1), answer, info), before = baseline && inWords(baseline.predictions.at(-1), baseline, info);
  return `${info.name} says ${now}${before ? ` (with all operations ${before})` : ""}.`;
}

/** The text of the live region. */
export function sayChosen(answer, info, { token, unit }) {
  const all = answer.tokens.length;
  const where = info.takes === "series"
    ? `Step ${token + 1} of ${all} (${visible(answer.tokens[token])})` : `${at(answer, info, token)}, token ${token + 1} of ${all}`;
  return `${where}: ${inWords(answer.predictions[token], answer, info)}; ${sayUnit(answer, token, unit)}`;
}

function sayUnit(answer, token, unit) {
  const state = `state of unit ${unit}: ${signed(states(answer)[token][unit])}`;
  if (!answer.map) return state;
  const { op, share } = leader(answer, token, unit);
  return `${state}, led by ${answer.ops[op]} with ${percent(share)}`;
}

/** The title of a saved picture. */
function titles(answer, info, state, tokens) {
  const { forbid, force } = forRun(info, state);
  const without = [...(force ? [`${force} alone`] : []), ...(forbid.length ? [`without ${forbid.join(", ")}`] : [])];
  const text = tokens.join(info.takes === "characters" ? "" : " ");
  return {
    title: `${info.name} (${info.cell}, ${info.units} units)`,
    subtitle: `${without.length ? `${without.join(", ")}: ` : ""}${text} → ${inWords(answer.predictions.at(-1), answer, info)}`,
  };
}

function facts(info) {
  const count = (n, name) => `${n.toLocaleString("en")} ${name}${n === 1 ? "" : "s"}`;
  const found = [cellOf(info), count(info.units, "unit")];
  if (info.layers > 1) found.push(count(info.layers, "layer"));
  found.push(count(info.parameters, "parameter"));
  const { accuracy, perplexity, rmse, mase } = info.scores;
  if (accuracy !== undefined) found.push(`test accuracy ${(100 * accuracy).toFixed(1)} %`);
  if (perplexity !== undefined) found.push(`test perplexity ${perplexity.toFixed(1)}`);
  if (rmse !== undefined) found.push(`test RMSE ${rmse.toPrecision(3)}`);
  if (mase !== undefined) found.push(`test MASE ${mase.toPrecision(3)}`);
  return found.join(" · ");
}

/** The last prediction, and the one with all operations. */
function headline(answer, info, baseline) {
  const { top, truth } = answer.predictions.at(-1), [label, p] = top[0], right = truth === label;
  const what = info.estimates || { lm: "next", tag: `“${visible(answer.tokens.at(-1))}” is` }[info.kind] || "";
  const parts = [html("b", {}, named(label, info))];
  if (what) parts.unshift(html("span", { class: "quiet" }, what));
  if (!info.estimates) parts.push(html("span", { class: "p" }, percent(p)));
  if (truth) parts.push(html("span", { class: right ? "right" : "wrong" }, right ? "✓ right" : `✗ it is ${truth}`));
  if (baseline) {
    const [before, was] = baseline.predictions.at(-1).top[0];
    const change = `with all operations: ${named(before, info)}${info.estimates ? "" : ` ${percent(was)}`}`;
    parts.push(html("span", { class: before === label ? "quiet" : "changed" }, change));
  }
  return html("p", { class: "headline" }, ...parts);
}

function noOperations(info) {
  const why = `A layer of the cell ${info.cell} does not choose between operations: its states are all there is to see.`;
  return html("section", { class: "detail" }, html("h3", {}, "No operations"), html("p", { class: "quiet" }, why));
}

function description(answer, info) {
  const rows = `predictions, ${answer.ops ? "operation weights, leading operations and " : ""}states over ${counted(answer.tokens, info)}`;
  const end = `It says ${inWords(answer.predictions.at(-1), answer, info)}. All numbers are in the tables.`;
  return `Figure of ${info.name}: ${rows}. ${end}`;
}

/** The picture, with its reactions to the pointer, clicks and arrow keys. */
function figure({ labels, body }, answer, info, place, chosen, readout, choose) {
  const tokens = answer.tokens.length, ops = answer.ops?.length ?? 0;
  const pointed = (event) => {
    const box = body.getBoundingClientRect();
    return under(place, event.clientX - box.left, event.clientY - box.top, tokens, ops);
  };
  const say = (text) => { readout.textContent = text ?? sayChosen(answer, info, chosen); };
  body.addEventListener("pointermove", (event) => say(sayUnder(answer, info, pointed(event))));
  body.addEventListener("pointerleave", () => say());
  body.addEventListener("click", (event) => {
    const { token, unit } = pointed(event);
    if (token >= 0) choose({ token, ...(unit >= 0 ? { unit } : {}) });
  });
  const onkeydown = (event) => move(event, chosen, tokens, place.order, choose);
  const name = `Figure of ${info.name}: the arrow keys choose ${columnOf(info)} and unit`;
  const box = { class: "figure", tabindex: 0, role: "group", "aria-label": name, onkeydown };
  return html("div", box, html("div", { class: "labels" }, labels), body);
}

function move(event, { token, unit }, tokens, order, choose) {
  const clamp = (value, count) => Math.max(0, Math.min(count - 1, value)), row = order.indexOf(unit);
  const target = {
    ArrowLeft: { token: clamp(token - 1, tokens) }, ArrowRight: { token: clamp(token + 1, tokens) },
    ArrowUp: { unit: order[clamp(row - 1, order.length)] }, ArrowDown: { unit: order[clamp(row + 1, order.length)] },
    Home: { token: 0 }, End: { token: tokens - 1 },
  }[event.key];
  if (!target || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  choose(target);
}

function sayUnder(answer, info, { token, op, unit }) {
  if (token < 0) return null;
  const name = at(answer, info, token);
  if (op >= 0) {
    const [mean, own] = [answer.weights, answer.unit.weights].map((rows) => rows[token][op].toFixed(3));
    return `${name}, ${answer.ops[op]}: mean weight ${mean}, in unit ${answer.unit.index} ${own}`;
  }
  if (unit >= 0) return `${name}, ${sayUnit(answer, token, unit)}`;
  return `${name}: ${inWords(answer.predictions[token], answer, info)}`;
}
