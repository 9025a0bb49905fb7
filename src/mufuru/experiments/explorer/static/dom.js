// Elements of the page and of pictures, and how numbers are written.

export const FONT = 'system-ui, -apple-system, "Segoe UI", "Noto Sans", Roboto, sans-serif';
const SVG = "http://www.w3.org/2000/svg";

/** An HTML element. Text is always text: nothing that was typed is ever read as HTML. */
export function html(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** An SVG element. */
export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

/** A text of a picture, centred in height. */
export function text(x, y, content, attributes = {}) {
  return svg("text", { x, y, "font-size": 12, "dominant-baseline": "central", ...attributes }, content);
}

const ruler = document.createElement("canvas").getContext("2d");

/** The width of a text of a picture. */
export function widthOf(content, size, weight = 400) {
  ruler.font = `${weight} ${size}px ${FONT}`;
  return ruler.measureText(content).width;
}

/** A text in lines of at most this width, broken at blanks. */
export function wrapped(content, width, size, weight) {
  const lines = [];
  for (const word of content.split(" ")) {
    const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
    if (lines.length && widthOf(longer, size, weight) <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

function filled(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** A signed number in few places, with a real minus. */
export function signed(value, digits = 3) {
  const text = Math.abs(value).toFixed(digits);
  return (value < 0 && Number(text) !== 0 ? "−" : "") + text;
}

/** A probability as a percentage that is never rounded to 0 or 100. */
export function percent(p) {
  if (p > 0 && p < 0.001) return "< 0.1 %";
  if (p < 1 && p > 0.999) return "> 99.9 %";
  return `${(100 * p).toFixed(1)} %`;
}

// a map, not an object: that would also find "constructor" and the like
const MARKS = new Map([[" ", "␣"], ["\n", "⏎"], ["\t", "⇥"], ["", "∅"]]);

/** A token with its blanks made visible. */
export function visible(token, most = 14) {
  const shown = MARKS.get(token) ?? token;
  const letters = [...shown];
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : shown;
}
