// What scrolls can be reached by keyboard, and what the theme leaves without a name gets one.
addEventListener("load", () => {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, math[display=block]")) box.setAttribute("tabindex", "0");
  document.querySelectorAll("nav.md-code__nav").forEach((nav, k) => nav.setAttribute("aria-label", `Code ${k + 1}`));
});

// Folded sections open where a link leads into them, and all of them in print.
function reveal() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const section = target && target.closest("details.fold");
  if (!section || section.open) return;
  section.open = true;
  target.scrollIntoView();
}

addEventListener("hashchange", reveal);
addEventListener("DOMContentLoaded", reveal);
// a second click on the same link changes no address
addEventListener("click", (event) => { if (event.target.closest("a[href*='#']")) setTimeout(reveal); });
addEventListener("beforeprint", () => {
  for (const section of document.querySelectorAll("details.fold")) section.open = true;
});
