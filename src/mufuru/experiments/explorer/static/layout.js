// Where everything stands in a figure: one column for each token; from top to bottom tokens, prediction, units, weights.

const LABELS = 92;
const RIGHT = 10;
const LETTER = 6.2;
const NARROW = { formula: 33, words: 38, characters: 18, series: 4 };
const WIDEST = 76;
const TALLEST = 260;
const CHART = 96;

/** All measures of a figure of these tokens for a page of this width; `order` has the unit of each row. */
export function layout(tokens, ops, order, takes, width) {
  const units = order.length;
  const longest = Math.max(...tokens.map((token) => [...token].length));
  // no gate is slanted
  const narrow = takes === "formula" ? Math.max(NARROW.formula, longest * LETTER + 3) : NARROW[takes];
  const column = Math.min(WIDEST, Math.max(narrow, (width - LABELS - RIGHT) / tokens.length));
  // numbers are drawn as a line, and only their places are written
  const chart = takes === "series" ? CHART : 0;
  const slanted = !chart && longest * LETTER + 2 > column;
  const head = chart || (slanted ? Math.min(100, 18 + longest * LETTER * 0.82) : 28);
  const every = chart ? Math.ceil(36 / column) : slanted ? Math.max(1, Math.ceil(15 / column)) : 1;
  const row = Math.max(3, Math.min(18, TALLEST / units));
  const sizes = { order, chart, labels: LABELS, column, slanted, every, head, row, prediction: head + (chart ? 34 : 14), bars: 56, op: 24 };
  const first = sizes.prediction + sizes.bars + 30, map = units * row, table = ops * sizes.op;
  // the map first, unless it is so tall that the weights would be out of sight
  const below = map > TALLEST && ops > 0;
  sizes.units = first + (below ? table + 32 : 0);
  sizes.weights = first + (below ? 0 : map + 32);
  sizes.height = first + map + (ops ? table + 32 : 0) + 6;
  sizes.body = Math.ceil(column * tokens.length + (slanted ? Math.max(RIGHT, longest * LETTER * 0.55 - column / 2) : RIGHT));
  return sizes;
}

/** The token, operation and unit under a point of the body. */
export function under(place, x, y, tokens, ops) {
  const within = (value, count) => (value >= 0 && value < count ? value : -1);
  return {
    token: within(Math.floor(x / place.column), tokens),
    op: within(Math.floor((y - place.weights) / place.op), ops),
    unit: place.order[Math.floor((y - place.units) / place.row)] ?? -1,
  };
}
