"""Learn to recognise formal languages, and to track states, and generalise to longer strings."""

from mufuru.experiments.tasks.languages.config import PRESETS, LanguagesConfig
from mufuru.experiments.tasks.languages.task import LanguagesTask
from mufuru.experiments.tasks.task import Kind

KIND = Kind(
    LanguagesConfig, LanguagesTask, PRESETS, noun="recogniser of a formal language", data="strings of a formal language"
)
