// The words between the rows of a figure: what the marks mean, how the map is read, and the key of its colours.

import { columnOf } from "./about.js";
import { visible, widthOf, wrapped } from "./dom.js";

const SIZE = 11;
const BOLD = 600;
const SPARE = 3;
const SWATCH = 14;
const APART = 10;

/** The captions in lines that fit, and the size of the words in the cells of the map: 0 if there is no room for them. */
export function captions(answer, info, { cells, column, row, width }) {
  const ops = cells === "ops" ? answer.ops.map((name) => visible(name)) : [];
  const longest = (size) => Math.max(...ops.map((name) => widthOf(name, size)));
  // a pixel of the column is the gap to the next
  const fits = (size) => ops.length && row >= 14 && longest(size) + 2 * SPARE + 1 <= column;
  const wordSize = [11, 10].find(fits) ?? 0;
  const marks = info.takes === "formula" ? "✓ right, ✗ wrong; only where the formula so far is complete" : "";
  const what = ops.length ? "Which operation decided each memory cell (unit)" : "State of each memory cell (unit)";
  const title = `${what}, ${columnOf(info)} by ${columnOf(info)}`;
  const note = ["A row is a unit; bold: the chosen one.", info.units > 2 && answer.map && "Similar units are neighbours.",
    ops.length && "Colour: the operation with the most weight; fainter = less."].filter(Boolean).join(" ");
  return {
    wordSize, marks: marks ? wrapped(marks, width, SIZE) : [], title: wrapped(title, width, SIZE, BOLD),
    note: wrapped(note, width, SIZE), key: wordSize ? [] : keyOf(ops, width),
  };
}

/** Names of operations with their places, in rows. */
function keyOf(ops, width) {
  const rows = [];
  let x = 0;
  ops.forEach((name, op) => {
    const needs = SWATCH + widthOf(name, SIZE);
    if (!rows.length || x + needs > width) {
      rows.push([]);
      x = 0;
    }
    rows.at(-1).push({ name, op, x, beside: x + SWATCH });
    x += needs + APART;
  });
  return rows;
}
