"""Learn a number of a sequence, such as the price of what a text describes or a rate behind a series."""

from mufuru.experiments.tasks.regress.config import PRESETS, RegressConfig
from mufuru.experiments.tasks.regress.task import NewTargets, Predictor, Regressor, RegressReader, RegressTask
from mufuru.experiments.tasks.task import Kind

KIND = Kind(
    RegressConfig,
    RegressTask,
    PRESETS,
    restore=Regressor.restored,
    predictor=Predictor,
    new_data=NewTargets,
    reader=RegressReader,
    noun="regressor of sequences",
    data="sequences with a number each",
)
