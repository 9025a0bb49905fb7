// Watch it learn: a lesson is trained by the server, and this card starts it, asks how it is, and draws its curves.

import * as api from "./api.js";
import { palette, rampOf, shade, LEVELS } from "./colour.js";
import { html, percent, svg, text } from "./dom.js";

const PERIOD = 400;
const SIZE = { width: 460, height: 190, left: 40, right: 10, top: 24, bottom: 22 };
const SAID = {
  none: "", running: "It learns.", pausing: "It pauses.", paused: "Paused.", finished: "It has finished.", failed: "It failed:",
};

/** Bring the card to life; `explore(name)` shows a run of that name. */
export function learn(by, explore) {
  const part = (name) => by(`lesson-${name}`);
  let known = [], timer = 0, last = null;

  const show = (lesson) => {
    last = lesson;
    clearTimeout(timer);
    const busy = lesson.state === "running" || lesson.state === "pausing", there = lesson.state !== "none";
    if (busy) timer = setTimeout(ask, PERIOD);
    part("start").disabled = busy;
    part("start").textContent = there && !busy ? "Start anew" : "Start";
    part("pause").disabled = lesson.state !== "running" && lesson.state !== "paused";
    part("pause").textContent = lesson.state === "paused" ? "Resume" : "Pause";
    part("stop").disabled = !there;
    part("explore").disabled = lesson.state !== "paused" && lesson.state !== "finished";
    const said = [SAID[lesson.state], lesson.reason, lesson.test != null && `${percent(lesson.test)} of formulae twice as long are right.`];
    const sentence = said.filter(Boolean).join(" ");
    // only what has changed is read aloud
    if (part("said").textContent !== sentence) part("said").textContent = sentence;
    part("curves").replaceChildren(...(there ? curves(lesson, known) : []));
    part("command").replaceChildren(...(there ? ["The same on the command line: ", html("code", {}, lesson.command)] : []));
  };
  const failed = (error) => { part("said").textContent = error.message; };
  const ask = (action) => api.lesson(action).then(show, failed);

  const open = (wanted) => {
    by("learn").hidden = !wanted;
    by("watch").setAttribute("aria-expanded", String(wanted));
  };
  by("watch").addEventListener("click", () => { open(by("learn").hidden); if (!by("learn").hidden) part("units").focus(); });
  by("lesson").addEventListener("submit", (event) => {
    event.preventDefault();
    const ops = known.map(({ name }) => name).filter((name) => part(`op-${name}`).checked);
    ask({ do: "start", units: Number(part("units").value), seed: Number(part("seed").value), ops });
  });
  part("pause").addEventListener("click", () => ask({ do: last.state === "paused" ? "resume" : "pause" }));
  part("stop").addEventListener("click", () => ask({ do: "stop" }));
  part("explore").addEventListener("click", () =>
    api.lesson({ do: "explore" }).then(async (lesson) => { show(lesson); await explore(lesson.name); }).catch(failed));
  const redraw = () => last && show(last);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  by("theme").addEventListener("click", () => setTimeout(redraw));

  by("watch").hidden = false;
  return api.lesson().then((lesson) => {
    known = lesson.known;
    part("units").max = lesson.limits.units;
    part("seed").max = lesson.limits.seed;
    part("ops").append(...known.map(({ name, formula, meaning }) => html("label", { class: "check", title: `${formula}: ${meaning}` },
      html("input", { type: "checkbox", id: `lesson-op-${name}`, checked: !lesson.ops || lesson.ops.includes(name) }), name)));
    if (lesson.state !== "none") {
      // begun before this page was opened, or opened again
      part("units").value = lesson.units;
      part("seed").value = lesson.seed;
      open(true);
    }
    show(lesson);
  }).catch(failed);
}

/** Two pictures over the updates: accuracy, and the mean weight of each operation, one upon the other. */
function curves(lesson, known) {
  const colours = palette(), count = lesson.update.length, most = lesson.limits.updates;
  const x = (update) => SIZE.left + (SIZE.width - SIZE.left - SIZE.right) * (update / most);
  const y = (value, low) => SIZE.height - SIZE.bottom - (SIZE.height - SIZE.top - SIZE.bottom) * ((value - low) / (1 - low));
  const now = (values) => (count ? percent(values.at(-1)) : "nothing yet");
  const at = count ? `after ${lesson.update.at(-1)} of ${most} updates` : "";
  const line = (values, look) => svg("polyline", {
    points: values.map((value, k) => `${x(lesson.update[k]).toFixed(1)},${y(Math.max(0.4, value), 0.4).toFixed(1)}`).join(" "),
    fill: "none", "stroke-linejoin": "round", ...look });
  const accuracy = frame(`Accuracy ${at}: ${now(lesson.valid)} on new formulae, ${now(lesson.train)} on those it learns from`,
    "Accuracy on new formulae", colours, x, (value) => y(value, 0.4), [0.5, 0.75, 1], most,
    line(lesson.train, { stroke: colours.quiet, "stroke-width": 1.2, "stroke-dasharray": "3 3" }),
    line(lesson.valid, { stroke: colours.accent, "stroke-width": 2.5 }));
  const below = Array(count).fill(0);
  const areas = lesson.ops.map((name) => {
    const values = lesson.use[name], bottom = [...below];
    values.forEach((value, k) => { below[k] += value; });
    const point = (level, k) => `${x(lesson.update[k]).toFixed(1)},${y(Math.min(1, level), 0).toFixed(1)}`;
    const points = [...below.map(point), ...bottom.map(point).reverse()].join(" ");
    const place = known.findIndex((op) => op.name === name);
    return { name, points, fill: shade(rampOf(colours, place), LEVELS), share: now(values) };
  });
  const use = frame(`Use of operations ${at}: ${areas.map(({ name, share }) => `${name} ${share}`).join(", ")}`,
    "Mean weight of operations", colours, x, (value) => y(value, 0), [0, 0.5, 1], most,
    ...areas.map(({ points, fill }) => svg("polygon", { points, fill, stroke: colours.ground, "stroke-width": 0.7 })));
  const keys = [...areas].reverse().map(({ name, fill, share }) => {
    const mark = svg("svg", { width: 12, height: 12, "aria-hidden": "true" }, svg("rect", { width: 12, height: 12, rx: 2, fill }));
    return html("li", {}, mark, name, html("b", {}, share));
  });
  const facts = html("p", { class: "quiet" }, count ? `Update ${lesson.update.at(-1)} of ${most}: ` : "It begins …",
    ...(count ? [html("b", {}, now(lesson.valid)), ` right on new formulae, ${now(lesson.train)} on its own (dashed). Guessing gives 50 %.`] : []));
  return [html("figure", {}, accuracy, facts), html("figure", {}, use, html("ul", { class: "keys" }, ...keys))];
}

function frame(label, title, colours, x, y, ticks, most, ...marks) {
  const small = { "font-size": 11, fill: colours.quiet };
  const grid = ticks.flatMap((value) => [
    svg("line", { x1: x(0), x2: x(most), y1: y(value), y2: y(value), stroke: colours.line }),
    text(x(0) - 6, y(value), `${100 * value} %`, { ...small, "text-anchor": "end", "font-size": 10 })]);
  const ends = [[0, "start"], [most, "end"]].map(([update, anchor]) =>
    text(x(update), SIZE.height - 8, String(update), { ...small, "text-anchor": anchor }));
  const size = { viewBox: `0 0 ${SIZE.width} ${SIZE.height}`, role: "img", "aria-label": label };
  return svg("svg", size, text(0, 10, title, { ...small, "font-weight": 600 }), ...grid, ...marks, ...ends,
    text((x(0) + x(most)) / 2, SIZE.height - 8, "updates", { ...small, "text-anchor": "middle" }));
}
