"""The learning rate against numbers worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy import pretend, toy

from mufuru.experiments.engine import fit
from mufuru.experiments.engine.status import learning_rate
from mufuru.experiments.settings import Schedule, Training

HALF_ROOT = 0.5**0.5


@pytest.mark.parametrize(
    ("schedule", "warmup", "expected"),
    [
        ("constant", 0, [8, 8, 8, 8, 8, 8, 8, 8]),
        ("plateau", 0, [8, 8, 8, 8, 8, 8, 8, 8]),
        ("linear", 0, [8, 7, 6, 5, 4, 3, 2, 1]),
        ("constant", 4, [2, 4, 6, 8, 8, 8, 8, 8]),
        ("linear", 4, [2, 4, 6, 8, 8, 6, 4, 2]),
        ("cosine", 4, [2, 4, 6, 8, 8, 4 + 4 * HALF_ROOT, 4, 4 - 4 * HALF_ROOT]),
        ("linear", 16, [0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4]),
    ],
)
def test_schedule(schedule: Schedule, warmup: int, expected: list[float]) -> None:
    training = Training(learning_rate=8.0, schedule=schedule, warmup=warmup)
    # the cosine is rounded
    assert [learning_rate(training, update, 8) for update in range(8)] == pytest.approx(expected, rel=1e-12)


def test_the_factor_of_a_plateau() -> None:
    assert learning_rate(Training(schedule="plateau"), 3, 10, factor=0.125) == 1e-3 * 0.125


def lines(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_rates_of_a_run(tmp_path: Path) -> None:
    fit("toy", toy(schedule="linear", evaluate_every=1, learning_rate=0.15), tmp_path / "run")
    # 0.15 is not a float
    assert [line["learning_rate"] for line in lines(tmp_path / "run")] == pytest.approx(
        [0.01 * (15 - update) for update in range(15)], rel=1e-12
    )


def test_the_plateau_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A metric that improves at the first, second and fourth look only."""
    metrics = iter([0.1, 0.2, 0.2, 0.3, 0.1] + [0.3] * 3)
    pretend(monkeypatch, lambda: {"loss": 1.0, "accuracy": next(metrics)})
    fit("toy", toy(schedule="plateau", decay=0.5, learning_rate=0.08, evaluate_every=3), tmp_path / "run")
    assert [line["learning_rate"] for line in lines(tmp_path / "run")] == [0.08, 0.08, 0.08, 0.04, 0.04]


def test_a_plateau_with_patience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second look without progress halves the rate, and so does the fourth; progress begins the count again."""
    metrics = iter([0.1, 0.1, 0.2, 0.2, 0.1, 0.1, 0.1, 0.1] + [0.3] * 3)
    pretend(monkeypatch, lambda: {"loss": 1.0, "accuracy": next(metrics)})
    settings = {"schedule": "plateau", "decay": 0.5, "decay_patience": 2, "learning_rate": 0.08, "evaluate_every": 2}
    fit("toy", toy(**settings), tmp_path / "run")
    rates = [line["learning_rate"] for line in lines(tmp_path / "run")]
    assert rates == [0.08, 0.08, 0.08, 0.08, 0.08, 0.04, 0.04, 0.02]
