"""Products in bfloat16: whether a call that allows them gets them."""

import os

from mufuru.kernels.problem import loaded

CHOICES = ("auto", "always", "never")
WHOLE, LOWERED, INSTRUCTED = 0, 1, 2
"""How products multiply: in the numbers' own precision, or in bfloat16, by lowered code or by an instruction for it."""


def wanted() -> str:
    """Return the variable MUFURU_BFLOAT16: `auto` (if the processor has an instruction for it), `always` or `never`."""
    choice = os.environ.get("MUFURU_BFLOAT16", "auto")
    if choice not in CHOICES:
        raise ValueError(f"MUFURU_BFLOAT16 should be one of {', '.join(CHOICES)}, got {choice!r}")
    return choice


def way() -> int:
    """Return how products multiply in a call that may round their operands to bfloat16."""
    choice = wanted()
    best: int = WHOLE if choice == "never" else loaded().mufuru_bfloat16()
    return best if best == INSTRUCTED or choice == "always" else WHOLE


def described() -> str:
    """Describe the processor's support and the way in use, for `mufuru doctor`."""
    offered = "AVX512_BF16" if loaded().mufuru_has_bfloat16() else "no AVX512_BF16"
    names = {WHOLE: "float32", LOWERED: "bfloat16, lowered and slow", INSTRUCTED: "bfloat16 by vdpbf16ps"}
    try:
        return f"products in {names[way()]} (the processor has {offered})"
    except ValueError as error:
        return str(error)
