"""Run a case natively and by the reference, and judge what came of it."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fuzz_cases import SUFFIX, Case, nothing
from fuzz_programs import PROGRAMS, Program, Tensors, make_tensors
from fuzz_tensors import FOREIGN, GONE, HALF, READABLE, Wrapper
from kernel_calls import assert_close
from torch import Tensor

import mufuru

Outcome = Tensors | Exception
PACKAGE = str(Path(mufuru.__file__).parent)
TOLERANCE = {dtype: 4 * torch.finfo(dtype).eps for dtype in HALF}
"""Both kernels compute in float32 and round: to neighbours, now and then, in each layer."""
SINGLE = 3e-5
SECOND = {torch.float32: 1e-3}
"""Second derivatives are sums over all pairs of steps of products of first ones."""


STATE_ONLY = {"keep", "forget", "negate", nothing}
"""Operations that read the state alone."""
OF_TORCH = (
    "Inference tensors cannot be saved for backward",  # a sentence that says what to do
    "more than one element of the written-to tensor",  # by forward mode, of an expanded tensor
    "!this_view_meta->has_fw_view()",  # by forward mode, of a view of a negative tensor: nn.GRU meets it too
    "Cannot set version_counter for inference tensor",  # by wrappers in inference mode
    "invalid gradient at index",  # by autograd, of an incoming gradient on another device
    "Batching rule not implemented for aten::",  # by an operation of the user's own, or of a subclass
)
"""Refusals of torch's that are as good as ours where the reference refuses too."""


class Verdict(NamedTuple):
    """What came of a case."""

    kind: str
    """`agrees`, `refuses`, `stands back` (the native kernel leaves it to the reference); else what is wrong."""
    detail: str = ""

    @property
    def good(self) -> bool:
        return self.kind in ("agrees", "refuses", "stands back")


def run(case: Case, tell: Callable[[str], None] = lambda kernel: None) -> Verdict:
    """Run the case on both kernels; `tell` hears which one is next, in case the process dies of it."""
    torch.set_num_threads(case.threads)
    tell("native")
    found, stood_back = _outcome(case, "native"), False
    if isinstance(found, RuntimeError) and "kernel='native' cannot run this" in str(found):
        tell("auto")
        found, stood_back = _outcome(case, "auto"), True
    if case.kinds_among(GONE):
        return _judge_gone(found)
    tell("reference")
    wanted = _outcome(case, "reference", plain=True)
    by_reference = _outcome(case, "reference") if case.kinds or case.layout else wanted
    verdict = _judge(case, found, by_reference, wanted)
    return Verdict("stands back") if stood_back and verdict.kind == "agrees" else verdict


def _outcome(case: Case, kernel: Any, plain: bool = False) -> Outcome:
    """What the program gives, or what it raises: both are judged."""
    tensors, before = make_tensors(case, plain), make_tensors(case, plain)
    torch.manual_seed(case.number)
    try:
        with mufuru.use_kernel(kernel):
            found = PROGRAMS[case.mode](Program(case, case.module(), tensors))
    except Exception as error:
        return error
    if case.mode not in ("edited weights", "exchanged weights") and (touched := _touched(case, tensors, before)):
        return AssertionError(f"writes into {touched}")
    if shared := _shared(case, tensors, found):
        return AssertionError(f"returns the memory of {shared}")
    return {name: _readable(tensor) for name, tensor in found.items()}


def _touched(case: Case, tensors: Tensors, before: Tensors) -> str:
    """The names of the tensors that were written into."""
    readable = [name for name in tensors if case.kinds.get(name, "plain") in READABLE]
    pairs = {name: (tensors[name].detach(), before[name].detach()) for name in readable}
    return ", ".join(name for name, (a, b) in pairs.items() if not torch.allclose(a, b, 0, 0, equal_nan=True))


def _shared(case: Case, tensors: Tensors, found: Tensors) -> str:
    """The names of the tensors whose memory came back: who changes the one would change the other."""
    if case.mode not in ("grad", "no_grad", "inference_mode") or case.kinds_among(FOREIGN):
        return ""
    returned = {found[name].untyped_storage().data_ptr() for name in ("output", "h_n", "h_n" + SUFFIX) if name in found}
    given = {name: tensor for name, tensor in tensors.items() if not tensor._is_zerotensor()}
    return ", ".join(name for name, tensor in given.items() if tensor.untyped_storage().data_ptr() in returned - {0})


def _readable(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    if isinstance(tensor, Wrapper):
        return tensor.inside
    return tensor.as_subclass(Tensor)


def _judge_gone(found: Outcome) -> Verdict:
    if not isinstance(found, Exception):
        return Verdict("reads memory that is gone")
    return Verdict("refuses") if is_sentence(found) else _wrong("refuses without a sentence", found)


def _judge(case: Case, found: Outcome, by_reference: Outcome, wanted: Outcome) -> Verdict:
    if isinstance(found, Exception):
        return _judge_refusal(case, found, by_reference)
    if case.mixed:
        return Verdict("takes tensors of several dtypes")
    if isinstance(wanted, Exception):
        return _wrong("takes what the reference refuses", wanted)
    if isinstance(by_reference, dict) and (difference := _difference(case, by_reference, wanted)):
        return Verdict("the reference differs from itself on plain tensors", difference)
    difference = _difference(case, found, wanted)
    return Verdict("differs", difference) if difference else Verdict("agrees")


def _judge_refusal(case: Case, found: Exception, by_reference: Outcome) -> Verdict:
    if isinstance(found, AssertionError):
        return Verdict(str(found))
    if not is_sentence(found):
        if isinstance(by_reference, Exception) and any(words in str(found) for words in OF_TORCH):
            return Verdict("refuses")
        told = type(by_reference).__name__ if isinstance(by_reference, Exception) else "nothing"
        return _wrong(f"refuses without a sentence, the reference raises {told}", found)
    if case.kinds_among(FOREIGN):
        return Verdict("refuses")
    if not isinstance(by_reference, Exception):
        return _wrong("refuses what the reference takes", found)
    if type(found) is not type(by_reference):
        return _wrong(f"refuses with {type(found).__name__}, the reference with {type(by_reference).__name__}", found)
    return Verdict("refuses")


def _wrong(kind: str, error: Exception) -> Verdict:
    return Verdict(kind, f"{type(error).__name__}: {error}".partition("\n")[0])


def is_sentence(error: Exception) -> bool:
    """Whether a `raise` of this package made it, and not something below that the package ran into."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    file = trace.tb_frame.f_code.co_filename
    return file.startswith(PACKAGE) and linecache.getline(file, trace.tb_lineno).lstrip().startswith("raise ")


def _difference(case: Case, found: Tensors, wanted: Tensors) -> str:
    """Why they are not equal; empty if they are."""
    if found.keys() != wanted.keys():
        return f"got {list(found)}, expected {list(wanted)}"
    for name, tensor in wanted.items():
        tolerance = TOLERANCE.get(tensor.dtype)
        if case.mode == "autocast" and case.dtype != torch.float64 and tensor.dtype == torch.float64:
            tolerance = SINGLE  # computed in float32, and returned in the type of a double input or state
        if name.startswith("second"):
            tolerance = SECOND.get(tensor.dtype, tolerance)
        try:
            assert_close(*_comparable(case, name, found[name], tensor), tolerance)
        except AssertionError as error:
            return " ".join(str(error).split())
    return ""


def _comparable(case: Case, name: str, found: Tensor, wanted: Tensor) -> tuple[Tensors, Tensors]:
    if found.is_meta and all(case.kinds.get(name) == "meta" for name in case.shapes if not name.startswith("gradient")):
        found = torch.zeros_like(found, device="cpu")
        wanted = torch.zeros_like(wanted)
    if found.shape == wanted.shape and not {*case.values.values()}.isdisjoint(_incomparable(case)):
        both = found.isfinite() & wanted.isfinite()
        found, wanted = found.where(both, 0), wanted.where(both, 0)
    return {name: found}, {name: wanted}


def _incomparable(case: Case) -> set[str]:
    """Values with which a number of one kernel may be NaN for the other."""
    ops, zero = case.options["ops"], "zero tensor" in case.kinds.values()
    # zero tensors are zero even times NaN; and the native kernel has no softmax where one operation is left
    hidden = {"one NaN"} if zero or nothing in ops or len(ops) == 1 or "op_dropout" in case.options else set()
    if {*ops} <= STATE_ONLY:
        hidden = {"one NaN"}  # features that no operation reads have no gradient in torch, and 0 times NaN natively
    # it takes differences of weights: infinite ones are NaN where those of a softmax are not
    return {"one infinity", "huge"} | hidden
