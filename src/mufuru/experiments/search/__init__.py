"""Search for good settings: many runs that differ in a few settings, and which of them is the best."""
