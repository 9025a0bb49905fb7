"""The record as Markdown: ratios only, for times mean nothing on another machine."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import memory
import scaling
import shapes
from measure import Ratio
from record import Record, more_work
from shapes import BARS, MODES, Bar, Mode, Shape

NAMES = {shape.name: shape for shape in shapes.SHAPES}


def markdown(record: Record, plots: Iterable[str] = ()) -> str:
    parts = ["# Recurrent layers, measured side by side", _about(record)]
    parts += [f"![Ratios, as in the tables below]({name})" for name in plots]
    parts += ["## What we hold ourselves to", bars(record)]
    for mode in MODES:
        for threads in thread_counts(record):
            if _measured(record, mode, threads):
                parts += [f"## {mode.capitalize()}, {_threads(threads)}", ratios(record, mode, threads)]
                parts += ["The same per multiplication:", per_multiplication(record, mode, threads)]
                parts += ["Seven operations against the others:", against(record, mode, threads)]
    parts += _notes(record)
    parts += _scaling(record)
    if record.memory:
        parts += ["## Memory: bytes saved for the backward pass, per step and unit", memory.HOW, _memory(record)]
    return "\n\n".join(part for part in parts if part) + "\n"


def thread_counts(record: Record) -> list[int]:
    return sorted({timing.threads for timing in record.timings})


def ratios(record: Record, mode: Mode, threads: int) -> str:
    """Every peer's time by nn.GRU's."""
    names = _peers(record, mode, threads)
    rows = [
        [shape, *(_cell(record, shape, mode, threads, peer, shapes.GRU) for peer in names)]
        for shape in _measured(record, mode, threads)
    ]  # fmt: skip
    return table(["ratio to nn.GRU", *names], rows)


def per_multiplication(record: Record, mode: Mode, threads: int) -> str:
    """The same ratios by those of the multiplications."""
    names = [peer for peer in _peers(record, mode, threads) if peer not in (*shapes.HALF, shapes.EMPTY)]
    rows = []
    for shape in _measured(record, mode, threads):
        found = [record.ratio(shape, mode, threads, peer, shapes.GRU) for peer in names]
        cells = [
            "–" if r is None else _number(r.value / more_work(p, shape)) for p, r in zip(names, found, strict=True)
        ]
        rows.append([shape, *cells])
    return table(["per multiplication", *(f"{peer}{_times(peer)}" for peer in names)], rows)


def _times(peer: str) -> str:
    """A peer's multiplications by those of nn.GRU, if they are the same at all shapes."""
    several = {Fraction(more_work(peer, shape.name)).limit_denominator(1000) for shape in shapes.SHAPES}
    return f" ({several.pop()})" if len(several) == 1 else ""


def _peers(record: Record, mode: Mode, threads: int) -> list[str]:
    """All that stand beside nn.GRU in a table."""
    here = {t.peer for t in record.timings if _at(t.mode, t.threads, mode, threads)}
    return [peer for peer in shapes.PEERS if peer in here and peer != shapes.GRU]


def against(record: Record, mode: Mode, threads: int) -> str:
    """Seven operations' time by that of every other."""
    here = _peers(record, mode, threads)
    engines = [peer for peer in shapes.ENGINES if peer in here and peer not in shapes.HALF]
    bases = [shapes.GRU, shapes.LSTM, *engines, shapes.FLOOR, shapes.GATED]
    rows = [
        [shape, *(_cell(record, shape, mode, threads, shapes.SEVEN, base) for base in bases)]
        for shape in _measured(record, mode, threads)
    ]  # fmt: skip
    return table(["seven ops, ratio to", *bases], rows)


def bars(record: Record) -> str:
    counts, known = thread_counts(record), {timing.peer for timing in record.timings}
    # a record made before reading was measured has no column for it
    alone = {title: names for title, names in _ALONE.items() if known.intersection(names.values())}
    head = ["shape", "mode", "ratio", "bar"]
    for threads in counts:
        head += [_threads(threads), *alone]
    rows = []
    for bar in BARS:
        if any(record.find(bar.shape, bar.mode, threads, bar.peer) for threads in counts):
            row = [bar.shape, bar.mode, f"{bar.peer} / {bar.base}", f"≤ {bar.limit:g}"]
            for threads in counts:
                row += [_verdict(record, bar, threads)]
                row += [_text_alone(record, bar, threads, names) for names in alone.values()]
            rows.append(row)
    if not rows:
        return ""
    counted = [_missed(record, threads) for threads in counts] if len(alone) == len(_ALONE) else []
    return "\n\n".join([table(head, rows), *counted])


_ALONE = {"as one product": shapes.ARITHMETIC, "reading": shapes.READING}
"""The least work of a peer, by the title of its column."""


def _missed(record: Record, threads: int) -> str:
    """How many bars are missed, and how many of them what a peer does at the least misses already."""
    known = [(bar, record.ratio(bar.shape, bar.mode, threads, bar.peer, bar.base)) for bar in BARS]
    judged = [(bar, ratio.value) for bar, ratio in known if ratio is not None]
    missed = [bar for bar, ratio in judged if ratio > bar.limit]
    product, reading = (
        {bar for bar in missed if (_alone(record, bar, threads, names) or 0) > bar.limit} for names in _ALONE.values()
    )
    return (
        f"On {_threads(threads)} {len(missed)} of {len(judged)} are missed. In {len(product | reading)} of these the "
        f"product alone ({len(product)}) or the reading alone ({len(reading)}) is above the bar already."
    )


def _verdict(record: Record, bar: Bar, threads: int) -> str:
    ratio = record.ratio(bar.shape, bar.mode, threads, bar.peer, bar.base)
    if ratio is None:
        return _cell(record, bar.shape, bar.mode, threads, bar.peer, bar.base)
    return f"{text(ratio)} {'met' if ratio.value <= bar.limit else '**missed**'}"


def _alone(record: Record, bar: Bar, threads: int, names: dict[str, str]) -> float | None:
    """Time of the peer's multiplications or reading alone, by the bar's base."""
    name = names.get(bar.peer, "")
    ratio = record.ratio(bar.shape, bar.mode, threads, name, bar.base) if bar.base == shapes.GRU else None
    return None if ratio is None else ratio.value


def _text_alone(record: Record, bar: Bar, threads: int, names: dict[str, str]) -> str:
    value = _alone(record, bar, threads, names)
    return "–" if value is None else _number(value)


def _cell(record: Record, shape: str, mode: Mode, threads: int, peer: str, base: str) -> str:
    for name in (peer, base):
        timing = record.find(shape, mode, threads, name)
        if timing is not None and timing.left_out:
            return f"– {_mark(_reasons(record).index(timing.left_out))}"
    return text(record.ratio(shape, mode, threads, peer, base))


def _reasons(record: Record) -> list[str]:
    """Reasons why peers are left out, each once."""
    return list(dict.fromkeys(timing.left_out for timing in record.timings if timing.left_out))


def _mark(number: int) -> str:
    return "¹²³⁴⁵⁶⁷⁸⁹"[number]


def _notes(record: Record) -> list[str]:
    return [f"{_mark(number)} {reason}." for number, reason in enumerate(_reasons(record))]


def text(ratio: Ratio | None) -> str:
    if ratio is None:
        return "–"
    return f"{_number(ratio.value)} ({_number(ratio.low)}–{_number(ratio.high)})"


def _number(value: float) -> str:
    return f"{value:.3f}" if value < 0.0995 else f"{value:.2f}" if value < 9.95 else f"{value:.0f}"


def table(head: list[str], rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def _about(record: Record) -> str:
    made = "\n".join(f"- {key}: {value}" for key, value in (record.machine | record.settings).items())
    worst = max((d for pairs in record.agreement.values() for d in pairs.values()), default=0.0)
    partial = "" if record.complete else "**Interrupted: this is what was measured until then.**\n\n"
    return (
        f"{partial}One process, the peers taking turns. A ratio is that of the medians; in brackets the quartiles of "
        "the ratios round by round. Below 1 is faster. A training step is forward and backward of the sum of the "
        "outputs, with gradients of the input and of all parameters. Per multiplication, a ratio is divided by that of "
        "the multiplications by weights, which the head of the table has where it is the same at all shapes: 1 is as "
        "fast as nn.GRU for its arithmetic, and above 1 is time lost elsewhere. The floor is the matrix products of "
        "seven operations alone. As one product, the multiplications of all steps wait for nothing: one call of "
        "torch.mm on square matrices with as many of them. Before the clock "
        f"started, all agreed to {worst:.0e} of the largest number, values and gradients.\n\n{made}"
    )


def _measured(record: Record, mode: Mode, threads: int) -> list[str]:
    found = {timing.shape for timing in record.timings if _at(timing.mode, timing.threads, mode, threads)}
    return [name for name in NAMES if name in found]


def _at(mode: Mode, threads: int, wanted: Mode, wanted_threads: int) -> bool:
    return (mode, threads) == (wanted, wanted_threads)


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"


def growth(record: Record, sizes: tuple[Shape, ...], mode: Mode, peer: str, base: Shape) -> list[float | None]:
    """Time per step at every size, by that at the size `base`."""
    at = {t.shape: t for t in record.scaling if (t.mode, t.peer) == (mode, peer)}
    if base.name not in at:
        return [None] * len(sizes)
    unit = at[base.name].median / base.steps
    return [at[size.name].median / size.steps / unit if size.name in at else None for size in sizes]


def _scaling(record: Record) -> list[str]:
    if not record.scaling:
        return []
    longest, narrowest = scaling.LENGTHS[-1], scaling.WIDTHS[0]
    return [
        f"## Scaling, {_threads(record.scaling[0].threads)}",
        f"Time per step as sequences grow (B {longest.batch}, N = M = {longest.hidden_size}), by that at "
        f"{longest.name}. Flat is 1; a short sequence pays for the call.",
        _growth_table(record, scaling.LENGTHS, longest),
        f"Time as the layer grows (T {narrowest.steps}, B {narrowest.batch}, N = M), by that at {narrowest.name}.",
        _growth_table(record, scaling.WIDTHS, narrowest),
    ]


def _growth_table(record: Record, sizes: tuple[Shape, ...], base: Shape) -> str:
    rows = []
    for mode in MODES:
        for peer in scaling.COMPARED:
            cells = growth(record, sizes, mode, peer, base)
            rows.append([f"{mode}, {peer}", *("–" if cell is None else _number(cell) for cell in cells)])
    return table(["", *(size.name for size in sizes)], rows)


def _memory(record: Record) -> str:
    names = list(memory.COUNTED)
    rows = [[shape, *(f"{found[peer]:.0f}" for peer in names)] for shape, found in record.memory.items()]
    return table(["bytes", *names], rows)
