"""The forecasting task: windows of series in, the next values out, measured at rolling origins."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mufuru.experiments.data import DataError
from mufuru.experiments.data import series as series_files
from mufuru.experiments.data.examples import counted
from mufuru.experiments.data.series import Loaded, Series
from mufuru.experiments.draws import permutation
from mufuru.experiments.tasks.classify.use import written
from mufuru.experiments.tasks.forecast.model import Columns, ForecastConfig, Forecaster, SeriesConfig
from mufuru.experiments.tasks.regress.task import pinball
from mufuru.experiments.tasks.task import KEPT, Batches, HowToRead, State, Step, Totals

EVALUATION_BATCH = 200
"""Windows at a time where nothing is trained; no metric depends on it."""
SHOWN = 3
"""Most forecasts that the report draws."""
DIGITS = 6
"""Significant digits of a number in the record."""


class Batch(NamedTuple):
    """Some windows."""

    inputs: Tensor
    """(steps, batch, 1 + covariates)."""
    targets: Tensor
    """(batch, horizon)."""
    scale: Tensor
    """(batch,): the mean absolute seasonal difference of the series in training, the unit of MASE."""


class ForecastTask:
    """Series, model and metrics of one run.

    Each series is cut by time: training, validation, test. A forecast of validation or test has its origin and all its
    horizon there; its window may reach back. MASE and sMAPE stand beside those of the seasonal-naive forecast.
    """

    metric = "mase"
    higher_is_better = False

    def __init__(self, config: ForecastConfig, loaded: Loaded | None = None) -> None:
        self.config, data = config, config.data
        loaded = loaded or load(data, data.data, data.value_columns)
        self.columns = Columns(loaded.columns, data.covariate_columns)
        ends = [cuts(one, config) for one in loaded.series]
        self.take(loaded, [end[0] for end in ends])
        self.train_steps = torch.cat([one.values[: end[0]] for one, end in zip(self.series, ends, strict=True)])
        spans = {"train": [(config.steps, end[0]) for end in ends], "valid": [end[:2] for end in ends],
                 "test": [end[1:] for end in ends]}  # fmt: skip
        self.origins = {part: self._origins(some, 1 if part == "train" else config.stride)
                        for part, some in spans.items()}  # fmt: skip
        self.description += f"; {counted(self.origins)} forecasts of {config.horizon} from {config.steps} values"

    def take(self, loaded: Loaded, ends: list[int]) -> None:
        """Use these series; their scales are those of the values up to `ends`."""
        self.series, self.description = loaded.series, loaded.description
        self.values = torch.cat([one.values for one in self.series])
        pairs = zip(self.series, ends, strict=True)
        self.scales = torch.tensor([scale(one, end, self.config.season) for one, end in pairs])

    def _origins(self, spans: list[tuple[int, int]], stride: int) -> Tensor:
        """Return (windows, 2): the origin of each window among all values, and its series; each with its horizon is in
        the span of the series."""
        rows, start = [], 0
        for number, (one, (first, end)) in enumerate(zip(self.series, spans, strict=True)):
            here = start + torch.arange(first, end - self.config.horizon + 1, stride)
            rows.append(torch.stack((here, torch.full_like(here, number)), 1))
            start += len(one.values)
        return torch.cat(rows)

    @property
    def fingerprint(self) -> str:
        """The sha256 of all values."""
        digest = hashlib.sha256(str([(one.name, tuple(one.values.shape)) for one in self.series]).encode())
        # as a big-endian machine would write it too
        digest.update(self.values.numpy().astype("<f4").tobytes())
        return digest.hexdigest()

    def build(self) -> Forecaster:
        model = Forecaster(self.config, self.columns, self.fingerprint)
        if model.covariates is not None:
            model.covariates.measure(self.train_steps[:, 1:])
        return model

    def batches(self, split: str, epoch: int = 0) -> Batches:
        """Return all batches; those of "train" in the order of the epoch."""
        count, size = len(self.origins[split]), EVALUATION_BATCH
        order = torch.arange(count)
        if split == "train":
            order, size = permutation(count, "forecast", self.config.seed, epoch), self.config.training.batch_size
        return Batches(lambda which: self.batch(self.origins[split][which]), order.split(size))

    def batch(self, origins: Tensor) -> Batch:
        here, series = origins.unbind(1)
        before, after = torch.arange(-self.config.steps, 0), torch.arange(self.config.horizon)
        inputs = self.values[here + before.unsqueeze(1)]
        return Batch(inputs, self.values[here.unsqueeze(1) + after, 0], self.scales[series])

    def rows(self, batch: Batch) -> int:
        return len(batch.targets)

    def share(self, batch: Batch, rows: slice) -> Batch:
        """Return some windows."""
        return Batch(batch.inputs[:, rows], batch.targets[rows], batch.scale[rows])

    def step(self, model: Any, batch: Batch, state: State) -> Step:
        standard = model.standard(batch.inputs)
        mean, deviation = standard.mean.unsqueeze(1), standard.deviation.unsqueeze(1)
        losses = pinball(standard.quantiles, (batch.targets - mean) / deviation, self.config.quantiles)
        rising = standard.quantiles.detach().sort(-1).values * deviation.unsqueeze(-1) + mean.unsqueeze(-1)
        median = rising[:, :, self.config.quantiles.index(0.5)]
        inside = (rising[:, :, 0] <= batch.targets) & (batch.targets <= rising[:, :, -1])
        sums = {"coverage": inside}
        for name, forecast in (("", median), ("naive_", standard.naive * deviation + mean)):
            sums[f"{name}mase"] = (forecast - batch.targets).abs() / batch.scale.unsqueeze(1)
            sums[f"{name}smape"] = smape(forecast, batch.targets)
        totals = {name: values.double().sum() for name, values in sums.items()}
        return Step(losses.mean(-1).sum(), batch.targets.numel(), sums=totals)

    def metrics(self, totals: Totals) -> dict[str, float]:
        """Return the quantile loss of standardised windows; MASE, and sMAPE in per cent, of the median and of the
        seasonal-naive forecast; and the share of values between the lowest and the highest quantile."""
        names = ("loss", "mase", "naive_mase", "smape", "naive_smape")
        more = ("coverage",) if len(self.config.quantiles) > 1 else ()
        return {name: totals.mean(name) for name in (*names, *more)}

    def examples(self) -> list[str]:
        """Return windows before origins of validation, spread over it, as the explorer reads them."""
        origins = self.origins["valid"][:, 0]
        chosen = origins[:: -(-len(origins) // KEPT)].tolist()
        return [written(self.values[origin - self.config.steps : origin], self.config) for origin in chosen]

    def inspect(self, model: Any) -> dict[str, Any]:
        """Return a description of the data and some "forecasts": of several series the last one of each, of a single
        one some that do not overlap."""
        origins, quantiles = self.origins["test"], self.config.quantiles
        if len(self.series) > 1:
            last = [int((origins[:, 1] == number).nonzero()[-1]) for number in range(min(SHOWN, len(self.series)))]
        else:
            last = list(range(len(origins) - 1, -1, -self.config.horizon))[:SHOWN][::-1]
        chosen = origins[torch.tensor(last)]
        batch = self.batch(chosen)
        rising, standard = model(batch.inputs), model.standard(batch.inputs)
        naive = standard.naive * standard.deviation.unsqueeze(1) + standard.mean.unsqueeze(1)
        shown = [
            {
                "series": self.series[int(chosen[row, 1])].name,
                "before": rounded(batch.inputs[-3 * self.config.horizon - self.config.season :, row, 0]),
                "truth": rounded(batch.targets[row]),
                "naive": rounded(naive[row]),
                "quantiles": {f"{level:g}": rounded(rising[row, :, place]) for place, level in enumerate(quantiles)},
            }
            for row in range(len(chosen))
        ]
        return {"data": self.description, "forecasts": shown}


class NewSeries(ForecastTask):
    """Another file for a trained forecaster: one part, "data", with all origins that have a whole window before them.

    The unit of MASE is the mean absolute seasonal difference of the file's own values.
    """

    def __init__(self, model: Forecaster, config: ForecastConfig, file: Path, how: HowToRead) -> None:
        if how.format or how.text_column or how.label_column:
            raise DataError(
                "a forecaster reads files as in training: leave --format, --text-column and --label-column out"
            )
        self.config, self.columns = config, model.columns
        loaded = load(config.data, file, model.columns.values)
        lengths, least = [len(one.values) for one in loaded.series], config.steps + config.horizon
        for one, length in zip(loaded.series, lengths, strict=True):
            if length < least:
                raise DataError(f"{file}: the series {one.name!r} has {length} values, expected at least {least}: "
                                f"{config.steps} to forecast from and a horizon of {config.horizon}")  # fmt: skip
        self.take(loaded, lengths)
        self.origins = {"data": self._origins([(config.steps, length) for length in lengths], config.stride)}
        self.description += f"; {len(self.origins['data']):,} forecasts of {config.horizon}"


def rounded(values: Tensor) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values.tolist()]


def smape(forecast: Tensor, truth: Tensor) -> Tensor:
    """Return the symmetric percentage errors, from 0 to 200; 0 where both are 0."""
    both = forecast.abs() + truth.abs()
    return torch.where(both > 0, 200 * (forecast - truth).abs() / both, 0.0)


def cuts(series: Series, config: ForecastConfig) -> tuple[int, int, int]:
    """Return where training, validation and test of a series end."""
    count = len(series.values)
    valid, test = (max(round(count * share), config.horizon) for share in config.data.held_out)
    train = count - valid - test
    if train < config.steps + config.horizon:
        raise DataError(f"the series {series.name!r} has {count} values, expected at least "
                        f"{config.steps + config.horizon + valid + test}: {config.steps} to forecast from and a "
                        f"horizon of {config.horizon} in training, and {valid} and {test} values held out. Give "
                        "longer series, or a shorter --context or --horizon")  # fmt: skip
    return train, train + valid, count


def scale(series: Series, end: int, season: int) -> float:
    """Return the mean absolute seasonal difference of the training part."""
    values = series.values[:end, 0].double()
    mean = float((values[season:] - values[:-season]).abs().mean())
    if not mean:
        raise DataError(f"the series {series.name!r} repeats itself exactly in training: there is nothing to learn, "
                        "and no scale of its errors. Leave it out: name the others with --value-columns")  # fmt: skip
    return mean


def load(data: SeriesConfig, file: str | Path | None, values: tuple[str, ...]) -> Loaded:
    """Return the series of the training file, or of another one with its columns."""
    if file is None:
        raise DataError("forecast needs series: name their file with --data")
    columns = series_files.Columns(values, data.covariate_columns, data.series_column)
    return series_files.load(file, columns, data.format)
