"""Sampled formulae: the same everywhere, all different, and fair."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest
import torch

from mufuru.experiments.draws import Draws, permutation
from mufuru.experiments.settings import SettingError
from mufuru.experiments.tasks.logic.formulae import Formula, Wanted, sample_splits

PAPER = {"train": Wanted(1000, 5, 10), "valid": Wanted(1000, 5, 10), "test": Wanted(1000, 11, 20)}


def digest(formulae: list[Formula]) -> str:
    return hashlib.sha256("\n".join(map(str, formulae)).encode()).hexdigest()


def test_the_same_seed_gives_the_same_bytes_everywhere() -> None:
    splits = sample_splits(PAPER, seed=0)
    assert {split: digest(formulae)[:16] for split, formulae in splits.items()} == {
        "train": "0dcd96e0ee8e973a",
        "valid": "dcc7df1a660f53b7",
        "test": "e2674515b36e20e4",
    }
    assert digest(sample_splits(PAPER, seed=1)["train"]) != digest(splits["train"])


def test_draws_are_the_published_hash() -> None:
    stream = int.from_bytes(hashlib.shake_256(b"a/1#0").digest(4096), "little")
    draws = Draws("a", 1)
    assert [draws.bits(count) for count in (3, 1, 12)] == [stream & 7, stream >> 3 & 1, stream >> 4 & 4095]
    draws = Draws("a", 1)
    assert draws.bits(8 * 4096) == stream
    assert draws.bits(64) == int.from_bytes(hashlib.shake_256(b"a/1#1").digest(8), "little")


def test_a_range_is_drawn_fairly() -> None:
    draws = Draws("test", "range")
    counts = Counter(draws.below(10) for _ in range(50_000))
    # 5,000 expected of each, standard deviation 67; ten within five of them but one time in 200,000
    assert sorted(counts) == list(range(10))
    assert max(abs(count - 5_000) for count in counts.values()) < 335
    assert {draws.below(1) for _ in range(10)} == {0}


def test_a_permutation_is_of_its_name_alone() -> None:
    order = permutation(1000, "a", 3, 7)
    assert order.sort().values.equal(torch.arange(1000))
    assert order.equal(permutation(1000, "a", 3, 7))
    for other in (("a", 3, 8), ("a", 4, 7), ("b", 3, 7)):
        assert not order.equal(permutation(1000, *other))
    assert permutation(8, "pinned").tolist() == [6, 2, 5, 7, 0, 4, 3, 1]


def test_values_gates_and_lengths_are_fair() -> None:
    formulae = sample_splits({"train": Wanted(4000, 5, 10)}, seed=3)["train"]
    lengths = Counter(formula.gates for formula in formulae)
    # 667 expected of each, standard deviation 24
    assert sorted(lengths) == [5, 6, 7, 8, 9, 10]
    assert max(abs(count - 667) for count in lengths.values()) < 120
    gates = Counter(token for formula in formulae for token in formula.tokens[2::2])
    # 3,000 expected of each, standard deviation 52
    assert sorted(gates) == list(range(2, 12))
    assert max(abs(count - 3000) for count in gates.values()) < 260


@pytest.mark.parametrize("test_gates", [(11, 20), (5, 10), (2, 4)], ids=["longer", "the same", "few exist"])
def test_no_formula_is_in_two_sets_or_twice_in_one(test_gates: tuple[int, int]) -> None:
    wanted = {"train": Wanted(500, 2, 4), "valid": Wanted(500, 2, 4), "test": Wanted(500, *test_gates)}
    splits = sample_splits(wanted, seed=1)
    everything = [formula for formulae in splits.values() for formula in formulae]
    assert len(everything) == len(set(everything)) == 1500
    for split, want in wanted.items():
        assert all(map(want.covers, splits[split]))


def test_sets_that_meet_share_out_all_formulae_that_exist() -> None:
    # with one gate there are 2 * 2 * 10
    splits = sample_splits({"train": Wanted(30, 1, 1), "test": Wanted(10, 1, 1)}, seed=0)
    assert len(set(splits["train"]) | set(splits["test"])) == 40


def test_more_formulae_than_exist_are_refused() -> None:
    with pytest.raises(SettingError, match=r"not 11 different formulae of 1 to 1 gates: 40 exist, 30 are used"):
        sample_splits({"train": Wanted(30, 1, 1), "test": Wanted(11, 1, 1)}, seed=0)


def test_the_size_of_one_set_does_not_change_another() -> None:
    smaller = sample_splits(PAPER | {"train": Wanted(10, 5, 10)}, seed=0)
    assert smaller["test"] == sample_splits(PAPER, seed=0)["test"]
