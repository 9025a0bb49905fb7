"""A unit inside a graph that is being traced for ONNX: one loop, which becomes a `Scan`, or ONNX's own `GRU`.

A layer comes here while `torch.onnx.export` or `mufuru.export.onnx` traces a model. In a program that `torch.export`
made before, it is `mufuru::forward`: when torch prepares the program for ONNX, `_in_program` takes it here too.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode
from torch.nn.functional import linear

from mufuru.kernels import operators, reference
from mufuru.kernels.call import OF_ROWS, Call, Masks, Result, fresh, known_when_traced, packed_order, present
from mufuru.unit import Unit, Weights


@known_when_traced
def tracing() -> bool:
    """Return whether a model is being traced for ONNX."""
    # in this order: torch imports a part of itself to answer the second question, and eager mode never asks it
    return (torch.compiler.is_compiling() or _by_torchscript()) and torch.onnx.is_in_onnx_export()


def _by_torchscript() -> bool:
    return torch._C._get_tracing_state() is not None


def sequence(call: Call) -> Result:
    """`reference.sequence` for graphs that become ONNX: the number of steps stays free."""
    if _by_torchscript():
        raise NotImplementedError(
            "torch.onnx.export(..., dynamo=False) would fix the number of steps: leave dynamo=False out, or use "
            "mufuru.export.onnx"
        )
    if call.trace:
        raise NotImplementedError("an ONNX file has no place for a trace: export outside of tracing()")
    call = _detached(call)
    steps = _Steps(call)
    run = _gru if _is_gru(call) else _one_step if _is_one_step(call, steps) else _loop
    output, s_n, *k_n = run(call, steps)
    return Result(steps.rows(output), s_n, *k_n)


def _detached(call: Call) -> Call:
    """Return the call without gradients: torch's exporter cannot differentiate a loop of any length."""
    weights, masks = (tuple(map(_detach, tensors)) for tensors in (call.weights, call.masks))
    x, s0, k0 = map(_detach, (call.x, call.s0, call.k0))
    return call._replace(weights=Weights(*weights), x=x, s0=s0, k0=k0, masks=Masks(*masks))


def _detach(tensor: Tensor | None) -> Any:
    return None if tensor is None else tensor.detach()


class _Steps:
    """Packed rows as a grid (steps, batch, ...) and back."""

    def __init__(self, call: Call) -> None:
        self.batch = call.s0.size(0)
        self.count = call.x.size(0) // self.batch if call.batch_sizes is None else call.batch_sizes.size(0)
        self.alive = self.lengths = self._order = None
        if call.batch_sizes is not None:
            self._order = packed_order(call.batch_sizes, self.batch)
            here = present(call.batch_sizes, self.batch)
            self.alive, self.lengths = here.unsqueeze(-1), here.sum(0)

    def grid(self, rows: Tensor) -> Tensor:
        rows = fresh(rows) if self._order is None else rows.index_select(0, self._order.argsort())
        return rows.view(self.count, self.batch, *rows.shape[1:])

    def rows(self, grid: Tensor) -> Tensor:
        if self._order is None or self.alive is None:
            return fresh(grid.flatten(0, 1))
        return torch.where(self.alive, grid, 0.0).flatten(0, 1).index_select(0, self._order)


def _is_one_step(call: Call, steps: _Steps) -> bool:
    """Return whether the graph is known to have one step, which needs no loop."""
    # a part of torch's compiler, which is slow to import
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(steps.count == 1) and steps.alive is None and call.masks.resets is None


def _one_step(call: Call, steps: _Steps) -> list[Tensor]:
    from_x = linear(call.x, call.weights.ih, call.weights.bias_ih)
    s, k, _, _ = reference.step(call.unit, call.weights, from_x, call.s0, call.k0, call.masks)
    return [s.unsqueeze(0), s, *([] if k is None else [k])]


def _loop(call: Call, steps: _Steps) -> list[Tensor]:
    """The output, and the last states. The operator itself: torch's function would compile the step beforehand."""
    # a part of torch's compiler, which is slow to import
    from torch._higher_order_ops.scan import scan_op

    from_x = steps.grid(linear(call.x, call.weights.ih, call.weights.bias_ih))
    masks = call.masks.map(steps.grid, lambda mask: mask)
    initial = (call.s0, call.k0)
    scanned = (from_x, steps.alive, *(getattr(masks, name) for name in OF_ROWS))
    back_to = (None, None) if masks.resets is None else initial
    fixed = (*call.weights, *back_to, *masks._replace(**dict.fromkeys(OF_ROWS)))

    def step(*tensors: Tensor) -> list[Tensor]:
        left = iter(tensors)
        (old_s, old_k), (x, alive, *of_rows) = _like(initial, left), _like(scanned, left)
        given = _like(fixed, left)
        weights, (s0, k0, *of_sequences) = given[: len(call.weights)], given[len(call.weights) :]
        here = Masks(*of_sequences)._replace(**dict(zip(OF_ROWS, of_rows, strict=True)))
        s, k = (old_s, old_k) if here.resets is None else reference.set_back(here.resets, (old_s, old_k), (s0, k0))
        new_s, new_k, _, _ = reference.step(call.unit, Weights(*weights), x, s, k, here)
        after = [new_s] if new_k is None else [new_s, new_k]
        if alive is not None:
            after = [torch.where(alive, new, old) for new, old in zip(after, (old_s, old_k), strict=False)]
        # a loop wants no tensor twice
        return [*after, fresh(new_s)]

    carry, read, given = ([t for t in tensors if t is not None] for tensors in (initial, scanned, fixed))
    if call.reverse:
        read = [tensor.flip(0) for tensor in read]
    *last, output = scan_op(step, list(map(fresh, carry)), read, tuple(given))
    return [output.flip(0) if call.reverse else output, *last]


def _like(pattern: Sequence[Tensor | None], left: Iterator[Tensor]) -> list[Any]:
    """The next tensors, `None` where the pattern has it."""
    return [None if tensor is None else next(left) for tensor in pattern]


def _is_gru(call: Call) -> bool:
    """Return whether ONNX's own `GRU` computes this; onnxruntime has it in float32."""
    unit = call.unit
    return (
        sorted(unit.op_names) == ["keep", "replace"] and not unit.python_ops and unit.controller_size is None
        and unit.reset is not None and unit.activation == "tanh"
        and all(mask is None for mask in call.masks) and call.x.dtype == torch.float32
    )  # fmt: skip


def _gru(call: Call, steps: _Steps) -> list[Tensor]:
    """ONNX's update gate is the softmax of two: the weights of keep less those of replace."""
    unit, weights = call.unit, call.weights
    w, r = (_gates(unit, weight).unsqueeze(0) for weight in (weights.ih, weights.hh))
    bias = None
    if weights.bias_ih is not None and weights.bias_hh is not None:
        bias = torch.cat([_gates(unit, weights.bias_ih), _gates(unit, weights.bias_hh)]).unsqueeze(0)
    lengths = None if steps.lengths is None else steps.lengths.to(torch.int32)
    attributes: dict[str, Any] = {
        "hidden_size": unit.hidden_size,
        "direction": "reverse" if call.reverse else "forward",
        "linear_before_reset": int(unit.reset == "after"),
    }
    shapes = [(steps.count, 1, steps.batch, unit.hidden_size), (1, steps.batch, unit.hidden_size)]
    output, s_n = torch.onnx.ops.symbolic_multi_out(
        "GRU", [steps.grid(call.x), w, r, bias, lengths, call.s0.unsqueeze(0)], attributes,
        dtypes=[call.x.dtype] * 2, shapes=shapes,
    )  # fmt: skip
    s_n = s_n.squeeze(0)
    if steps.lengths is not None:  # of a sequence without steps onnxruntime's GRU does not return the initial state
        s_n = torch.where(steps.lengths.unsqueeze(1) > 0, s_n, call.s0)
    return [output.squeeze(1), s_n]


def _gates(unit: Unit, tensor: Tensor) -> Tensor:
    """Rows update, reset, feature from feature, reset, operations."""
    feature, reset, logits = unit.split(tensor)
    first, second = logits.chunk(2)
    keep, replace = (first, second) if unit.op_names[0] == "keep" else (second, first)
    return torch.cat([keep - replace, reset, feature])


def _in_program(mode: Any, operator: Any, types: Any, args: tuple[Any, ...], kwargs: Any = None) -> Any:
    """Trace `mufuru::forward` again: as itself, or for ONNX as the loop that `sequence` makes."""
    if not tracing():
        return mode.__torch_dispatch__(operator, types, args, kwargs or {})
    tensors, options = args[: operators.N_INPUTS], operators.Options(*args[operators.N_INPUTS :])
    with mode:
        result = sequence(operators.call_of(tensors, options))
        nothing = [tensors[1].new_empty(0) for _ in operator._schema.returns]
    # the others are for a backward pass
    states = [result.output, result.s_n, *([] if result.k_n is None else [result.k_n])]
    return (*states, *nothing[len(states) :])


torch.library.register_torch_dispatch("mufuru::forward", ProxyTorchDispatchMode, _in_program)
