"""Learn to recognise formal languages, and to track states, and generalise to longer strings."""

from mufuru.experiments.tasks.languages.config import PRESETS
from mufuru.experiments.tasks.languages.task import LanguagesTask
from mufuru.experiments.tasks.task import Card, Kind

KIND = Kind(LanguagesTask, PRESETS, Card("recogniser of a formal language", "strings of a formal language"))
