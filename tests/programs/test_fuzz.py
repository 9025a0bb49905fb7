"""The fuzz: some of its cases each time, and that it finds what is wrong, whatever becomes of the process."""

from __future__ import annotations

import sys
from typing import Any

import fuzz
import pytest
import torch
from fuzz_cases import MODES, Case, draw
from fuzz_judge import is_sentence, run
from fuzz_programs import PROGRAMS
from fuzz_tensors import KINDS
from kernel_calls import needs_native

from mufuru import MuFuRU
from mufuru.kernels import Call, Result, reference

CASES = 300
RIGHT = reference.sequence


@needs_native
def test_both_kernels_do_the_same() -> None:
    """`python tests/programs/fuzz.py --cases 20000 --seed 7` runs others."""
    results = list(fuzz.run(0, CASES))
    assert [result.case for result in results] == list(range(CASES))
    assert not (findings := [result for result in results if not result.good]), "\n".join(map(str, findings))
    # both kernels refusing, or one standing in for the other, shows little
    assert sum(result.kind == "agrees" for result in results) > CASES / 2


def wrong_output(call: Call) -> Result:
    result = RIGHT(call)
    return result._replace(output=result.output + 1e-3)


def wrong_state(call: Call) -> Result:
    result = RIGHT(call)
    return result._replace(s_n=result.s_n * 1.001)


def wrong_gradient(call: Call) -> Result:
    return RIGHT(call._replace(x=2 * call.x - call.x.detach()))


@needs_native
@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("wrong", [wrong_output, wrong_state, wrong_gradient])
def test_finds_what_is_wrong(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the reference, since that is as good as in the kernel."""
    cases = [case for case in map(draw, range(100)) if not case.kinds and case.mode == "grad"]
    assert {run(case).good for case in cases} == {True}
    monkeypatch.setattr(reference, "sequence", wrong)
    assert "differs" in {run(case).kind for case in cases}


def test_goes_on_after_a_death() -> None:
    program = """
import os, signal, sys
first, last = map(int, sys.argv[1:])
for number in range(first, last):
    print(f'[{number}, "native", "what it is"]', flush=True)
    if number == 3:
        os.kill(os.getpid(), signal.SIGSEGV)
    if number == 5:
        sys.exit("an exception")
    print(f'[{number}, [{number}, "agrees", [], true], ""]', flush=True)
"""
    results = list(fuzz.run(1, 6, lambda first, last: [sys.executable, "-c", program, str(first), str(last)]))
    assert [(result.case, result.good) for result in results] == [(n, n not in (3, 5)) for n in range(1, 7)]
    assert results[2].lines == ["exit code -11", "what it is"]
    assert results[4].lines == ["exit code 1", "an exception", "what it is"]
    assert "python tests/programs/fuzz.py --case 5" in str(results[4])


def test_says_when_nothing_can_begin() -> None:
    command = [sys.executable, "-c", "raise SystemExit('no torch here')"]
    with pytest.raises(RuntimeError, match="exit code 1:\nno torch here"):
        list(fuzz.run(0, 1, lambda first, last: command))


def test_a_number_is_a_case() -> None:
    assert [str(draw(number)) for number in range(20)] == [str(draw(number)) for number in range(20)]
    assert len({str(draw(number)) for number in range(20)}) == 20


def test_every_kind_and_mode_is_drawn() -> None:
    cases: list[Case] = [draw(number) for number in range(2000)]
    assert {kind for case in cases for kind in case.kinds.values()} == KINDS.keys() - {"plain"}
    assert {case.mode for case in cases} == PROGRAMS.keys() == MODES.keys()


@pytest.mark.parametrize(
    ("call", "ours"),
    [
        (lambda: MuFuRU(3, 4)(torch.zeros(2, 2, 5)), True),
        (lambda: MuFuRU(3, 4, ops=("unknown",)), True),
        (lambda: torch.zeros(2) + torch.zeros(3), False),
        (lambda: MuFuRU(3, 4, device="nowhere"), False),
    ],
)
def test_whose_sentence(call: Any, ours: bool) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        call()
    assert is_sentence(caught.value) == ours
