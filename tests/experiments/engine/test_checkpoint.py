"""A checkpoint is read whole and unchanged, or refused in a sentence."""

from __future__ import annotations

import pickle
import random
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from toy import toy

from mufuru.experiments.engine import RunError, checkpoint, errors, fit, load_run
from mufuru.experiments.engine.checkpoint import Checkpoint, CheckpointError, pack, unpack
from mufuru.experiments.record import RunFolder


def example() -> Checkpoint:
    weights = torch.randn(3, 4)
    kinds = [torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
    odd = {f"kinds/{kind}": torch.ones(2, 2).to(kind) for kind in kinds}
    views = {"view": weights.T, "same": weights, "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3)}
    return Checkpoint({"weights": weights, **odd, **views}, {"update": 3, "rate": 0.1 + 0.2, "text": "ß", "none": None})


def assert_equal(one: Checkpoint, other: Checkpoint) -> None:
    assert one.values == other.values
    assert one.tensors.keys() == other.tensors.keys()
    for name, tensor in one.tensors.items():
        assert tensor.dtype == other.tensors[name].dtype
        assert torch.equal(tensor, other.tensors[name]), name


def test_comes_back_as_it_was(tmp_path: Path) -> None:
    saved = example()
    checkpoint.save(tmp_path / "a.safetensors", saved)
    assert_equal(saved, checkpoint.load(tmp_path / "a.safetensors"))


def test_ctrl_c_while_reading_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code makes another error of it."""

    def read(*arguments: Any, **options: Any) -> Any:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ValueError("could not determine the shape") from None
        return safe_open(*arguments, **options)

    saved = example()
    checkpoint.save(tmp_path / "a", saved)
    monkeypatch.setattr(checkpoint, "safe_open", read)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.load(tmp_path / "a")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with ThreadPoolExecutor(1) as pool:
        monkeypatch.undo()
        assert_equal(saved, pool.submit(checkpoint.load, tmp_path / "a").result())


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    saved = example()
    checkpoint.save(tmp_path / "a", saved)
    checkpoint.save(tmp_path / "b", Checkpoint(dict(reversed(saved.tensors.items())), saved.values))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    """In the tensors, the values and the header alike; only the spaces that fill the header up mean nothing."""
    path = tmp_path / "a.safetensors"
    saved = Checkpoint({"w": torch.arange(5.0), "n": torch.tensor([7])}, {"update": 3, "rate": 0.5})
    checkpoint.save(path, saved)
    good = path.read_bytes()
    for place in range(len(good)):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1 << random.randrange(8)]) + good[place + 1 :])
        if good[place : place + 1] != b" ":
            with pytest.raises(CheckpointError, match=r"a\.safetensors is"):
                checkpoint.load(path)


def test_every_truncation_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    checkpoint.save(path, Checkpoint({"w": torch.arange(5.0)}, {"update": 3}))
    good = path.read_bytes()
    for length in range(len(good)):
        path.write_bytes(good[:length])
        with pytest.raises(CheckpointError, match=r"a\.safetensors is"):
            checkpoint.load(path)


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('code of a file was run')",)


def test_a_pickle_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError, match="is cut off or is no safetensors file"):
        checkpoint.load(path)
    torch.save({"w": torch.ones(2)}, path)
    with pytest.raises(CheckpointError, match="is cut off or is no safetensors file"):
        checkpoint.load(path)


def test_weights_of_another_origin_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "last.safetensors"
    safetensors.torch.save_file({"w": torch.ones(2)}, path)
    with pytest.raises(CheckpointError, match="is no checkpoint of mufuru, or is damaged"):
        checkpoint.load(path)
    with pytest.raises(CheckpointError, match="is missing"):
        checkpoint.load(tmp_path / "nothing")
    (tmp_path / "folder").mkdir()
    with pytest.raises(CheckpointError, match="is not a file: expected a checkpoint"):
        checkpoint.load(tmp_path / "folder")


def test_the_earlier_file_lives_on(tmp_path: Path) -> None:
    last, previous = tmp_path / "last", tmp_path / "previous"
    for update in range(3):
        checkpoint.save(last, Checkpoint({}, {"update": update}), keep=previous)
    assert [checkpoint.load(path).values["update"] for path in (last, previous)] == [2, 1]
    assert len(list(tmp_path.iterdir())) == 2


NESTED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.integers() | st.text(), inner),
    max_leaves=8,
)


@given(NESTED)
def test_nested_states_come_back(value: object) -> None:
    assert unpack(pack(value, "state", {}), {}) == value


def test_tensors_of_a_state_come_back() -> None:
    tensors: dict[str, torch.Tensor] = {}
    state = (torch.ones(2), [None, torch.zeros(3)], {0: torch.arange(2)})
    back = unpack(pack(state, "state", tensors), tensors)
    assert set(tensors) == {"state/0", "state/1/1", "state/2/0"}
    assert back[0] is state[0]
    assert back[1][0] is None
    assert torch.equal(back[2][0], torch.arange(2))
    with pytest.raises(TypeError, match="got object"):
        pack(object(), "state", tensors)


def draw() -> list[float]:
    return [random.random(), random.gauss(0, 1), np.random.rand(), np.random.normal(), torch.rand(1).item()]


def test_random_states_come_back(tmp_path: Path) -> None:
    """Through a file, in the middle of a pair of normal numbers, which Python and NumPy draw two at a time."""
    checkpoint.seed_everything(-3)
    draw()
    checkpoint.save(tmp_path / "a", checkpoint.capture_randomness())
    first = [draw() for _ in range(5)]
    loaded = checkpoint.load(tmp_path / "a")
    checkpoint.restore_randomness(loaded)
    assert [draw() for _ in range(5)] == first


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A run that died in its eighth update."""
    folder = tmp_path / "run"

    def die(step: int) -> None:
        if step == 8:
            raise ConnectionAbortedError

    with monkeypatch.context() as patch:
        patch.setattr("toy.INTRUDER", die)
        with pytest.raises(ConnectionAbortedError):
            fit("toy", toy(), folder, checkpoint_seconds=0)
    return RunFolder(folder)


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-40] ^= 1
    path.write_bytes(data)


def test_a_damaged_checkpoint_is_named(stopped: RunFolder) -> None:
    """Nothing is changed by the refusal; with the file deleted, the run goes on from the one before."""
    damage(stopped.last)
    before = {path: path.read_bytes() for path in stopped.path.iterdir()}
    with pytest.raises(RunError, match=r"last\.safetensors is damaged.*Delete it to resume from previous\.safetensors"):
        fit("toy", toy(), stopped.path, resume=True)
    assert {path: path.read_bytes() for path in stopped.path.iterdir()} == before
    stopped.last.unlink()
    assert fit("toy", toy(), stopped.path, resume=True)["updates"] == 15


def test_two_damaged_checkpoints(stopped: RunFolder) -> None:
    stopped.last.unlink()
    damage(stopped.previous)
    with pytest.raises(RunError, match=r"previous\.safetensors is damaged.*start the run again from its beginning"):
        fit("toy", toy(), stopped.path, resume=True)


def test_a_checkpoint_of_another_run_is_refused(stopped: RunFolder, tmp_path: Path) -> None:
    fit("toy", toy(seed=1), tmp_path / "other")
    stopped.last.write_bytes((tmp_path / "other" / "last.safetensors").read_bytes())
    with pytest.raises(RunError, match=r"last\.safetensors belongs to another run: seed is 1 there and 0 here"):
        fit("toy", toy(), stopped.path, resume=True)


def test_lost_metrics_are_noticed(stopped: RunFolder) -> None:
    stopped.metrics.write_bytes(stopped.metrics.read_bytes()[:-10])
    with pytest.raises(RunError, match=r"metrics\.jsonl is \d+ bytes long, the checkpoint knows of \d+"):
        fit("toy", toy(), stopped.path, resume=True)


def test_damaged_best_weights_are_named(tmp_path: Path) -> None:
    fit("toy", toy(), tmp_path / "run")
    damage(tmp_path / "run" / "best.safetensors")
    with pytest.raises(RunError, match=r"best\.safetensors is damaged"):
        load_run(tmp_path / "run")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real disk of 160 kB, where the tests may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root may mount a small disk; the test with a simulated one stands in for it")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    """Really full: the sentence says so, the checkpoint from before stays, and with room the run goes on."""
    folder = RunFolder(small_disk / "run")
    ballast = small_disk / "ballast"

    def fill(step: int) -> None:
        if step == 8:
            with suppress(OSError), open(ballast, "wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("toy.INTRUDER", fill)
        with pytest.raises(
            RunError, match=r"no space left for .*run: what was saved before is untouched. Make room, then"
        ):
            fit("toy", toy(), folder.path, checkpoint_seconds=0)
    assert checkpoint.load(folder.last).values["status"]["update"] == 7
    assert not list(folder.path.glob(".*"))
    ballast.unlink()
    assert fit("toy", toy(), folder.path, resume=True)["updates"] == 15


@pytest.mark.parametrize("number", [28, 122], ids=["ENOSPC", "EDQUOT"])
def test_a_simulated_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """For those who may not mount a disk: flushing fails from some update on."""
    folder = RunFolder(tmp_path / "run")

    def refuse(handle: int) -> None:
        raise OSError(number, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("toy.INTRUDER", lambda step: patch.setattr("os.fsync", refuse) if step == 8 else None)
        with pytest.raises(RunError, match=r"no space left for .*run: what was saved before is untouched") as caught:
            fit("toy", toy(), folder.path, checkpoint_seconds=0)
    assert errors.resume_command(folder.path) in str(caught.value)
    assert checkpoint.load(folder.last).values["status"]["update"] == 7
    assert checkpoint.load(folder.previous).values["status"]["update"] == 6
    assert fit("toy", toy(), folder.path, resume=True)["updates"] == 15
