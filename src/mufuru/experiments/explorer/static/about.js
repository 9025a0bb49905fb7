// What the models on the page do, in a sentence for those who come from nowhere.

import { html, visible } from "./dom.js";

const READS = { words: "a text, word by word", characters: "a text, letter by letter", series: "a series of numbers" };
const CELLS = new Map([["mufuru", "MuFuRU"], ["gru", "GRU"], ["lstm", "LSTM"], ["vanilla", "tanh RNN"]]);
const NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];

/** When the gates of a formula give 1; the first value is the result so far, the second stands before the gate. */
export const GATES = new Map([
  ["AND", "both are 1"], ["OR", "one or both are 1"], ["XOR", "just one is 1"], ["XNOR", "both are the same"],
  ["NAND", "not both are 1"], ["NOR", "neither is 1"], ["ABJ", "first and not second"], ["Xq", "second and not first"],
  ["if/then", "not first, or second"], ["then/if", "first, or not second"],
]);

/** Describe the input and the task of the page. */
export function about(infos) {
  const [info] = infos, two = infos.length > 1;
  const who = two ? "Two models read" : "A model reads", say = two ? "say" : "says";
  const back = info.directions > 1 ? " and back" : "";
  if (info.takes === "formula") return `${who} this formula from left to right and ${say} whether it is true (1) or false (0).`;
  return `${who} ${READS[info.takes]}, from left to right${back}, and ${say} ${says(info)}.`;
}

/** The cell of a run, as people write it. */
export function cellOf({ cell }) {
  return CELLS.get(cell) ?? cell;
}

/** What two models are, and why they stand side by side; nothing if they are of the same kind or have no operations. */
export function compared(one, other) {
  if (!other) return "";
  const namesOf = ({ ops }) => ops.map(({ name }) => name).join(", ");
  // two without operations differ in nothing that the page shows
  if (namesOf(one) === namesOf(other) && (one.cell === other.cell || !one.ops.length)) return "";
  let [first, second] = [one, other].map(chooses);
  if (first === second) [first, second] = [one, other].map((info) => `chooses among ${namesOf(info)}`);
  return `Side by side to compare: a memory cell (unit) of ${one.name}, ${article(one)}, ${first}; `
    + `one of ${other.name}, ${article(other)}, ${second}.`;
}

/** What a model is that stands alone; nothing if it has no operations. */
export function alone(info) {
  return info.ops.length ? `${article(info)}: each memory cell (unit) ${chooses(info)}.`.replace(/^a/, "A") : "";
}

function article(info) {
  return `${info.cell === "lstm" ? "an" : "a"} ${cellOf(info)}`;
}

function chooses({ cell, ops }) {
  if (cell === "gru") return "can only keep or replace what it remembers";
  if (!ops.length) return "has no operations to choose from";
  if (ops.length === 1) return `always uses ${ops[0].name}`;
  if (ops.length === 2) return `chooses between ${ops[0].name} and ${ops[1].name}`;
  return `chooses among ${NUMBERS[ops.length] ?? ops.length} operations`;
}

function says(info) {
  if (info.kind === "lm") return "after each token which one may come next";
  if (info.kind === "forecast") return "what comes next";
  if (info.estimates) return `which number belongs to it: ${info.estimates}`;
  if (info.kind === "tag") return "the label of each word";
  return `which label it has: ${info.labels.length > 4 ? `one of ${info.labels.length}` : info.labels.join(", ").replace(/, ([^,]*)$/, " or $1")}`;
}

/** What one column of the figure is called. */
export function columnOf(info) {
  return info.takes === "series" ? "step" : "token";
}

/** A column in a sentence: a token itself, but a step by its number, since it may have many values. */
export function at(answer, info, token) {
  return info.takes === "series" ? `step ${token + 1}` : `“${visible(answer.tokens[token])}”`;
}

/** How many tokens there are. */
export function counted(tokens, info) {
  return `${tokens.length} ${columnOf(info)}${tokens.length === 1 ? "" : "s"}`;
}

/** How a formula is meant: a sentence, and the formula in brackets. */
export function meant(tokens, info) {
  if (info.takes !== "formula" || tokens.length < 3) return [];
  return ["A logical gate such as AND stands after what it joins. Read as ", html("b", {}, inBrackets(tokens)), "."];
}

/** What a gate does; nothing for other tokens. */
export function gateIn(token, info) {
  const meaning = info.takes === "formula" ? GATES.get(token) : null;
  return meaning ? `${token}: ${meaning}` : null;
}

/** A formula as people write it; a gate joins the last value to all before. */
function inBrackets([first, ...rest]) {
  let all = first;
  for (let place = 0; place + 1 < rest.length; place += 2) {
    all = `${place ? `(${all})` : all} ${rest[place + 1]} ${rest[place]}`;
  }
  return all;
}
