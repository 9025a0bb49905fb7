// Where everything stands in a figure: one column for each token; from top to bottom tokens, prediction, weights, states.

const LABELS = 92;
const RIGHT = 10;
const LETTER = 6.8;
const NARROW = { formula: 54, words: 38, characters: 18, series: 5 };
const WIDEST = 76;

/** All measures of a figure of these tokens for a page of this width. */
export function layout(tokens, ops, units, takes, width) {
  const column = Math.min(WIDEST, Math.max(NARROW[takes], (width - LABELS - RIGHT) / tokens.length));
  const longest = Math.max(...tokens.map((token) => [...token].length));
  const slanted = longest * LETTER + 6 > column;
  const head = slanted ? Math.min(100, 18 + longest * LETTER * 0.82) : 28;
  const every = slanted ? Math.max(1, Math.ceil(15 / column)) : 1;
  const row = Math.max(3, Math.min(18, 260 / units));
  const sizes = { labels: LABELS, column, slanted, every, head, row, prediction: head + 14, bars: 56, op: 24 };
  sizes.weights = sizes.prediction + sizes.bars + 30;
  sizes.states = sizes.weights + (ops ? ops * sizes.op + 32 : 0);
  sizes.height = sizes.states + units * row + 6;
  sizes.body = Math.ceil(column * tokens.length + (slanted ? Math.max(RIGHT, longest * LETTER * 0.55 - column / 2) : RIGHT));
  return sizes;
}

/** The token, operation and unit under a point of the body. */
export function under(place, x, y, tokens, ops, units) {
  const within = (value, count) => (value >= 0 && value < count ? value : -1);
  return {
    token: within(Math.floor(x / place.column), tokens),
    op: within(Math.floor((y - place.weights) / place.op), ops),
    unit: within(Math.floor((y - place.states) / place.row), units),
  };
}
