// The page: state in, panels out. Every change goes through `set`, which asks the server for what is missing.

import * as api from "./api.js";
import { palette } from "./colour.js";
import { picture, savePng, saveSvg } from "./download.js";
import { about, columnOf, compared, counted, meant } from "./about.js";
import { canAsk, deciding, inSentence } from "./deciding.js";
import { html, visible } from "./dom.js";
import { guide } from "./guide.js";
import { learn } from "./learn.js";
import { fromFragment, toFragment } from "./link.js";
import { chosenToken, panel, sayChosen, sayVerdict } from "./panel.js";
import { forRun, switches, union } from "./switches.js";

const SIDE_BY_SIDE = 860;
// a window that is not laid out yet may have no width
const LEAST = 200;
const PAUSE = 250;
const by = (id) => document.getElementById(id);
const PROMPTS = {
  formula: ["Formula", "A value, then value and gate, value and gate: 1 0 AND 1 OR"],
  words: ["Text", "Type a sentence"],
  characters: ["Text", "Type some text"],
  series: ["Series", "Paste numbers, separated by blanks, commas or lines"],
};

let runs = [];
let state;
let shown = [];
let parts = [];
let asked = null;
let hinted = "";

const infoOf = (name) => runs.find((run) => run.name === name);
const peers = (info) => runs.filter((run) => run !== info && run.kind === info.kind && run.takes === info.takes);
const infos = () => [infoOf(state.run), infoOf(state.with)].filter(Boolean);

/** Change the state, and the page with it. */
function set(changes) {
  state = { ...state, ...changes };
  tidy();
  history.replaceState(null, "", toFragment(state));
  controls();
  refresh();
}

/** Names and numbers of a link may be of other runs. */
function tidy() {
  if (!infoOf(state.run)) state.run = runs[0].name;
  const info = infoOf(state.run);
  if (!peers(info).some((run) => run.name === state.with)) state.with = "";
  const most = (field) => Math.max(...infos().map((run) => run[field])) - 1;
  for (const [name, field] of [["unit", "units"], ["layer", "layers"], ["direction", "directions"]]) {
    state[name] = Math.max(0, Math.min(state[name], most(field)));
  }
  const known = union(infos()).map(({ name }) => name);
  state.forbid = state.forbid.filter((name) => known.includes(name));
  if (!known.includes(state.force)) state.force = "";
}

/** Ask for what the state needs, the newest question alone, and draw. */
async function refresh() {
  asked?.abort();
  const mine = new AbortController();
  asked = mine;
  try {
    const answered = await Promise.all(infos().map((info) => answers(info, mine.signal)));
    if (mine.signal.aborted) return;
    shown = answered;
  } catch (error) {
    if (error.name === "AbortError") return;
    shown = infos().map((info) => ({ info, error: error.message }));
  }
  render();
  await hint(mine.signal);
}

/** Say which operation decides the first run's answer, once the user pauses: it takes a pass for each. */
async function hint(signal) {
  const [run] = shown, asks = run && canAsk(run) ? JSON.stringify([run.info.name, state.text]) : "";
  if (asks && asks === hinted) return;
  hinted = "";
  by("deciding").textContent = "";
  by("try").hidden = true;
  if (!asks) return;
  await new Promise((done) => { setTimeout(done, PAUSE); });
  if (signal.aborted) return;
  try {
    // the unit does not matter, and the same question need not be asked for each
    const found = await deciding(run, { ...viewOf(run.info), unit: 0, layer: 0, direction: 0 }, signal);
    if (signal.aborted) return;
    by("deciding").textContent = inSentence(run, found);
    hinted = asks;
    if (!found) return;
    by("try").textContent = `Forbid ${found.op}`;
    by("try").onclick = () => { set({ forbid: [found.op], force: "" }); by(`forbid-${found.op}`).focus(); };
    by("try").hidden = false;
  } catch (error) {
    if (error.name !== "AbortError") by("deciding").textContent = error.message;
  }
}

function viewOf(info) {
  const within = (value, count) => Math.min(value, count - 1);
  return {
    run: info.name, text: state.text, unit: within(state.unit, info.units), layer: within(state.layer, info.layers),
    direction: within(state.direction, info.directions),
  };
}

/** A run's answer, and the one without interventions beside it. */
async function answers(info, signal) {
  if (!state.text.trim() && info.kind !== "lm") return { info };
  const view = viewOf(info);
  const { forbid, force } = forRun(info, state);
  const intervened = forbid.length > 0 || force !== null;
  try {
    const [baseline, answer] = await Promise.all([
      intervened ? api.read(view, signal) : null, api.read(intervened ? { ...view, forbid, force } : view, signal)]);
    return { info, answer, baseline, view: { ...view, forbid, force } };
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return { info, error: error.message };
  }
}

/** Draw everything that depends on answers. */
function render() {
  const panels = by("panels");
  const runOf = (box) => box.closest("[data-run]").dataset.run;
  const inFigure = document.activeElement?.closest(".figure"), focused = inFigure ? runOf(inFigure) : null;
  const figures = [...panels.querySelectorAll(".figure")];
  const scrolled = Object.fromEntries(figures.map((box) => [runOf(box), box.scrollLeft]));
  const beside = shown.length > 1 && panels.clientWidth >= SIDE_BY_SIDE;
  panels.classList.toggle("two", beside);
  const outer = beside ? panels.clientWidth / 2 - 10 : panels.clientWidth;
  const width = Math.max(LEAST, outer - (innerWidth < 600 ? 26 : 42));
  const drawn = shown.map((run) => panel(run, state, width, choose));
  panels.replaceChildren(...drawn.map(({ element }) => element));
  parts = drawn.map((one) => one.parts).filter(Boolean);
  for (const box of panels.querySelectorAll(".figure")) {
    const name = runOf(box);
    box.scrollLeft = scrolled[name] ?? 0;
    showChosen(box);
    if (name === focused) box.focus({ preventScroll: true });
    box.addEventListener("scroll", () => inStep(box));
  }
  afterwards();
}

/** Scroll a figure that is wider than the page as far as the chosen token needs, to the right by whole columns. */
function showChosen(box) {
  const chosen = box.querySelector(".token-frame"), frame = chosen.getBoundingClientRect(), column = chosen.getAttribute("width") - 1;
  const left = box.querySelector(".labels").getBoundingClientRect().right, right = box.getBoundingClientRect().right;
  if (frame.left < left) box.scrollLeft -= left - frame.left + 8;
  if (frame.right > right) box.scrollLeft = column * Math.ceil((box.scrollLeft + frame.right - right) / column);
}

/** Scroll the figures of the other runs as far as this one: the same tokens stay in sight. */
function inStep(box) {
  for (const other of by("panels").querySelectorAll(".figure")) {
    if (other !== box && Math.abs(other.scrollLeft - box.scrollLeft) > 1) other.scrollLeft = box.scrollLeft;
  }
}

/** The text outside of the panels about the answers. */
function afterwards() {
  const messages = [...new Set(shown.filter(({ error }) => error).map(({ error }) => error))];
  by("messages").replaceChildren(...messages.map((text) => html("p", { class: "error" }, text)));
  by("verdict").textContent = shown.filter(({ answer }) => answer).map(sayVerdict).join(" ");
  const first = shown.find(({ answer }) => answer);
  const tokens = first?.answer.tokens ?? [];
  by("count").textContent = first ? counted(tokens, first.info) : "";
  by("meant").replaceChildren(...(first ? meant(tokens, first.info) : []));
  const names = tokens.map((name, t) => html("option", { value: t }, `${t + 1}  ${visible(name)}`));
  by("token").replaceChildren(...names);
  if (first) by("token").value = String(chosenToken(state.token, first.answer));
  for (const id of ["svg", "png"]) by(id).disabled = !parts.length;
  document.body.dataset.ready = String(shown.length);
}

function choose(change) {
  set(change);
  const first = shown.find(({ answer }) => answer);
  if (!first) return;
  const chosen = { token: chosenToken(state.token, first.answer), unit: Math.min(state.unit, first.info.units - 1) };
  by("said").textContent = sayChosen(first.answer, first.info, chosen);
}

/** Bring the controls in line with the state. */
function controls() {
  const info = infoOf(state.run);
  options(by("run"), runs.map(({ name }) => [name, name]), state.run);
  options(by("with"), [["", "nothing"], ...peers(info).map(({ name }) => [name, name])], state.with);
  by("with").disabled = !peers(info).length;
  const [label, prompt] = PROMPTS[info.takes];
  by("text-label").textContent = label;
  by("text").placeholder = prompt;
  by("about").textContent = about(infos());
  by("column").textContent = columnOf(info) === "step" ? "Step" : "Token";
  by("models").textContent = compared(...infos());
  if (by("text").value !== state.text) by("text").value = state.text;
  const chip = (text) => html("button", { type: "button", onclick: () => set({ text, token: -1 }) }, visible(text, 60));
  const chips = info.examples.map(chip);
  if (by("examples").dataset.of !== info.name) by("examples").replaceChildren(...chips);
  by("examples").dataset.of = info.name;
  operations();
  const most = (field) => Math.max(...infos().map((run) => run[field]));
  by("unit").max = most("units") - 1;
  if (by("unit").value !== String(state.unit)) by("unit").value = state.unit;
  options(by("layer"), [...Array(most("layers")).keys()].map((k) => [k, k]), state.layer);
  const directions = ["forward", "reverse"].slice(0, most("directions"));
  options(by("direction"), directions.map((name, k) => [k, name]), state.direction);
  by("layer-label").hidden = most("layers") < 2;
  by("direction-label").hidden = most("directions") < 2;
  for (const name of ["units", "cells"]) {
    for (const radio of document.getElementsByName(name)) radio.checked = radio.value === state[name];
    by(name).hidden = !union(infos()).length;
  }
  by("tables").checked = state.tables;
}

function operations() {
  const ops = union(infos()), focused = document.activeElement?.id;
  by("operations").hidden = !ops.length;
  by("switches").replaceChildren(...switches(ops, state, (forbid, force) => set({ forbid, force })));
  by("allow").hidden = !state.forbid.length && !state.force;
  if (/^(forbid|force)-/.test(focused ?? "")) by(focused)?.focus();
}

function options(select, entries, chosen) {
  const wanted = JSON.stringify(entries);
  if (select.dataset.entries !== wanted) {
    select.replaceChildren(...entries.map(([value, name]) => html("option", { value }, String(name))));
    select.dataset.entries = wanted;
  }
  select.value = String(chosen);
}

function wire() {
  const on = (id, event, action) => by(id).addEventListener(event, action);
  on("run", "change", () => set({ run: by("run").value, with: "", text: textFor(infoOf(by("run").value)), token: -1 }));
  on("with", "change", () => set({ with: by("with").value }));
  on("text", "input", () => set({ text: by("text").value, token: -1 }));
  on("token", "change", () => choose({ token: Number(by("token").value) }));
  on("unit", "input", () => by("unit").value && choose({ unit: Math.trunc(Number(by("unit").value)), units: "one" }));
  on("layer", "change", () => set({ layer: Number(by("layer").value) }));
  on("direction", "change", () => set({ direction: Number(by("direction").value) }));
  for (const name of ["units", "cells"]) on(name, "change", (event) => set({ [name]: event.target.value }));
  on("tables", "change", () => set({ tables: by("tables").checked }));
  on("allow", "click", () => { set({ forbid: [], force: "" }); by("text").focus(); });
  on("link", "click", copyLink);
  on("svg", "click", () => saveSvg(picture(parts, palette()), "mufuru"));
  on("png", "click", () => savePng(picture(parts, palette()), "mufuru"));
  on("theme", "click", nextTheme);
  addEventListener("hashchange", () => set(linked()));
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) render(); width = innerWidth; });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
}

/** The state that the address describes; one without a text begins with an example. */
function linked() {
  const found = fromFragment(location.hash), given = new URLSearchParams(location.hash.slice(1)).has("text");
  return given ? found : { ...found, text: (infoOf(found.run) ?? runs[0]).examples[0] ?? "" };
}

/** The text stays, if the other run can read it. */
function textFor(info) {
  const before = infoOf(state.run);
  return before.kind === info.kind && before.takes === info.takes ? state.text : info.examples[0] ?? "";
}

async function copyLink() {
  const button = by("link");
  try {
    await navigator.clipboard.writeText(location.href);
    button.textContent = "Copied";
  } catch {
    button.textContent = "It is in the address bar";
  }
  setTimeout(() => { button.textContent = "Copy link"; }, 1500);
}

const THEMES = { "": ["◐", "as the system"], light: ["☀", "light"], dark: ["☾", "dark"] };

function showTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  by("theme").textContent = THEMES[theme][0];
  by("theme").setAttribute("aria-label", `Theme: ${THEMES[theme][1]}`);
}

function nextTheme() {
  const names = Object.keys(THEMES), now = document.documentElement.dataset.theme ?? "";
  const next = names[(names.indexOf(now) + 1) % names.length];
  localStorage.setItem("theme", next);
  showTheme(next);
  render();
}

/** Show a run that the server has only now, beside the first one that reads the same. */
async function explore(name) {
  runs = (await api.runs()).runs;
  const info = infoOf(name), text = textFor(info);
  set({ run: name, with: innerWidth < 700 ? "" : peers(info)[0]?.name ?? "", text, token: -1, forbid: [], force: "" });
  by("panels").scrollIntoView({ block: "start" });
}

async function begin() {
  const theme = localStorage.getItem("theme") ?? "";
  showTheme(theme in THEMES ? theme : "");
  try {
    const found = await api.runs();
    runs = found.runs;
    state = linked();
    if (found.learns) learn(by, explore);
  } catch (error) {
    by("messages").replaceChildren(html("p", { class: "error" }, error.message));
    return;
  }
  wire();
  const first = runs.find(({ cell }) => cell === "mufuru") ?? runs[0], fresh = !location.hash;
  // on a phone, a second run would only be in the way; on a wide page it best is of another cell
  const others = peers(first), beside = innerWidth < 700 ? "" : (others.find(({ cell }) => cell !== first.cell) ?? others[0])?.name ?? "";
  set(fresh ? { run: first.name, with: beside } : {});
  guide(by("guide"), by("tour"), fresh);
}

begin();
