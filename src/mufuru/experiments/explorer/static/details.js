// For the chosen token: what the chosen unit's new state is made of, and the prediction after it.

import { at, gateIn } from "./about.js";
import { html, percent, signed, visible } from "./dom.js";

/** The exact sum of contributions, as a table with bars. */
export function decomposition(answer, info, token) {
  const unit = answer.unit;
  if (!unit) return null;
  const now = (name) => unit[name][token];
  const widest = Math.max(1e-6, ...now("contributions").map(Math.abs), Math.abs(now("rest")));
  const rows = answer.ops.map((name, k) =>
    row(name, now("weights")[k].toFixed(3), signed(now("values")[k]), now("contributions")[k], widest));
  if (now("rest")) rows.push(row("zoneout", "", "", now("rest"), widest));
  const columns = ["operation", "weight", "op(s, v)", "contribution"];
  const head = html("tr", {}, ...columns.map((name) => html("th", { scope: "col" }, name)));
  const total = html("th", { scope: "row", colspan: 3 }, "new state, their sum");
  const foot = html("tr", {}, total, html("td", {}, html("b", {}, signed(now("after"), 4))));
  const parts = [html("thead", {}, head), html("tbody", {}, ...rows), html("tfoot", {}, foot)];
  const from = `s: what the unit remembered, ${signed(now("before"), 4)}; v: what it read now, ${signed(now("features"), 4)}`;
  return html("section", { class: "detail" },
    html("h3", {}, `Unit ${unit.index} at ${at(answer, info, token)}`), html("p", { class: "quiet" }, from),
    scrolled("Contributions", html("table", { class: "sum" }, ...parts)));
}

function row(name, weight, value, contribution, widest) {
  const bar = html("i", { class: contribution < 0 ? "minus" : "plus" });
  bar.style.width = `${(50 * Math.abs(contribution)) / widest}%`;
  const share = html("span", { class: "signed" }, bar);
  return html("tr", {},
    html("th", { scope: "row" }, name), html("td", {}, weight), html("td", {}, value),
    html("td", {}, html("div", { class: "share" }, share, html("span", {}, signed(contribution, 4)))));
}

/** The likeliest labels or words after the token. */
export function distribution(answer, info, token, baseline) {
  const { top, truth, came } = answer.predictions[token];
  const before = baseline ? new Map(baseline.predictions[token].top) : null;
  // of many words even the likeliest is seldom likely
  const most = info.kind === "lm" ? top[0][1] || 1 : 1;
  const rows = top.map(([label, p]) => {
    const share = html("i", {});
    share.style.width = `${(100 * p) / most}%`;
    const was = !answer.scale && before && (before.has(label) ? `was ${percent(before.get(label))}` : "was rarer");
    const mark = truth === label ? html("em", {}, " truth") : null;
    return html("li", {},
      html("span", { class: "name" }, visible(label, 40), mark), html("span", { class: "share" }, share),
      answer.scale ? null : html("span", { class: "p" }, percent(p), was ? html("small", {}, was) : null));
  });
  const gate = gateIn(answer.tokens[token], info);
  const next = came === undefined ? null : `“${visible(answer.tokens[token + 1])}” came, with ${percent(came)}`;
  return html("section", { class: "detail" },
    html("h3", {}, `${info.kind === "lm" ? "Next" : "Prediction"} after ${at(answer, info, token)}`),
    gate && html("p", { class: "quiet" }, `${gate} (first: the result so far, second: the value before the gate)`),
    next && html("p", { class: "quiet" }, next), html("ol", { class: answer.scale ? "bars wide" : "bars" }, ...rows));
}

/** A box that scrolls on its own, also by keyboard. */
export function scrolled(name, ...children) {
  return html("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": name }, ...children);
}
