"""Means and intervals against values from tables and by hand."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from scipy import stats

from mufuru.experiments.report.measure import Difference, bootstrap, paired, summarise, t_quantile, welch, wilson

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
    # one degree is Cauchy's distribution, two have t = (2p - 1) sqrt(2 / (4 p (1 - p))): Simpson's rule, 1e-10
    for p in (0.6, 0.9, 0.975, 0.995):
        assert t_quantile(p, 1) == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-9)
        assert t_quantile(p, 2) == pytest.approx((2 * p - 1) * math.sqrt(2 / (4 * p * (1 - p))), rel=1e-9)


@pytest.mark.parametrize("degrees", [1, 1.7, 3, 4.25, 9, 10, 57.3])
@pytest.mark.parametrize("probability", [0.6, 0.975, 0.999])
def test_t_is_scipys(degrees: float, probability: float) -> None:
    # Simpson's rule in a thousand steps; between one and two degrees the density's slope has no bound at the far end
    rel = 1e-5 if 1 < degrees < 2 else 1e-9
    assert t_quantile(probability, degrees) == pytest.approx(float(stats.t.ppf(probability, degrees)), rel=rel)


def test_independent_samples_are_compared_as_scipy_does() -> None:
    one, other = [114.2, 114.2, 114.5, 115.0], [116.4, 117.1, 117.9]
    scipys = stats.ttest_ind(one, other, equal_var=False)
    low, high = scipys.confidence_interval(0.95)
    ours = welch(one, other)
    assert ours.n == 3
    assert ours.interval() == pytest.approx((low, high), rel=1e-9)
    wider = welch(one, other, 0.99).interval()
    assert wider == pytest.approx(tuple(scipys.confidence_interval(0.99)), rel=1e-9)
    assert welch([1.0], [2.0, 3.0]) == Difference(-1.5, None, 1)
    assert welch([1.0, 1.0], [2.0, 2.0]).interval() == (-1.0, -1.0)


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (1, 10), (7, 10), (10, 10), (148, 180)])
def test_shares_have_wilsons_interval(hits: int, n: int) -> None:
    scipys = stats.binomtest(hits, n).proportion_ci(0.95, "wilson")
    assert wilson(hits, n) == pytest.approx((scipys.low, scipys.high), abs=1e-9)


def test_at_the_ceiling_the_interval_is_a_bootstraps() -> None:
    values = (1.0,) * 9 + (0.985,)
    # the number of drawn 0.985s is binomial: 2.5 % of the means have four or more, and a third has none
    worst = int(stats.binom.ppf(0.975, 10, 0.1))
    assert bootstrap(values) == pytest.approx((1 - worst * 0.0015, 1.0))
    assert summarise(values).interval(0, 1) == bootstrap(values)
    wide = summarise(values).interval()
    assert wide is not None
    assert wide[1] > 1, "Student's t goes past the ceiling"
    # where there is no ceiling both agree roughly
    noise = [float(x) for x in np.random.default_rng(0).normal(size=40)]
    t = summarise(noise).interval()
    assert t is not None
    # a tenth of the interval's width of about 0.6
    assert bootstrap(tuple(noise)) == pytest.approx(t, abs=0.06)
    assert statistics.fmean(noise) == pytest.approx(sum(t) / 2)


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
