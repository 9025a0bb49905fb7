"""What can be wrong with data."""

from __future__ import annotations


class DataError(ValueError):
    """Data that cannot be had or used: the message names it, says what was expected, what came and what to do."""
