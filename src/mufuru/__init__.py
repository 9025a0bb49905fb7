"""MuFuRU, the Multi-Function Recurrent Unit, for PyTorch."""

from mufuru.cell import MuFuRUCell
from mufuru.kernels import use_kernel
from mufuru.layer import MuFuRU
from mufuru.ops import PAPER, Op, register, unregister
from mufuru.recorder import Recorder
from mufuru.trace import Trace, intervene, tracing

__version__ = "0.1.0"

__all__ = [
    "PAPER",
    "MuFuRU",
    "MuFuRUCell",
    "Op",
    "Recorder",
    "Trace",
    "__version__",
    "intervene",
    "register",
    "tracing",
    "unregister",
    "use_kernel",
]
