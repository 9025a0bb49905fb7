"""Products in bfloat16: where a run may have them, this says whether it gets them."""

from __future__ import annotations

import os

from mufuru.kernels.problem import native

CHOICES = ("auto", "always", "never")
WHOLE, LOWERED, INSTRUCTED = 0, 1, 2
"""How products multiply: in the numbers' own precision, or in bfloat16, by lowered code or by an instruction for it."""


def wanted() -> str:
    """The variable MUFURU_BFLOAT16: `auto` where the processor has an instruction for it, `always` or `never`."""
    choice = os.environ.get("MUFURU_BFLOAT16", "auto")
    if choice not in CHOICES:
        raise ValueError(f"MUFURU_BFLOAT16 should be one of {', '.join(CHOICES)}, got {choice!r}")
    return choice


def way() -> int:
    """How products of a run multiply that may round their operands to bfloat16."""
    choice = wanted()
    best: int = WHOLE if choice == "never" else native().mufuru_bfloat16()
    return best if best == INSTRUCTED or choice == "always" else WHOLE


def described() -> str:
    """What the processor offers and which way is live, for `mufuru doctor`."""
    offered = "AVX512_BF16" if native().mufuru_has_bfloat16() else "no AVX512_BF16"
    names = {WHOLE: "float32", LOWERED: "bfloat16, lowered and slow", INSTRUCTED: "bfloat16 by vdpbf16ps"}
    try:
        return f"products in {names[way()]} (the processor has {offered})"
    except ValueError as error:
        return str(error)
