// Pictures as files: all figures that are shown, side by side, as SVG or PNG.

import { svg, visible } from "./dom.js";

const EDGE = 20;
const TITLE = 58;

/** One picture of all figures: `parts` are `{title, subtitle, labels, body, legend}`. */
export function picture(parts, colours) {
  let x = EDGE;
  const placed = parts.map((part) => {
    const [labels, body, scale] = [part.labels, part.body, part.legend].map(sizeOf);
    const width = Math.max(labels.width + body.width, scale.width, 300);
    const group = svg("g", { transform: `translate(${x} ${EDGE})` },
      svg("text", { x: 0, y: 14, "font-size": 17, "font-weight": 700, fill: colours.ink }, part.title),
      svg("text", { x: 0, y: 36, "font-size": 13, fill: colours.quiet }, visible(part.subtitle, Math.floor(width / 7))),
      moved(part.labels, 0, TITLE), moved(part.body, labels.width, TITLE),
      moved(part.legend, labels.width, TITLE + body.height + 10));
    x += width + 2 * EDGE;
    return { group, height: EDGE + TITLE + body.height + 10 + scale.height + EDGE };
  });
  const width = x - EDGE, height = Math.max(...placed.map((part) => part.height));
  const fonts = { "font-family": parts[0].body.getAttribute("font-family") };
  const size = { width, height, viewBox: `0 0 ${width} ${height}` };
  return svg("svg", { xmlns: "http://www.w3.org/2000/svg", ...size, ...fonts },
    svg("rect", { width, height, fill: colours.ground }), ...placed.map((part) => part.group));
}

function sizeOf(element) {
  return { width: Number(element.getAttribute("width")), height: Number(element.getAttribute("height")) };
}

function moved(element, x, y) {
  return svg("g", { transform: `translate(${x} ${y})` }, ...[...element.childNodes].map((node) => node.cloneNode(true)));
}

/** Save the picture as SVG. */
export function saveSvg(drawing, name) {
  save(asBlob(drawing), `${name}.svg`);
}

/** Save the picture as PNG, with two dots for each point. */
export async function savePng(drawing, name) {
  const { width, height } = sizeOf(drawing);
  const address = URL.createObjectURL(asBlob(drawing));
  const image = new Image();
  image.src = address;
  await image.decode();
  // a canvas has an end
  const scale = Math.min(2, 16000 / Math.max(width, height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(address);
  save(await new Promise((done) => canvas.toBlob(done, "image/png")), `${name}.png`);
}

function asBlob(drawing) {
  return new Blob([new XMLSerializer().serializeToString(drawing)], { type: "image/svg+xml" });
}

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
