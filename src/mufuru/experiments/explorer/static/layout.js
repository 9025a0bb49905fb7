// Where everything stands in a figure: one column for each token; from top to bottom tokens, prediction, units, weights.

const LABELS = 92;
const RIGHT = 10;
const LETTER = 6.2;
const NARROW = { formula: 33, words: 38, characters: 18, series: 4 };
const WIDEST = 76;
const TALLEST = 260;
const CHART = 96;
const LEAST = 300;

const TEXT = 14;
const KEY = 16;

/** The width of a column, the height of a unit's row, and how wide the captions of such a figure may be. */
export function measures(tokens, units, takes, width) {
  // no gate is slanted
  const narrow = takes === "formula" ? Math.max(NARROW.formula, longestOf(tokens) * LETTER + 3) : NARROW[takes];
  const fit = (end) => Math.min(WIDEST, Math.max(narrow, (width - LABELS - end) / tokens.length));
  // the last name may lean over the end
  const longest = longestOf(tokens), upright = fit(RIGHT), leans = takes !== "series" && longest * LETTER + 2 > upright;
  const end = leans ? Math.max(RIGHT, longest * LETTER * 0.55 - upright / 2) : RIGHT, room = width - LABELS - end;
  let column = fit(end);
  // whole columns are in sight where a figure ends that scrolls: half a number reads as another one
  if (column * tokens.length > room + 1) column = room / Math.max(1, Math.floor(room / column));
  return { column, end, row: Math.max(3, Math.min(18, TALLEST / units)), width: Math.min(width, Math.max(LEAST, LABELS + column * tokens.length)) };
}

function longestOf(tokens) {
  return Math.max(...tokens.map((token) => [...token].length));
}

/** All measures of a figure of these tokens; `order` has the unit of each row, `captions` the words between the rows. */
export function layout(tokens, ops, order, takes, { column, row, end }, captions) {
  const units = order.length, longest = longestOf(tokens);
  // numbers are drawn as a line, and only their places are written
  const chart = takes === "series" ? CHART : 0;
  const slanted = !chart && longest * LETTER + 2 > column;
  const head = chart || (slanted ? Math.min(100, 18 + longest * LETTER * 0.82) : 28);
  const every = chart ? Math.ceil(36 / column) : slanted ? Math.max(1, Math.ceil(15 / column)) : 1;
  const sizes = { order, captions, chart, labels: LABELS, column, slanted, every, head, row, prediction: head + (chart ? 34 : 16), bars: 56, op: 24 };
  sizes.marks = sizes.prediction + sizes.bars + TEXT;
  const { marks, title, note, key } = captions;
  const lines = title.length + note.length - 1;
  const first = sizes.prediction + sizes.bars + (marks.length ? marks.length * TEXT + 6 : 0) + 30;
  const words = lines * TEXT + key.length * KEY;
  const map = words + units * row, table = ops * sizes.op;
  // the map first, unless it is so tall that the weights would be out of sight
  const below = units * row > TALLEST && ops > 0;
  sizes.heading = first + (below ? table + 32 : 0) - 12;
  sizes.key = sizes.heading + lines * TEXT + KEY;
  sizes.units = sizes.heading + words + 12;
  sizes.weights = first + (below ? 0 : map + 32);
  sizes.height = first + map + (ops ? table + 32 : 0) + 6;
  sizes.body = Math.ceil(column * tokens.length + end);
  return sizes;
}

/** Where the lines of a caption stand that begins at this height. */
export function linesAt(top, lines) {
  return lines.map((content, k) => [top + k * TEXT, content]);
}

/** Where the rows of the key stand. */
export function keyAt({ key, captions }) {
  return captions.key.map((row, k) => [key + k * KEY, row]);
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
