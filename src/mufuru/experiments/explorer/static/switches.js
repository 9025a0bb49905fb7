// Two switches for each operation: forbid it, or force it.

import { html } from "./dom.js";

/** The operations of all runs that are shown, each once. */
export function union(infos) {
  const byName = new Map();
  for (const info of infos) for (const op of info.ops) if (!byName.has(op.name)) byName.set(op.name, op);
  return [...byName.values()];
}

/** The switches; `change(forbid, force)` is called with the choice. */
export function switches(ops, { forbid, force }, change) {
  return ops.map(({ name, formula, meaning }) => {
    const forbidden = forbid.includes(name), forced = force === name;
    const others = forbid.filter((other) => other !== name);
    const toggleForbid = () => change(forbidden ? others : [...forbid, name], forced ? "" : force);
    const toggleForce = () => change(others, forced ? "" : name);
    const look = `op${forbidden ? " off" : ""}${forced ? " on" : ""}`;
    return html("div", { class: look, role: "group", "aria-label": name, title: meaning },
      html("div", { class: "what" }, html("b", {}, name), html("code", {}, formula)),
      button("forbid", name, forbidden, toggleForbid), button("force", name, forced, toggleForce));
  });
}

function button(what, name, pressed, action) {
  const state = { "aria-pressed": String(pressed), "aria-label": `${what} ${name}` };
  return html("button", { type: "button", id: `${what}-${name}`, ...state, onclick: action }, what);
}

/** The part of the choice that concerns a run, which may lack some operations. */
export function forRun(info, { forbid, force }) {
  const own = new Set(info.ops.map(({ name }) => name));
  return { forbid: forbid.filter((name) => own.has(name)), force: own.has(force) ? force : null };
}
