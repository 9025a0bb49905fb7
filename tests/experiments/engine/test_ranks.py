"""One run on several processes: the numbers of one, ranks that die or hang, and runs that are resumed."""

from __future__ import annotations

import json
import random
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import classify_data
import lm_texts
import number_data
import pytest
import torch
from folders import assert_same_run
from rank_runs import Ended, launch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from mufuru.experiments.engine import RunError, fit
from mufuru.experiments.engine.ranks import Ranks, _moved, joined_state, part_of_state
from mufuru.experiments.engine.torchrun import read_place
from mufuru.experiments.record import RunFolder
from mufuru.experiments.settings import Training
from mufuru.experiments.tasks.cells import CellConfig
from mufuru.experiments.tasks.classify.config import DataConfig as Labelled
from mufuru.experiments.tasks.languages.config import PRESETS as LANGUAGES
from mufuru.experiments.tasks.languages.task import LanguagesTask
from mufuru.experiments.tasks.lm.config import DataConfig as Text
from mufuru.experiments.tasks.lm.task import Window
from mufuru.experiments.tasks.logic.config import LogicConfig
from mufuru.experiments.tasks.task import packed_rows
from mufuru.experiments.tasks.trees.model import PRESETS as TREES
from mufuru.experiments.tasks.trees.task import TreesTask

CLOSE = 1e-5
"""Sums in another order differ in the last bits of float32, and 50 updates carry that on."""
NOISE = {"embedding_dropout": 0.2, "output_dropout": 0.3, "weight_dropout": 0.2, "activation_penalty": 0.1}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text and labelled sentences."""
    folder, chance = tmp_path_factory.mktemp("files"), random.Random(0)
    lines = (" ".join(chance.choices(("to", "be", "or", "not", "that", "is"), k=7)) for _ in range(60))
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    classify_data.write_csv(folder / "texts.csv", 94)
    return folder


def lm(files: Path, **options: Any) -> Any:
    """Five columns, which two or three ranks cannot share evenly, and a short window at the end."""
    text = Text(text=(str(files / "text.txt"),))
    return lm_texts.config(data=text, batch_size=5, evaluation_window=64, **options)


def classify(files: Path, **options: Any) -> Any:
    """74 sentences in batches of 8: the last has two, and a third rank nothing to do."""
    return classify_data.config(data=Labelled(data=str(files / "texts.csv")), batch_size=8, **options)


def logic(**options: Any) -> LogicConfig:
    """41 formulae in batches of 10: the last has one, and a second rank nothing to do."""
    training = replace(Training(epochs=4, batch_size=10, learning_rate=0.01, select="last"), **options)
    return LogicConfig(CellConfig(hidden_size=6), training, train_formulae=41, valid_formulae=33, test_formulae=7)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in RunFolder(folder).metrics.read_text().splitlines()]


def assert_close(folder: Path, other: Path, updates: int) -> None:
    """The same metrics after every validation and at the end."""
    ours, theirs = lines(folder), lines(other)
    assert len(ours) == len(theirs) >= updates
    results = [json.loads(RunFolder(path).result.read_text()) for path in (folder, other)]
    for mine, his in [*zip(ours, theirs, strict=True), results]:
        for split in {"train", "valid", "test"} & set(mine):
            assert mine[split] == pytest.approx(his[split], rel=0, abs=CLOSE)


def codes(ended: list[Ended]) -> list[int | None]:
    return [rank.code for rank in ended]


def messages(ended: list[Ended]) -> list[str]:
    return [rank.message for rank in ended if rank.message]


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("lm", 2),
        ("classify", 3),
        ("logic", 2),
        pytest.param("lm", 3, marks=pytest.mark.slow),
        pytest.param("classify", 2, marks=pytest.mark.slow),
        pytest.param("logic", 3, marks=pytest.mark.slow),
    ],
)
def test_ranks_give_the_numbers_of_one_process(kind: str, size: int, files: Path, tmp_path: Path) -> None:
    """Over at least 50 updates, with penalties and clipping, and averaged weights; a validation after each update."""
    always: Any = {"evaluate_every": 1, "clip": 0.5, "average": 0.9}
    penalties = {"activation_penalty": 0.5, "temporal_penalty": 0.5}
    config: Any = {
        "lm": lm(files, regularisation=penalties, epochs=7, **always),
        "classify": classify(files, epochs=6, pooling="attention", **always),
        "logic": logic(**always | {"epochs": 11}),
    }[kind]
    fit(kind, config, tmp_path / "alone")
    ended = launch(kind, config, tmp_path / "ranks", size)
    assert codes(ended) == [0] * size, messages(ended)
    assert_close(tmp_path / "ranks", tmp_path / "alone", updates=50)


@pytest.mark.slow
@pytest.mark.parametrize("task", number_data.TASKS)
def test_two_ranks_give_the_numbers_of_one_process(task: str, tmp_path: Path) -> None:
    config = replace(number_data.made(task, tmp_path), output_dropout=0.0)
    alone = fit(task, config, tmp_path / "alone")
    ended = launch(task, config, tmp_path / "ranks", 2)
    assert codes(ended) == [0, 0], messages(ended)
    both = json.loads((tmp_path / "ranks" / "result.json").read_text())
    for split in ("train", "valid", "test"):
        # float32 in another order, carried on by all updates
        assert both[split] == pytest.approx(alone[split], rel=1e-3, abs=1e-5)


@pytest.fixture(scope="module")
def undisturbed(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model with dropout on three ranks, left alone: three add in an order that two cannot show."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    assert codes(launch("lm", noisy(files), folder, 3)) == [0, 0, 0]
    return folder


def noisy(files: Path) -> Any:
    return lm(files, regularisation=NOISE, evaluate_every=5, average=0.9)


def test_ranks_draw_masks_of_their_own(undisturbed: Path, files: Path, tmp_path: Path) -> None:
    """The number of ranks decides which masks there are, the seed the rest."""
    again = tmp_path / "again"
    launch("lm", noisy(files), again, 3)
    assert_same_run(again, undisturbed)
    launch("lm", noisy(files), tmp_path / "two", 2)
    assert RunFolder(tmp_path / "two").metrics.read_bytes() != RunFolder(undisturbed).metrics.read_bytes()


@pytest.mark.parametrize("struck", [0, 1])
def test_a_rank_that_is_killed(struck: int, undisturbed: Path, files: Path, tmp_path: Path) -> None:
    """The others say so, one of them for all, and the run goes on from the checkpoint as if nothing had happened."""
    folder = tmp_path / "run"
    ended = launch("lm", noisy(files), folder, 3, seconds=0, strike=(struck, 7, signal.SIGKILL))
    assert codes(ended) == [-signal.SIGKILL if rank == struck else 1 for rank in range(3)]
    (message,) = messages(ended)
    assert message.startswith("another process of this run ended at update 8 of")
    assert (
        f"its last checkpoint, of update 6, with `torchrun --nproc-per-node 3 -m mufuru train --resume {folder}`"
        in message
    )
    ended = launch("lm", noisy(files), folder, 3, resume=True)
    assert "started after 6" in ended[0].told
    assert_same_run(folder, undisturbed)


def test_a_rank_that_is_killed_before_the_first_checkpoint(undisturbed: Path, files: Path, tmp_path: Path) -> None:
    ended = launch("lm", noisy(files), tmp_path / "run", 3, strike=(2, 3, signal.SIGKILL))
    assert "resume the run from its beginning" in messages(ended)[0]
    launch("lm", noisy(files), tmp_path / "run", 3, resume=True)
    assert_same_run(tmp_path / "run", undisturbed)


@pytest.mark.parametrize(("struck", "number"), [(0, signal.SIGINT), (2, signal.SIGTERM)])
def test_a_rank_that_is_asked_to_stop(struck: int, number: int, undisturbed: Path, files: Path, tmp_path: Path) -> None:
    """All stop after the same update, with a checkpoint of all."""
    ended = launch("lm", noisy(files), tmp_path / "run", 3, strike=(struck, 7, number))
    assert codes(ended) == [128 + number] * 3
    (message,) = messages(ended)
    assert message.startswith("stopped after update 8 of")
    assert "resume with `torchrun --nproc-per-node 3 -m mufuru train --resume" in message
    launch("lm", noisy(files), tmp_path / "run", 3, resume=True)
    assert_same_run(tmp_path / "run", undisturbed)


def test_a_rank_that_hangs(files: Path, tmp_path: Path) -> None:
    """The others wait only so long."""
    ended = launch("logic", logic(), tmp_path / "run", 2, patience=3.0, grace=3.0, strike=(1, 4, signal.SIGSTOP))
    assert codes(ended) == [1, -signal.SIGKILL]
    assert messages(ended)[0].startswith("another process of this run did not answer in time at update 5 of")


@pytest.fixture(scope="module")
def alone(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model without dropout, on one process."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    fit("lm", plain(files), folder)
    return folder


def plain(files: Path) -> Any:
    return lm(files, evaluate_every=1)


@pytest.fixture(scope="module")
def half(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same on two ranks, stopped."""
    folder = tmp_path_factory.mktemp("half") / "run"
    assert codes(launch("lm", plain(files), folder, 2, strike=(0, 9, signal.SIGTERM))) == [128 + signal.SIGTERM] * 2
    return folder


@pytest.mark.parametrize("size", [1, 3])
def test_another_number_of_ranks_goes_on(size: int, alone: Path, half: Path, files: Path, tmp_path: Path) -> None:
    """With the state of every column; it says what changes. Without dropout, hardly anything does."""
    shutil.copytree(half, tmp_path / "run")
    if size == 1:
        fit("lm", plain(files), tmp_path / "run", resume=True)
    else:
        ended = launch("lm", plain(files), tmp_path / "run", size, resume=True)
        assert any(text.startswith("The checkpoint is of 2 processes, now there are 3 proc") for text in ended[0].told)
    assert_close(tmp_path / "run", alone, updates=1)


def test_a_run_begun_by_one_process(alone: Path, files: Path, tmp_path: Path) -> None:
    launch("lm", plain(files), tmp_path / "run", 1, strike=(0, 9, signal.SIGTERM))
    assert codes(launch("lm", plain(files), tmp_path / "run", 2, resume=True)) == [0, 0]
    assert_close(tmp_path / "run", alone, updates=1)
    assert codes(launch("lm", plain(files), tmp_path / "run", 2, resume=True)) == [0, 0], "it is finished, and all know"


@pytest.mark.parametrize(
    ("config", "others", "message"),
    [
        (logic(batch_size=1), {}, "a batch of 1 cannot be shared out among 2 processes: start fewer"),
        (logic(), {1: logic(learning_rate=0.1)}, "rank 1 has other settings than rank 0: start all processes"),
        (logic(learning_rate=1e38), {}, "at update 2, with learning rate 1e+38: the run stops here"),
    ],
)
def test_one_message_for_all(config: Any, others: Any, message: str, tmp_path: Path) -> None:
    ended = launch("logic", config, tmp_path / "run", configs=others)
    assert codes(ended) == [1, 1]
    (said,) = messages(ended)
    assert message in said


@pytest.mark.parametrize(("task", "presets"), [(TreesTask, TREES), (LanguagesTask, LANGUAGES)])
def test_tasks_of_one_process(task: Any, presets: Any) -> None:
    ranks, made = Ranks.__new__(Ranks), task.__new__(task)
    ranks.size, made.config = 2, presets["short"]
    with pytest.raises(RunError, match=r"^train (trees|languages) runs on one process: start it without torchrun$"):
        ranks.adopt(made, torch.nn.Linear(1, 1))


def test_other_data_on_a_rank(files: Path, tmp_path: Path) -> None:
    """A file that differs from machine to machine, under one name."""
    (tmp_path / "there").mkdir()
    classify_data.write_csv(tmp_path / "there" / "texts.csv", 94, seed=1)
    ended = launch("classify", classify(files), tmp_path / "run", configs={1: classify(tmp_path / "there")})
    assert messages(ended)[0].startswith("rank 1 has other")


def test_the_folder_is_in_use(tmp_path: Path) -> None:
    fit("logic", logic(), tmp_path / "run")
    ended = launch("logic", logic(), tmp_path / "run")
    assert codes(ended) == [1, 1]
    assert "holds a finished run: choose another folder" in messages(ended)[0]


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 and WORLD_SIZE=2"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, "RANK=x and WORLD_SIZE=2"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "here"}, "MASTER_PORT not: start several"),
    ],
)
def test_half_of_torchruns_variables(variables: dict[str, str], message: str) -> None:
    with pytest.raises(RunError, match=message):
        read_place(variables)


@pytest.mark.parametrize("variables", [{}, {"RANK": "3"}, {"WORLD_SIZE": "4"}, {"RANK": "0", "WORLD_SIZE": "1"}])
def test_a_process_alone(variables: dict[str, str]) -> None:
    assert read_place(variables) is None


@pytest.mark.parametrize(
    "rows", [slice(0, 1), slice(0, None, 2), slice(1, None, 2), slice(2, None, 3), slice(4, None, 5)]
)
@pytest.mark.parametrize("lengths", [(5, 4, 4, 1, 1), (3, 3, 3, 3, 3), (6, 1, 1, 1, 1)])
def test_rows_of_packed_sequences(rows: slice, lengths: tuple[int, ...]) -> None:
    """Packed again from the sequences themselves."""
    sequences = [torch.arange(length) + 10 * number for number, length in enumerate(lengths)]
    ours, theirs = packed_rows(pack_sequence(sequences), rows), pack_sequence(sequences[rows])
    assert isinstance(ours, PackedSequence)
    assert torch.equal(ours.data, theirs.data)
    assert torch.equal(ours.batch_sizes, theirs.batch_sizes)


def test_batches_move_to_a_device() -> None:
    """As far as a machine without one can tell."""
    packed = pack_sequence([torch.arange(3), torch.arange(2)])
    for batch in (Window(torch.ones(2), torch.ones(3)), (packed, (torch.ones(2), None))):
        moved = _moved(batch, "meta")
        assert type(moved) is type(batch)
        assert {tensor.device.type for tensor in tensors(moved)} == {"meta"}
        assert len(tensors(moved)) == 2


def tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, PackedSequence):
        return [value.data]
    return [tensor for item in value or () for tensor in tensors(item)]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_states_of_ranks_make_the_state_of_all(size: int) -> None:
    state = (torch.randn(2, 5, 3), (torch.randn(1, 5, 4), None))
    whole = joined_state([part_of_state(state, slice(rank, None, size)) for rank in range(size)])
    assert torch.equal(whole[0], state[0])
    assert isinstance(whole[1][0], Tensor)
    assert torch.equal(whole[1][0], state[1][0])
    assert whole[1][1] is None
