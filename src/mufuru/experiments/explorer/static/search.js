// Where else a unit used its operations alike: the tokens of the texts that were kept with the run.

import * as api from "./api.js";
import { html, visible } from "./dom.js";

/** A button that searches, and the list of what it finds; `column` is what to find, `choose` shows it. */
export function search(place, column, choose) {
  const list = html("div", { role: "status" });
  const button = html("button", { type: "button", class: "find" }, `Find ${column}s where this unit used operations alike`);
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      list.replaceChildren(...results(await api.alike(place), choose));
    } catch (error) {
      list.replaceChildren(html("p", { class: "error" }, error.message));
    }
    button.disabled = false;
  });
  return html("div", { class: "search" }, button, list);
}

function results({ found, texts }, choose) {
  if (!found.length) return [html("p", { class: "quiet" }, "The run has kept no examples to search.")];
  const what = `Of ${texts} validation examples, those where its contributions differ least, summed over the operations:`;
  const items = found.map(({ text, token, difference, around, at }) => {
    const words = around.flatMap((word, k) => [k === at ? html("mark", {}, visible(word)) : visible(word), " "]);
    return html("li", {}, html("button", { type: "button", onclick: () => choose({ text, token }) }, ...words),
      html("span", { class: "quiet" }, difference.toFixed(3)));
  });
  return [html("p", { class: "quiet" }, what), html("ol", {}, ...items)];
}
