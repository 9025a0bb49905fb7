"""A local page that looks inside trained models: what they predict after every token, and by which operations.

It is given runs that are loaded already, so it knows nothing of how they were trained. A request is a text and a view
of it; the answer holds every number that the page draws.
"""

from mufuru.experiments.explorer.runs import ExploredRun, explored, shipped
from mufuru.experiments.explorer.server import serve

__all__ = ["ExploredRun", "explored", "serve", "shipped"]
