"""The style of a report: light and dark, wide and narrow, screen and paper."""

CSS = """
:root { color-scheme: light dark; --ink: #1d2125; --soft: #59636e; --line: #d5dae0; --back: #fff; --zebra: #f5f7f9;
  --link: #0b5cad; --code: #f0f2f4 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7ea; --soft: #a3adb8; --line: #3a424b; --back: #15181b; --zebra: #1d2226; --link: #7db8f5;
    --code: #22282e }
}
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 68rem; color: var(--ink); background: var(--back);
  font: 1rem/1.55 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0 0 .5rem }
h2 { font-size: 1.3rem; margin: 2.8rem 0 .6rem; padding-top: .8rem; border-top: 1px solid var(--line) }
p { max-width: 48rem; margin: .7rem 0 }
a { color: var(--link) }
.lead { font-size: 1.08rem }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; padding: 0; margin: 1rem 0 }
code, pre { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: .88em }
pre { background: var(--code); padding: .7rem .9rem; border-radius: 6px; white-space: pre-wrap;
  overflow-wrap: anywhere }
.scroll { overflow-x: auto; margin: 1rem 0 }
.scroll:focus-visible, summary:focus-visible, a:focus-visible { outline: 2px solid var(--link); outline-offset: 2px }
table { min-width: min(28rem, 100%); border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums }
caption { text-align: left; color: var(--soft); padding: 0 0 .5rem }
caption span { display: inline-block; position: sticky; left: 0; max-width: min(48rem, calc(100vw - 2.5rem)) }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap;
  vertical-align: top }
thead th { border-bottom: 2px solid var(--soft); vertical-align: bottom }
th:first-child, td:first-child { text-align: left; padding-left: .3rem }
tbody th { font-weight: 500 }
tbody tr:nth-child(even) { background: var(--zebra) }
.wordy th, .wordy td { text-align: left; white-space: normal; overflow-wrap: break-word; max-width: 24rem }
figure { margin: 1.4rem 0 }
.picture { overflow-x: auto; background: #fff; border-radius: 6px; width: fit-content; max-width: 100% }
.picture svg { display: block; height: auto }
.picture svg * { stroke-linejoin: round; stroke-linecap: butt }
figcaption { color: var(--soft); font-size: .9rem; margin-top: .5rem; max-width: 48rem }
details { margin: .8rem 0 } summary { cursor: pointer; color: var(--link) }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem }
@media screen and (max-width: 44rem) {
  .wordy thead { position: absolute; left: -9999px }
  .wordy, .wordy tbody, .wordy tr, .wordy th, .wordy td, .wordy caption { display: block }
  .wordy th, .wordy td { max-width: none; border: 0; padding: .15rem .3rem }
  .wordy tr { border-bottom: 1px solid var(--line); padding: .5rem 0 }
  .wordy td::before { content: attr(data-label) ": "; color: var(--soft) }
}
@media print {
  :root { color-scheme: light; --ink: #000; --soft: #444; --line: #bbb; --back: #fff; --zebra: #f5f5f5; --link: #000;
    --code: #f2f2f2 }
  body { max-width: none; padding: 0; font-size: 10pt }
  nav { display: none } .scroll, .picture { overflow: visible }
  figure, pre, tr { break-inside: avoid } h2, caption { break-after: avoid }
  table { font-size: 7.5pt } th, td { padding: .15rem .4rem }
  .picture { width: auto } .picture svg { max-width: 100% !important }
  details::details-content { content-visibility: visible; height: auto }
}
@page { margin: 16mm }
"""
