"""`MuFuRUCell`: one step of the unit, a peer of `torch.nn.GRUCell`."""

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.fx import Proxy

from mufuru import kernels
from mufuru import ops as operations
from mufuru.kernels import Call
from mufuru.kernels.step import new_state
from mufuru.ops import OpLike
from mufuru.recurrent import Device, Recurrent, State
from mufuru.sequences import Sequences
from mufuru.trace import Trace, of_this_thread
from mufuru.unit import Activation, ControllerActivation, OpBias, Reset
from mufuru.validate import check_numbers


class MuFuRUCell(Recurrent):
    r"""One step of a Multi-Function Recurrent Unit.

    $$r = \sigma(W_r [x; s] + b_r), \quad v = \tanh(W_v [x; r \odot s] + b_v)$$
    $$p^j = \mathrm{softmax}_j(W_p^j [x; s] + b_p^j), \quad s' = \sum_j p^j \odot \mathrm{op}^j(s, v)$$

    Shapes: `input` (batch, input_size) or (input_size,); `hx` and the result (batch, hidden_size) or (hidden_size,).
    With a recurrent controller `hx` and the result are pairs `(h, k)`, k of `controller_size`.

    The options are those of `MuFuRU`.

    Examples:
        >>> cell = MuFuRUCell(10, 20)
        >>> cell(torch.randn(3, 10)).shape
        torch.Size([3, 20])
    """

    dtype_error = RuntimeError  # as nn.GRUCell's

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        ops: Sequence[OpLike] = operations.PAPER,
        reset: Reset = "before",
        activation: Activation = "tanh",
        controller_size: int | None = None,
        controller_activation: ControllerActivation = "tanh",
        reset_bias: float = 1.0,
        op_bias: OpBias = None,
        kernel: kernels.Choice = "auto",
    ) -> None:
        super().__init__(
            _size("input_size", input_size), _size("hidden_size", hidden_size), bool(bias), ops, reset, activation,
            controller_size, controller_activation, reset_bias, op_bias, kernel,
        )  # fmt: skip
        self._add_unit(self.unit, "", device, dtype)
        if not bias:
            self.register_parameter("bias_ih", None)
            self.register_parameter("bias_hh", None)
        self.reset_parameters()

    if TYPE_CHECKING:  # nn.Module's __call__ says nothing of its arguments

        def __call__(self, input: Tensor, hx: State | None = None) -> Any: ...

    def forward(self, input: Tensor, hx: State | None = None) -> State:
        if not torch.compiler.is_compiling() and (new := self._step(input, hx)) is not None:
            return new
        if isinstance(input, Proxy):
            return self._recorded(input, hx)
        if not isinstance(input, Tensor):
            raise TypeError(
                f"input should be a tensor, one step of a batch of sequences, got {type(input).__name__}: "
                "torch.as_tensor makes a tensor of numbers, MuFuRU takes whole sequences"
            )
        input = check_numbers("input", input)
        h, k = self._pair(hx)
        _check_rank("input", rank := input.dim())
        for name, state in (("hidden", h), ("controller", k)):
            if state is not None:
                _check_rank(name, state.dim())
        batched = rank == 2
        x = input if batched else input.unsqueeze(0)
        s0, k0 = self._checked(x, h, k, batched)
        result, steps = self._execute(Call(self.unit, self._weights(0), x, s0, k0, packed=self._packed_weights(0)))
        if (traces := of_this_thread(self._traces)) is not None and steps is not None:
            layout = Sequences(x, x.size(0), 1, batch_first=False, batched=batched)
            traces.append(Trace(self.unit.ops, layout, 1, (steps,)))
        new_h = result.s_n if batched else result.s_n.squeeze(0)
        if result.k_n is None:
            return new_h
        return new_h, result.k_n if batched else result.k_n.squeeze(0)

    def _step(self, input: Any, hx: Any) -> Tensor | None:
        """Return the new state by the shortest way, `None` where `forward` has to take the long one."""
        if self._traces or self._allowed or torch.is_grad_enabled():
            return None
        unit, _, names = self._units[0]
        weights = [None if name is None else self._parameters.get(name) for name in names]
        return new_state(unit, self.kernel, input, hx, weights)

    def _checked(self, x: Tensor, h: Tensor | None, k: Tensor | None, batched: bool) -> tuple[Tensor, Tensor | None]:
        """Return the states, after a check of their sizes and then, as in `nn.GRUCell`, of their dtypes."""
        if x.size(1) != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {x.size(1)} expected {self.input_size}")
        s0 = self._state("hidden", h, x, self.hidden_size, batched)
        k0 = None
        if self.controller_size is not None:
            k0 = self._state("controller", k, x, self.controller_size, batched)
        self._check_dtype(x)
        self._check_device(x)
        for state in (h, k):
            if state is not None:
                self._check_state(state)
        return s0, k0

    def _state(self, name: str, state: Tensor | None, x: Tensor, size: int, batched: bool) -> Tensor:
        expected = (x.size(0), size)
        if state is None:
            return x.new_zeros(expected)
        rows = state if batched else state.unsqueeze(0)
        if rows.shape == expected:
            return rows
        wanted = f"hx should have the shape {list(expected if batched else expected[1:])}, got {list(state.shape)}"
        if rows.size(0) != x.size(0):
            raise RuntimeError(
                f"Input batch size {x.size(0)} doesn't match {name}0 batch size {rows.size(0)}: {wanted}"
            )
        width = rows.size(min(1, rows.dim() - 1))
        raise RuntimeError(f"{name}0 has inconsistent {name}_size: got {width}, expected {size}: {wanted}")


def _check_rank(name: str, rank: int) -> None:
    if rank not in (1, 2):
        raise ValueError(f"MuFuRUCell: Expected {name} to be 1D or 2D, got {rank}D instead")


def _size(name: str, value: int) -> int:
    """Check a size as `nn.GRUCell` does: any integer, NumPy's too, and 0."""
    try:
        size = int(operator.index(value))
    except TypeError:
        raise TypeError(f"{name} should be of type int, got: {type(value).__name__}") from None
    if size < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {size}: {name} should be 0 or more")
    return size
