"""`MuFuRU`: layers, directions, padded and packed sequences, as `torch.nn.GRU`."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

import torch
from torch import Tensor, nn
from torch.fx import Proxy
from torch.nn.functional import dropout as drop
from torch.nn.utils.rnn import PackedSequence

from mufuru import bridge, kernels, sequences
from mufuru import ops as operations
from mufuru.kernels import Call
from mufuru.noise import NO_NOISE, Noise, check_probability
from mufuru.ops import OpLike
from mufuru.recurrent import Device, Recurrent, State
from mufuru.sequences import Lengths, Resets, Sequences
from mufuru.trace import Steps, Trace, of_this_thread, tracing
from mufuru.unit import Activation, ControllerActivation, OpBias, Reset, check_size
from mufuru.validate import check_numbers

P = ParamSpec("P")


def _without_proj_size(init: Callable[P, None]) -> Callable[P, None]:
    """Refuse `proj_size` as `nn.GRU` does, without listing it among the arguments."""

    @wraps(init)
    def checked(*args: P.args, **kwargs: P.kwargs) -> None:
        if "proj_size" in kwargs:
            raise ValueError(
                "proj_size argument is only supported for LSTM, not RNN or GRU, nor MuFuRU: "
                "for a smaller output put an nn.Linear after the layer"
            )
        init(*args, **kwargs)

    return checked


class MuFuRU(Recurrent):
    r"""A multi-layer recurrent network of Multi-Function Recurrent Units; use it where you use `torch.nn.GRU`.

    $$r_t = \sigma(W_r [x_t; s_{t-1}] + b_r), \quad v_t = \tanh(W_v [x_t; r_t \odot s_{t-1}] + b_v)$$

    $$p_t^j = \mathrm{softmax}_j(W_p^j [x_t; s_{t-1}] + b_p^j), \quad
      s_t = \sum_j p_t^j \odot \mathrm{op}^j(s_{t-1}, v_t)$$

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional: as for `torch.nn.GRU`.
        ops: names of operations, or callables `(s, v) -> tensor`. Default: the paper's seven.
        reset: where the reset gate acts: `"before"` the recurrent product (the paper), `"after"` it (as
            `torch.nn.GRU`), or `None` for no reset gate.
        activation: activation of the features: `"tanh"` (the paper) or `"sigmoid"` (the authors' code).
        controller_size: size of a recurrent controller that chooses the operations; `None` (the paper) lets input and
            state choose. With a controller the state is a pair `(h, k)`, as an LSTM's is.
        controller_activation: activation of the recurrent controller: `"tanh"`, or `"relu"` (the authors' code).
        reset_bias: initial bias of the reset gate.
        op_bias: initial bias of the operations' logits, by name or in order. Default: 2 for keep, 0 for the others.
        learn_initial_state: train the initial state that is used when no `hx` is given.
        input_dropout, state_dropout: variational dropout, one mask per sequence, of inputs and of states.
        zoneout: probability that a unit keeps its state in a step.
        weight_dropout: dropout of the recurrent weights.
        op_dropout: dropout of whole operations, per sequence.
        kernel: `"auto"`, `"native"` (CPU), `"triton"` (GPU) or `"reference"` (plain PyTorch).
        checkpoint_every: keep activations of this many steps at a time and recompute the others in the backward pass.

    Shapes: `input` (steps, batch, input_size), with `batch_first` (batch, steps, input_size), (steps, input_size) for
    one sequence, or a `PackedSequence`; `hx` (num_layers * directions, batch, hidden_size). Returns `output`
    (steps, batch, directions * hidden_size) and `h_n`, shaped as `hx`. With `lengths=` a padded batch is read to each
    sequence's own end; outputs past it are zero.

    `resets` has a Boolean for each step of the input: (steps, batch), with `batch_first` (batch, steps), (steps,) for
    one sequence, or packed as the input. Where it is true a new document or episode begins: the state is set back to
    the initial one before that step, in every layer. The reverse direction reads each document from its own end, so the
    result is that of running each on its own; no gradient crosses a reset.

    Examples:
        >>> rnn = MuFuRU(10, 20, num_layers=2)
        >>> output, h_n = rnn(torch.randn(5, 3, 10))
        >>> output.shape, h_n.shape
        (torch.Size([5, 3, 20]), torch.Size([2, 3, 20]))
    """

    mode = "MUFURU"
    """The kind of layer, for programs that ask an `nn.RNNBase` for it."""
    proj_size = 0
    """For programs that take an LSTM too and ask for the size of its output."""

    @_without_proj_size
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        ops: Sequence[OpLike] = operations.PAPER,
        reset: Reset = "before",
        activation: Activation = "tanh",
        controller_size: int | None = None,
        controller_activation: ControllerActivation = "tanh",
        reset_bias: float = 1.0,
        op_bias: OpBias = None,
        learn_initial_state: bool = False,
        input_dropout: float = 0.0,
        state_dropout: float = 0.0,
        zoneout: float = 0.0,
        weight_dropout: float = 0.0,
        op_dropout: float = 0.0,
        kernel: kernels.Choice = "auto",
        checkpoint_every: int | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        _check_arguments(input_size, hidden_size, num_layers, bias, batch_first, dropout)
        if checkpoint_every is not None and checkpoint_every <= 0:
            raise ValueError(f"checkpoint_every should be a positive number of steps or None, got {checkpoint_every}")
        super().__init__(
            input_size, hidden_size, bias, ops, reset, activation, controller_size, controller_activation,
            reset_bias, op_bias, kernel,
        )  # fmt: skip
        self.num_layers, self.batch_first, self.dropout = num_layers, batch_first, float(dropout)
        self.bidirectional, self.learn_initial_state = bool(bidirectional), bool(learn_initial_state)
        self.input_dropout, self.state_dropout, self.zoneout = input_dropout, state_dropout, zoneout
        self.weight_dropout, self.op_dropout = weight_dropout, op_dropout
        self.checkpoint_every = checkpoint_every
        Noise(*self._probabilities)
        for layer in range(num_layers):
            size = input_size if layer == 0 else self.num_directions * hidden_size
            for suffix in ("", "_reverse")[: self.num_directions]:
                self._add_unit(replace(self.unit, input_size=size), f"_l{layer}{suffix}", device, dtype)
        if learn_initial_state:
            for name, size in self._state_sizes.items():
                self.register_parameter(
                    name, nn.Parameter(torch.empty(len(self._units), size, device=device, dtype=dtype))
                )
        self.reset_parameters()

    @property
    def num_directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """The parameters by layer and direction, as `nn.GRU` lists them."""
        return [[getattr(self, name) for name in names if name is not None] for _, _, names in self._units]

    def flatten_parameters(self) -> None:
        """For programs that call it on `nn.GRU`. Also drops packed copies of the weights that inference keeps."""
        self._packed.clear()

    def reset_parameters(self) -> None:
        """Initialise all parameters again."""
        super().reset_parameters()
        if self.learn_initial_state:
            for name in self._state_sizes:
                nn.init.zeros_(getattr(self, name))

    if TYPE_CHECKING:  # nn.Module's __call__ says nothing of its arguments

        def __call__(
            self,
            input: Tensor | PackedSequence,
            hx: State | None = None,
            lengths: Lengths = None,
            resets: Resets = None,
        ) -> Any: ...

    def forward(
        self, input: Tensor | PackedSequence, hx: State | None = None, lengths: Lengths = None, resets: Resets = None
    ) -> tuple[Tensor | PackedSequence, State]:
        if isinstance(input, Proxy):
            return self._recorded(input, hx, lengths, resets)
        batch = sequences.from_input(input, lengths, self.batch_first)
        given = self._pair(hx)
        _check_ranks(given, batch)
        self._check_input(batch.data)
        s0, k0 = self._initial_state(given, batch)
        begins = batch.resets(resets, self.num_directions)
        x = batch.data
        s_n: list[Tensor] = []
        k_n: list[Tensor] = []
        traced: list[Steps] = []
        outputs: list[Tensor] = []
        noise = self._noise
        for layer in range(self.num_layers):
            if layer:
                x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
                x = drop(x, self.dropout, self.training) if self.dropout else x
            mask = noise.input_mask(x, batch.batch, batch.batch_sizes) if self.training else None
            x = x if mask is None else x * mask
            outputs = []
            for direction in range(self.num_directions):
                index = layer * self.num_directions + direction
                first = s0[index], None if k0 is None else k0[index]
                call = self._direction(index, x, *first, batch.batch_sizes, begins[direction], noise)
                result, steps = self._execute(call, self.checkpoint_every)
                outputs.append(result.output)
                s_n.append(result.s_n)
                k_n += [] if result.k_n is None else [result.k_n]
                traced += [] if steps is None else [steps]
        if (traces := of_this_thread(self._traces)) is not None:
            traces.append(Trace(self.unit.ops, batch, self.num_directions, tuple(traced)))
        # the user may change the output in place, and the backward pass needs it as it was. torch.jit.trace runs a
        # second time, without gradients, and compares
        kept = outputs[0].requires_grad or bool(torch._C._get_tracing_state())
        return batch.like_input(outputs, copy=kept), self._final_state(s_n, k_n, batch)

    def trace(
        self, input: Tensor | PackedSequence, hx: State | None = None, lengths: Lengths = None, resets: Resets = None
    ) -> Trace:
        """Run forward and return which operation was used where, in place of the output."""
        with tracing(self) as traces:
            self(input, hx, lengths, resets)
        return traces[""][-1]

    @classmethod
    def from_gru(cls, gru: nn.GRU, *, added_bias: float = -5.0, **options: Any) -> MuFuRU:
        """Return a layer with the weights of `gru` that computes the same.

        With `ops=` beyond keep and replace, a warm start: the further operations begin with the logit `added_bias`,
        that is at most `exp(added_bias)` of replace's weight, and training takes it from there.
        """
        return bridge.from_gru(cls, gru, added_bias, options)

    def to_gru(self) -> nn.GRU:
        """Return the `nn.GRU` that computes the same; needs operations keep and replace, and reset `"after"`."""
        return bridge.to_gru(self)

    @property
    def _state_sizes(self) -> dict[str, int]:
        sizes = {"h_0": self.hidden_size}
        return sizes if self.controller_size is None else sizes | {"k_0": self.controller_size}

    @property
    def _probabilities(self) -> tuple[float, ...]:
        return self.input_dropout, self.state_dropout, self.zoneout, self.weight_dropout, self.op_dropout

    @property
    def _noise(self) -> Noise:
        """The dropouts with their current probabilities: a program may change them while it trains."""
        return Noise(*self._probabilities) if any(self._probabilities) else NO_NOISE

    def _direction(
        self,
        index: int,
        x: Tensor,
        s0: Tensor,
        k0: Tensor | None,
        batch_sizes: Tensor | None,
        resets: Tensor | None,
        noise: Noise,
    ) -> Call:
        unit, suffix, _ = self._units[index]
        weights = self._weights(index)
        if self.training:
            weights = noise.drop_weights(weights)
        masks = noise.masks(x, s0, len(unit.ops), self.training)
        if resets is not None:
            masks = masks._replace(resets=resets)
        reverse, packed = suffix.endswith("_reverse"), self._packed_weights(index)
        return Call(unit, weights, x, s0, k0, batch_sizes, reverse=reverse, masks=masks, packed=packed)

    def _check_input(self, x: Tensor) -> None:
        self._check_dtype(x)
        if x.dim() != 2:
            raise RuntimeError(
                f"input must have 2 dimensions, got {x.dim()}: the data of a PackedSequence are (total, input_size)"
            )
        if x.size(-1) != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {x.size(-1)}"
            )
        self._check_device(x)

    def _initial_state(
        self, given: tuple[Tensor | None, Tensor | None], batch: Sequences
    ) -> tuple[Tensor, Tensor | None]:
        h = self._one_state(given[0], "h_0", self.hidden_size, batch)
        if self.controller_size is None:
            return h, None
        return h, self._one_state(given[1], "k_0", self.controller_size, batch)

    def _one_state(self, state: Tensor | None, name: str, size: int, batch: Sequences) -> Tensor:
        """(units, batch, size) in the order of the packed rows."""
        expected = (len(self._units), batch.batch, size)
        if state is None:
            if self.learn_initial_state:
                learned = check_numbers(name, getattr(self, name))
                self._check_state(learned)
                return learned.unsqueeze(1).expand(expected)
            return batch.data.new_zeros(expected)
        state = state if batch.batched else state.unsqueeze(1)
        if state.shape != expected:
            raise RuntimeError(f"Expected hidden size {expected}, got {list(state.shape)}")
        self._check_state(state)
        return batch.sort(state)

    def _final_state(self, s_n: list[Tensor], k_n: list[Tensor], batch: Sequences) -> State:
        h, *rest = (batch.unsort(_stacked(states)) for states in (s_n, k_n) if states)
        pair = [state if batch.batched else state.squeeze(1) for state in (h, *rest)]
        return pair[0] if len(pair) == 1 else (pair[0], pair[1])


def _stacked(states: list[Tensor]) -> Tensor:
    """Stack states to (units, batch, size). A single state without a gradient is not copied; with one it must not be a
    view, since hooks on a view, which sharded training sets, are lost when the user changes it in place. Nor while
    torch.jit.trace runs, the second time without gradients, and compares."""
    traced = torch._C._get_tracing_state() is not None
    alone = len(states) == 1 and (torch.compiler.is_compiling() or not (states[0].requires_grad or traced))
    return states[0].unsqueeze(0) if alone else torch.stack(states)


def _check_ranks(given: Sequence[Tensor | None], batch: Sequences) -> None:
    """Check the number of dimensions first, as `nn.GRU` does; for a `PackedSequence` check only the shape."""
    if batch.packed is not None:
        return
    rank, kind = (3, "batched 3-D") if batch.batched else (2, "unbatched 2-D")
    for state in given:
        if state is not None and state.dim() != rank:
            raise RuntimeError(f"For {kind} input, hx should also be {rank}-D but got {state.dim()}-D tensor")


def _check_arguments(
    input_size: int, hidden_size: int, num_layers: int, bias: bool, batch_first: bool, dropout: float
) -> None:
    """The arguments of `nn.GRU`, in its order."""
    check_probability("dropout", dropout)
    if dropout > 0 and num_layers == 1:
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers "
            f"greater than 1, but got dropout={dropout} and num_layers={num_layers}",
            stacklevel=4,
        )
    for name, flag in (("bias", bias), ("batch_first", batch_first)):
        if not isinstance(flag, bool):
            raise TypeError(f"{name} should be of type bool, got: {type(flag).__name__}")
    check_size("input_size", input_size)
    check_size("hidden_size", hidden_size)
    if not isinstance(num_layers, numbers.Integral):
        raise TypeError(f"num_layers should be of type int, got: {type(num_layers).__name__}")
    if num_layers <= 0:
        raise ValueError("num_layers must be greater than zero")
