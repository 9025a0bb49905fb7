"""Means and intervals against values from tables and by hand."""

from __future__ import annotations

import math

import pytest

from mufuru.experiments.report.measure import paired, summarise, t_quantile, t_within

# two-sided 95 %, from the printed table of Student's t; three decimals
TABLE = {
    1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 15: 2.131,
    20: 2.086, 30: 2.042, 60: 2.000, 120: 1.980,
}  # fmt: skip


@pytest.mark.parametrize(("degrees", "value"), TABLE.items())
def test_t_is_that_of_the_table(degrees: int, value: float) -> None:
    # half of the last digit that the table gives
    assert t_quantile(0.975, degrees) == pytest.approx(value, abs=5e-4)


def test_t_in_closed_form() -> None:
    # one degree is Cauchy's distribution, two have t = (2p - 1) sqrt(2 / (4 p (1 - p))): the last bits may differ
    for p in (0.6, 0.9, 0.975, 0.995):
        assert t_quantile(p, 1) == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-12)
        assert t_quantile(p, 2) == pytest.approx((2 * p - 1) * math.sqrt(2 / (4 * p * (1 - p))), rel=1e-12)


@pytest.mark.parametrize("degrees", [3, 4, 9, 10])
def test_t_is_the_integral_of_its_density(degrees: int) -> None:
    scale = math.gamma((degrees + 1) / 2) / (math.sqrt(degrees * math.pi) * math.gamma(degrees / 2))
    steps = 20_000
    width = 2.0 / steps
    middles = ((i + 0.5) * width for i in range(steps))
    integral = 2 * width * sum(scale * (1 + t * t / degrees) ** (-(degrees + 1) / 2) for t in middles)
    # the midpoint rule is off by the square of the width, 1e-8
    assert t_within(2.0, degrees) == pytest.approx(integral, abs=1e-7)


def test_t_of_many_is_the_normal_distribution() -> None:
    # t exceeds the normal's 1.959964 by about 2.4 / degrees
    assert t_quantile(0.975, 10_000) == pytest.approx(1.959964, abs=3e-4)
    assert t_quantile(0.5, 7) == pytest.approx(0, abs=1e-12)


def test_summary_by_hand() -> None:
    found = summarise([1.0, 2.0, 3.0, 6.0])
    # squares of the distances from 3: 4 + 1 + 0 + 9
    assert (found.n, found.mean, min(found.values), max(found.values)) == (4, 3.0, 1.0, 6.0)
    assert found.deviation == pytest.approx(math.sqrt(14 / 3))
    assert found.margin == pytest.approx(3.182446 * math.sqrt(14 / 3) / 2, rel=1e-6)
    assert found.interval() == pytest.approx((3 - found.margin, 3 + found.margin))
    assert found.interval(0, 5) == (0, 5)
    assert found.reaching(2.0) == 3


def test_a_mean_of_decimals_reaches_its_value() -> None:
    found = summarise([1.0, 0.99, 0.98])
    assert found.mean != 0.99
    assert found.reaches(0.99)
    assert not found.reaches(0.9901)
    assert summarise([0.1 + 0.2, 0.8 - 0.5]).reaching(0.3) == 2


def test_one_run_has_no_interval() -> None:
    found = summarise([0.5])
    assert (found.mean, found.deviation, found.margin, found.interval(0, 1)) == (0.5, None, None, None)


def test_pairs_are_made_by_seed() -> None:
    found = paired({0: 1.0, 2: 3.0, 5: 9.0}, {2: 1.0, 0: 0.5, 7: 4.0})
    assert found is not None
    assert found.values == (0.5, 2.0)
    assert paired({0: 1.0}, {1: 1.0}) is None
    one = paired({0: 1.0}, {0: 0.25})
    assert one is not None
    assert (one.mean, one.interval()) == (0.75, None)
