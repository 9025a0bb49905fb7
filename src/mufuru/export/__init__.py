"""Trained models leave Python: as one `torch.export` program, or as an ONNX file that runs without torch and mufuru.

Both take any `nn.Module` with MuFuRU layers inside. `args` and `kwargs` are one example of what the model is called
with; batch and time may then be of any size. For a bare `MuFuRU` layer they may be left out.
"""

from mufuru.export.files import onnx
from mufuru.export.programs import program

__all__ = ["onnx", "program"]
