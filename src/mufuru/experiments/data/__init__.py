"""Data sets: downloads with checksums, texts, trees, word vectors, labelled sequences, vocabularies."""

from __future__ import annotations

__all__ = ["PARTS", "DataError"]

PARTS = {"train": "training", "valid": "validation", "test": "test"}
"""The parts of a data set, and how sentences call them."""


class DataError(ValueError):
    """Data that cannot be had or used: the message names it, says what was expected, what came and what to do."""
