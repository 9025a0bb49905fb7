"""Experiments: data → model → training → evaluation → record → report. Needs `pip install '.[experiments]'`."""
