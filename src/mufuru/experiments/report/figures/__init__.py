"""The pictures of a report, each a function from records to a matplotlib figure."""
