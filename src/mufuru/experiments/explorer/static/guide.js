// A guided first visit in four steps. It stands above the page and takes nothing away: no room of the answer, no focus, no click.

import { html } from "./dom.js";

const KEPT = "guide";
const STEPS = [
  ["#text", "What it reads",
    "The model reads this from left to right, one token at a time: a word, a letter, a value. Change it as you like: everything else follows."],
  [".headline", "What it says", "The prediction after the last token, and how sure the model is of it."],
  [".figure", "How it got there",
    "A column for each token, a row for each unit of the model’s memory. The colour is the operation that led: keep the old "
    + "state, replace it, take the larger one … Click a cell, or use the arrow keys, for the exact sum behind it."],
  ["#operations", "What if?",
    "Forbid an operation and the model has to do without: the answer may change. If one operation decides it, the page says "
    + "which one."],
];

/** Show the guide on the first visit, and whenever its button is pressed. */
export function guide(box, button, first) {
  const show = (step) => {
    document.body.dataset.guide = String(step + 1);
    box.replaceChildren(...content(step, show, () => close(box, button)));
    box.hidden = false;
  };
  button.addEventListener("click", () => { show(0); box.querySelector(".next").focus(); });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && !box.hidden) close(box, button); });
  if (first && localStorage.getItem(KEPT) === null) show(0);
}

function content(step, show, end) {
  const [, title, text] = STEPS[step], last = step === STEPS.length - 1;
  const go = (target, name) => {
    show(target);
    document.querySelector(STEPS[target][0])?.scrollIntoView({ block: "nearest" });
    document.querySelector(`#guide .${name}`).focus();
  };
  const make = (look, name, onclick) => html("button", { type: "button", class: look, onclick }, name);
  return [
    html("h2", {}, title), html("p", { "aria-live": "polite" }, text),
    html("div", { class: "steps" },
      html("span", { class: "quiet" }, `Step ${step + 1} of ${STEPS.length}`),
      last ? null : make("end", "Skip", end),
      step ? make("back", "Back", () => go(step - 1, step === 1 ? "next" : "back")) : null,
      last ? make("next", "Done", end) : make("next", "Next", () => go(step + 1, "next"))),
  ];
}

function close(box, button) {
  const inside = box.contains(document.activeElement);
  box.hidden = true;
  delete document.body.dataset.guide;
  localStorage.setItem(KEPT, "done");
  if (inside) button.focus();
}
