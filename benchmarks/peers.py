"""Those who are measured: each is a call without arguments that does one training step or one inference."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import engines
import shapes
import torch
from floor import BLOCKS, GATED_BLOCKS, GATED_WEIGHTS, WEIGHTS, Floor, one_product, reading
from shapes import CONTROLLER_SIZE, Mode, Shape
from torch import Tensor, nn

from mufuru import PAPER, MuFuRU, MuFuRUCell

Call: TypeAlias = Callable[[], object]


def times(s: Tensor, v: Tensor) -> Tensor:
    """The built-in `mul`, as a user would write it."""
    return s * v


WITH_CUSTOM = tuple(times if name == "mul" else name for name in PAPER)


class Steps(nn.Module):
    """A cell that takes a sequence step by step, as a decoder does. The result is its last state."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> tuple[Tensor]:
        state: Any = None
        for step in x:
            state = self.cell(step, state)
        return (state[0] if isinstance(state, tuple) else state,)


def layers(shape: Shape) -> dict[str, nn.Module]:
    """The torch modules among the peers, with weights of their own."""
    n, m = shape.input_size, shape.hidden_size
    if shape.cell:
        return {
            shapes.SEVEN: Steps(MuFuRUCell(n, m, kernel="native")),
            shapes.GATED: Steps(MuFuRUCell(n, m, ops=("keep", "replace"), kernel="native")),
            shapes.CONTROLLER: Steps(MuFuRUCell(n, m, controller_size=CONTROLLER_SIZE, kernel="native")),
            shapes.REFERENCE: Steps(MuFuRUCell(n, m, kernel="reference")),
            shapes.GRU: Steps(nn.GRUCell(n, m)),
            shapes.LSTM: Steps(nn.LSTMCell(n, m)),
        }
    found: dict[str, nn.Module] = {
        shapes.SEVEN: MuFuRU(n, m, kernel="native"),
        shapes.GATED: MuFuRU(n, m, ops=("keep", "replace"), kernel="native"),
        shapes.CONTROLLER: MuFuRU(n, m, controller_size=CONTROLLER_SIZE, kernel="native"),
        shapes.REFERENCE: MuFuRU(n, m, kernel="reference"),
        shapes.GRU: nn.GRU(n, m),
        shapes.LSTM: nn.LSTM(n, m),
    }
    if shape.name == "language model":
        found[shapes.CUSTOM] = MuFuRU(n, m, ops=WITH_CUSTOM, kernel="native")
    return found


def build(shape: Shape, mode: Mode, threads: int, compiled: bool = False) -> tuple[dict[str, Call], dict[str, str]]:
    """All peers that can run this, in the order of `shapes.PEERS`, and the arithmetic alone; and why others cannot."""
    found: dict[str, Call] = {}
    left_out: dict[str, str] = {}
    modules = layers(shape)
    for name, module in modules.items():
        found[name] = _call(module, shape, mode)
    if compiled and not shape.cell:
        # a compiled module keeps one version per graph: a new one knows nothing of the shapes before
        torch.compiler.reset()
        found[shapes.COMPILED] = _call(torch.compile(MuFuRU(*_sizes(shape), kernel="reference")), shape, mode)
    if shape.name in shapes.RESETS_IN:
        found[shapes.RESETS] = _call(Resetting(modules[shapes.SEVEN], shape), shape, mode)
    if shape.name in shapes.HALF_IN:
        found |= _half(modules, shape, mode, left_out)
    if shape.name in shapes.TORCHRL_IN:
        found |= _torchrl(shape, mode, threads, left_out)
    if shape.name in shapes.EMPTY_IN:
        found[shapes.EMPTY] = _call(Empty(modules[shapes.SEVEN], shape), shape, mode)
    gru = modules[shapes.GRU]
    if mode == "inference" and isinstance(gru, nn.GRU):
        found |= _engines(gru, shape, threads, left_out)
    floor = Floor(shape)
    found[shapes.FLOOR] = floor.training if mode == "training" else floor.forward
    for name, blocks, weights in ((shapes.SEVEN, BLOCKS, WEIGHTS), (shapes.GATED, GATED_BLOCKS, GATED_WEIGHTS)):
        found[shapes.ARITHMETIC[name]] = one_product(shape, mode, blocks)
        found[shapes.READING[name]] = reading(shape, mode, weights)
    order = (*shapes.PEERS, *shapes.ARITHMETIC.values(), *shapes.READING.values())
    return {name: found[name] for name in order if name in found}, left_out


class Resetting(nn.Module):
    """A layer whose state begins anew in 1 % of the steps."""

    def __init__(self, layer: nn.Module, shape: Shape) -> None:
        super().__init__()
        self.layer, self.resets = layer, torch.rand(shape.steps, shape.batch) < 0.01

    def forward(self, x: Tensor) -> Any:
        return self.layer(x, resets=self.resets)


class _Nothing(torch.autograd.Function):
    """As many tensors in, out and kept as a layer has, and no computation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, s0: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, s0, *weights)
        return x.new_empty(*x.shape[:-1], s0.size(-1)), torch.empty_like(s0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        return tuple(map(torch.empty_like, ctx.saved_tensors))


class Empty(nn.Module):
    """A module of a layer's parameters that calls an empty autograd function: the least that a call in Python takes."""

    def __init__(self, layer: nn.Module, shape: Shape) -> None:
        super().__init__()
        self.layer, self.first = layer, torch.zeros(shape.batch, shape.hidden_size)

    def forward(self, x: Tensor) -> Any:
        apply: Any = _Nothing.apply
        return apply(x, self.first, *self.layer.parameters())


class Autocast(nn.Module):
    """A layer whose weights are float32 and whose products may be in bfloat16."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return self.layer(x)


def has_bfloat16() -> bool:
    """Whether the processor multiplies numbers in bfloat16."""
    return any(torch.cpu.get_capabilities().get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))


NO_BFLOAT16 = "not measured: this processor has no instruction for products in bfloat16"
NO_TORCHRL = "torchrl is not installed: pip install torchrl"
ONCE_TORCHRL = "TorchRL compiles its scan for every row: measured on one thread only"


def _half(modules: dict[str, nn.Module], shape: Shape, mode: Mode, left_out: dict[str, str]) -> dict[str, Call]:
    """In bfloat16: ours by autocast, torch's as a layer of bfloat16."""
    if not has_bfloat16():
        left_out.update(dict.fromkeys((shapes.HALF_SEVEN, shapes.HALF_GATED, shapes.HALF_GRU), NO_BFLOAT16))
        return {}
    gru = nn.GRU(*_sizes(shape)).bfloat16()
    return {
        shapes.HALF_SEVEN: _call(Autocast(modules[shapes.SEVEN]), shape, mode),
        shapes.HALF_GATED: _call(Autocast(modules[shapes.GATED]), shape, mode),
        shapes.HALF_GRU: _call(gru, shape, mode, torch.bfloat16),
    }


def _engines(gru: nn.GRU, shape: Shape, threads: int, left_out: dict[str, str]) -> dict[str, Call]:
    names = [name for name in shapes.ENGINES if name not in shapes.HALF or shape.name in shapes.HALF_IN]
    if threads > 1:
        left_out.update(dict.fromkeys(names, engines.ONE_THREAD))
        return {}
    x = _input(shape)
    found: dict[str, Call] = {shapes.ONNX: engines.onnx_call(gru, x)}
    if not engines.has_openvino():
        left_out.update({name: engines.NO_OPENVINO for name in names if name != shapes.ONNX})
        return found
    found[shapes.OPENVINO] = engines.openvino_call(gru, x)
    if shapes.HALF_OPENVINO in names and engines.openvino_has_bfloat16():
        found[shapes.HALF_OPENVINO] = engines.openvino_call(gru, x, half=True)
    elif shapes.HALF_OPENVINO in names:
        left_out[shapes.HALF_OPENVINO] = NO_BFLOAT16
    return found


class Scan(nn.Module):
    """TorchRL's `GRUModule`, whose steps are a scan; time first, like the others."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        with warnings.catch_warnings():
            # TorchRL and TensorDict warn of their own next versions, and of torch's
            warnings.simplefilter("ignore")
            from tensordict import TensorDict
            from torchrl.modules import GRUModule

            self.pack = TensorDict
            self.module = GRUModule(
                *_sizes(shape), in_keys=["x", "state"], out_keys=["y", ("next", "state")],
                recurrent_backend="scan", default_recurrent_mode=True,
            )  # fmt: skip
        self.starts = torch.zeros(shape.batch, shape.steps, 1, dtype=torch.bool)
        self.starts[:, 0] = True

    def forward(self, x: Tensor) -> tuple[Tensor]:
        by_sequence = x.transpose(0, 1)
        found = self.module(self.pack({"x": by_sequence, "is_init": self.starts}, by_sequence.shape[:2]))
        return (found["y"].transpose(0, 1),)


def _torchrl(shape: Shape, mode: Mode, threads: int, left_out: dict[str, str]) -> dict[str, Call]:
    if threads > 1 or importlib.util.find_spec("torchrl") is None:
        left_out[shapes.TORCHRL] = ONCE_TORCHRL if threads > 1 else NO_TORCHRL
        return {}
    return {shapes.TORCHRL: _call(Scan(shape), shape, mode)}


def _sizes(shape: Shape) -> tuple[int, int]:
    return shape.input_size, shape.hidden_size


def _input(shape: Shape) -> Tensor:
    return torch.randn(shape.steps, shape.batch, shape.input_size)


def _call(module: Any, shape: Shape, mode: Mode, dtype: torch.dtype = torch.float32) -> Call:
    x = _input(shape).to(dtype)
    if mode == "inference":
        module.eval()
        return lambda: module(x)
    x.requires_grad_()

    def step() -> None:
        module.zero_grad()
        x.grad = None
        module(x)[0].sum().backward()

    return step
