"""Data sets: downloads with checksums, texts, trees, word vectors, labelled sequences, vocabularies."""

from mufuru.experiments.settings import UserError

__all__ = ["PARTS", "DataError", "TokenError"]

PARTS = {"train": "training", "valid": "validation", "test": "test"}
"""The parts of a data set, and their names in messages."""


class DataError(UserError, ValueError):
    """Data that cannot be loaded or used: the message names it, says what was expected, what came and what to do."""


class TokenError(DataError):
    """A token file that cannot be made, kept or trusted, or a package that it needs is missing; exit code 2."""
