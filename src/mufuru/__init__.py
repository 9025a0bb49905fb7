"""MuFuRU, the Multi-Function Recurrent Unit, for PyTorch."""

import _signal  # type: ignore[import-not-found]  # built in: the module around it takes time
import sys

if (
    sys.argv[:1] == ["-m"]
    and sys.orig_argv[-len(sys.argv)] == "mufuru"
    and _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
):
    # python -m mufuru begins here, and torch comes next: Ctrl-C ends the process at once, as mufuru_command says
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import torch

from mufuru import export, int8, plot
from mufuru.cell import MuFuRUCell
from mufuru.kernels import kernel_status, use_kernel
from mufuru.layer import MuFuRU
from mufuru.ops import PAPER, Op, get, register, unregister
from mufuru.prune import without_operations
from mufuru.recorder import Recorder
from mufuru.recurrent import State
from mufuru.saving.files import PretrainedError
from mufuru.trace import Trace, intervene, tracing
from mufuru.tree import TreeMuFuRU, TreeTrace
from mufuru.tree_order import Levels
from mufuru.unit import Unit

__version__ = "0.1.0"

# what a layer saved whole is made of; with the user's own classes, torch.load then reads a model around it
torch.serialization.add_safe_globals([MuFuRU, MuFuRUCell, Op, TreeMuFuRU, Unit, get])

__all__ = [
    "PAPER",
    "Levels",
    "MuFuRU",
    "MuFuRUCell",
    "Op",
    "PretrainedError",
    "Recorder",
    "State",
    "Trace",
    "TreeMuFuRU",
    "TreeTrace",
    "__version__",
    "export",
    "int8",
    "intervene",
    "kernel_status",
    "plot",
    "register",
    "tracing",
    "unregister",
    "use_kernel",
    "without_operations",
]
