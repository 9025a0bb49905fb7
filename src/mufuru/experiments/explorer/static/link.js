// The state of the page, and its way into the address and back: a link shows the same view.

export const DEFAULTS = {
  run: "", with: "", text: "", token: -1, unit: 0, units: "mean", cells: "ops", layer: 0, direction: 0, forbid: [], force: "",
  tables: false,
};

/** The state that an address's fragment describes; the rest has its defaults. */
export function fromFragment(fragment) {
  const given = new URLSearchParams(fragment.replace(/^#/, ""));
  const state = { ...DEFAULTS, forbid: [] };
  for (const [key, fallback] of Object.entries(DEFAULTS)) {
    if (given.has(key)) state[key] = parsed(given.get(key), fallback);
  }
  if (!["mean", "one"].includes(state.units)) state.units = DEFAULTS.units;
  if (!["ops", "states"].includes(state.cells)) state.cells = DEFAULTS.cells;
  return state;
}

function parsed(value, fallback) {
  if (typeof fallback === "number") return Number.isInteger(Number(value)) ? Number(value) : fallback;
  if (typeof fallback === "boolean") return value === "1";
  return Array.isArray(fallback) ? value.split(",").filter(Boolean) : value;
}

/** The fragment of a state; what is as by default is left out. The text is always in, so that an empty one stays. */
export function toFragment(state) {
  const fields = new URLSearchParams();
  for (const [key, fallback] of Object.entries(DEFAULTS)) {
    const value = state[key];
    const text = Array.isArray(value) ? value.join(",") : typeof value === "boolean" ? String(Number(value)) : String(value);
    if (key === "text" || (Array.isArray(fallback) ? value.length : value !== fallback)) fields.set(key, text);
  }
  return `#${fields}`;
}
