"""The table of `large_text.py`, from its record alone."""

from __future__ import annotations

from typing import Any

from cost_tables import table


def large(record: dict[str, Any]) -> str:
    """Return the table of a record."""
    rows = [("text", "tokens", "", "token file", "tokenised in", "memory of training", "of tokenising")]
    for row in record["rows"]:
        rows.append((
            f"{row['bytes'] / 1e6:,.0f} MB",
            "byte pairs" if row["tokenizer"] == "bpe" else row["tokenizer"],
            f"{row['tokens'] / 1e6:,.0f} million",
            f"{row['token_file'] / 1e6:,.0f} MB",
            f"{row['seconds']:,.0f} s",
            f"{row['peak'] / 1e6:,.0f} MB",
            f"{row['peak_of_a_helper'] / 1e6:,.0f} MB",
        ))  # fmt: skip
    return table(*rows)
