// Colours that the colour-blind can tell apart: weights run along one path from dark to light, states from blue over the
// ground to orange. Both also order in grey. Operations have Okabe and Ito's colours, as in `mufuru.plot`.

const MAKO = ["#0B0405", "#2B1C35", "#3E356B", "#3B5698", "#357BA2", "#38AAAC", "#79D6AE", "#DEF5E5"].map(rgb);
const OPERATIONS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#666666", "#F0E442"].map(rgb);
// a third lighter than theirs, so that black can be read on all of them
const FULL = OPERATIONS.map((colour) => colour.map((value) => Math.round(value + (255 - value) / 3)));
const LIGHT = {
  ground: "#ffffff", ink: "#1d2129", quiet: "#5a6270", line: "#dcdfe4", accent: "#0b6b63", bar: "#348FA7",
  weights: [rgb("#f4f8f6"), ...MAKO.slice(1).reverse()], states: ["#0b4f94", "#7db0dd", "#f6f5f2", "#f0a868", "#a84300"].map(rgb),
  operations: FULL.map((colour) => [rgb("#ffffff"), colour]),
};
const DARK = {
  ground: "#1b1e24", ink: "#eceef2", quiet: "#a3abb8", line: "#383d47", accent: "#6ee0cb", bar: "#40B7AD",
  weights: [rgb("#20242b"), ...MAKO.slice(1)], states: ["#8cc8ff", "#2f6aa3", "#22262d", "#a85a1c", "#ffb877"].map(rgb),
  // the grey would be lost on a dark ground
  operations: FULL.with(6, rgb("#B4B8C0")).map((colour) => [rgb("#1b1e24"), colour]),
};
export const LEVELS = 64;

/** The colours of the theme that is on. */
export function palette() {
  const chosen = document.documentElement.dataset.theme;
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  return dark ? DARK : LIGHT;
}

/** A step of a ramp, of `LEVELS` + 1. */
export function shade(ramp, level) {
  const place = (level / LEVELS) * (ramp.length - 1);
  const low = Math.min(Math.floor(place), ramp.length - 2);
  const mixed = ramp[low].map((value, k) => Math.round(value + (ramp[low + 1][k] - value) * (place - low)));
  return `rgb(${mixed.join(",")})`;
}

/** The step that a number takes between two bounds. */
export function levelOf(value, low, high) {
  return Math.max(0, Math.min(LEVELS, Math.round(((value - low) / (high - low)) * LEVELS)));
}

/** The colours of an operation, from none of the weight to all of it; further operations repeat them. */
export function rampOf(colours, op) {
  return colours.operations[op % colours.operations.length];
}

/** Black or white, whichever is easier to read on that colour (WCAG's relative luminance). */
export function inkOn(colour) {
  const linear = (c) => (c <= 10 ? c / 3294 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const [red, green, blue] = colour.match(/\d+/g).map(Number).map(linear);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000000" : "#ffffff";
}

function rgb(hex) {
  return [1, 3, 5].map((place) => parseInt(hex.slice(place, place + 2), 16));
}
