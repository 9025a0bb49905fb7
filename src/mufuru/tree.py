r"""`TreeMuFuRU`: the unit over binary trees, which composes two states where `MuFuRU` updates one."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from mufuru import ops as operations
from mufuru.ops import Op, OpLike
from mufuru.recurrent import Device
from mufuru.saving.pretrained import Pretrained
from mufuru.tree_order import Levels, bottom_up
from mufuru.unit import OpBias, op_biases

SIDES = ("left", "right")


class TreeTrace(NamedTuple):
    """The intermediate values of one pass over some trees."""

    states: Tensor
    """(nodes, hidden)."""
    weights: Tensor
    """(inner nodes, choices, hidden): how much of each of `TreeMuFuRU.choices` a node took."""


class TreeMuFuRU(Pretrained):
    r"""A Multi-Function Recurrent Unit over binary trees: the states of a node's children, $l$ and $r$, become its own.

    $$g_l, g_r = \sigma(W_g [l; r] + b_g), \quad v = \tanh(W_v [g_l \odot l; g_r \odot r] + b_v)$$
    $$p = \mathrm{softmax}(W_p [l; r] + b_p), \quad
      s = \sum_j p_l^j \odot \mathrm{op}^j(l, v) + p_r^j \odot \mathrm{op}^j(r, v)$$

    Each child meets the new features through the whole table of operations, and one softmax in each dimension chooses
    among both: keep the left child, keep the right one, the maximum of the right one and the features, and so on. An
    operation that does not read the state, as `replace` and `forget`, is the same for both and stands there once, so
    the paper's seven give twelve choices, see `choices`. A leaf, with the input $x$, has $s = \tanh(W_x x + b_x)$.

    On a tree that branches to the left it is `MuFuRU` over the states of the leaves, if it never uses the right child's
    operations and leaves the gate $g_r$ open: then $r$ is the input and $l$ the state. With the operations `keep` and
    `replace` it is a GRU for trees, with a gate for each child.

    Shapes: `input` (leaves, input_size), a row for each leaf; `children` (inner nodes, 2) the numbers of a node's left
    and right child, int64. Leaves have the numbers from 0 on, in the order of the rows; inner nodes the numbers after
    that, each after its children. Any number of trees can be given at once. The result is (leaves + inner nodes,
    hidden_size), the state of every node. All nodes of one height are computed together; `Levels.of(children, leaves)`
    sorts them once for several passes and can be given in place of `children`.

    Args:
        ops: names of operations, or callables `(s, v) -> tensor`.
        reset_bias: the first value of the biases of the gates $g$.
        op_bias: first biases of the choices: by operation, the same for both children, or one number for each
            operation. By default `keep` has 2 and all others 0, as in `MuFuRU`.

    Examples:
        >>> tree = TreeMuFuRU(10, 20)
        >>> words = torch.randn(3, 10)  # ((0 1) 2): node 3 is (0 1), node 4 the root
        >>> tree(words, torch.tensor([[0, 1], [3, 2]])).shape
        torch.Size([5, 20])
        >>> TreeMuFuRU(10, 20, ops=("keep", "replace")).choices
        ('keep_left', 'keep_right', 'replace')
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        ops: Sequence[OpLike] = operations.PAPER,
        reset_bias: float = 1.0,
        op_bias: OpBias = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for name, size in (("input_size", input_size), ("hidden_size", hidden_size)):
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise ValueError(f"{name} should be a whole number above 0, got {size!r}")
        self.input_size, self.hidden_size = input_size, hidden_size
        self.reset_bias, self.op_bias = reset_bias, op_bias
        self._ops = operations.resolve(ops)
        self._first = op_biases(op_bias, self._ops, bias=True)
        self._choices = tuple(_choices(self._ops))
        rows = (3 + len(self._choices)) * hidden_size
        shapes: Mapping[str, tuple[int, ...]] = {
            "weight_leaf": (hidden_size, input_size), "bias_leaf": (hidden_size,),
            "weight": (rows, 2 * hidden_size), "bias": (rows,),
        }  # fmt: skip
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        self.reset_parameters()

    if TYPE_CHECKING:  # nn.Module knows nothing of the parameters, nor of the arguments of a call
        weight_leaf: Tensor
        bias_leaf: Tensor
        weight: Tensor
        bias: Tensor

        def __call__(self, input: Tensor, children: Tensor | Levels) -> Tensor: ...

    def _operations(self) -> tuple[Op, ...]:
        return self._ops

    @property
    def ops(self) -> tuple[str, ...]:
        """The names of the operations, in order."""
        return tuple(op.name for op in self._ops)

    @property
    def choices(self) -> tuple[str, ...]:
        """Names of a node's choices, such as `keep_left`, in the order of their rows of `weight`, after v's and g's."""
        return tuple(op.name if side is None else f"{op.name}_{SIDES[side]}" for op, side in self._choices)

    def reset_parameters(self) -> None:
        """Initialise all parameters again: uniform as `nn.GRU`; gates and choices start at exactly the given biases."""
        bound, M = 1.0 / math.sqrt(self.hidden_size), self.hidden_size
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)
        first = dict(zip(self.ops, self._first, strict=True))
        biases = self.bias.new_tensor([first[op.name] for op, _ in self._choices])
        with torch.no_grad():
            self.bias[M : 3 * M] = self.reset_bias
            self.bias[3 * M :] = biases.repeat_interleave(M)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, ops={self.ops}"

    def forward(self, input: Tensor, children: Tensor | Levels) -> Tensor:
        weights = self._weights()
        levels = self._levels(input, children)
        return bottom_up(self.leaf(input), levels, lambda pairs: self._compose(pairs, weights)[0])

    def trace(self, input: Tensor, children: Tensor | Levels) -> TreeTrace:
        """The states, and the weights of all choices."""
        levels, weights, chosen = self._levels(input, children), self._weights(), []

        def compose(pairs: Tensor) -> Tensor:
            states, p = self._compose(pairs, weights)
            chosen.append(p)
            return states

        states = bottom_up(self.leaf(input), levels, compose)
        nothing = states.new_zeros(0, len(self._choices), self.hidden_size)
        taken = torch.cat((nothing, *chosen))
        return TreeTrace(states, taken.index_select(0, levels.places[levels.leaves :] - levels.leaves))

    def leaf(self, input: Tensor) -> Tensor:
        """(leaves, hidden): the states of leaves."""
        if input.dim() != 2 or input.size(1) != self.input_size:
            raise ValueError(f"input should be (leaves, {self.input_size}), got {list(input.shape)}")
        return torch.tanh(linear(input, self.weight_leaf, self.bias_leaf))

    def compose(self, left: Tensor, right: Tensor) -> Tensor:
        """(nodes, hidden): the states of nodes from those of their children."""
        return self._compose(torch.stack((left, right), 1), self._weights())[0]

    def _weights(self) -> tuple[Tensor, ...]:
        """Weight and bias of v, then of gates and choices: split once, since every split costs the backward pass."""
        M = self.hidden_size
        return self.weight[:M], self.bias[:M], self.weight[M:], self.bias[M:]

    def _compose(self, pairs: Tensor, weights: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """From (nodes, 2, hidden) the new states and the weights of the choices, (nodes, choices, hidden)."""
        M, both, children = self.hidden_size, pairs.flatten(1), pairs.unbind(1)
        weight_v, bias_v, weight_rest, bias_rest = weights
        gates, logits = linear(both, weight_rest, bias_rest).tensor_split((2 * M,), 1)
        v = torch.tanh(linear(torch.sigmoid(gates) * both, weight_v, bias_v))
        p = logits.unflatten(1, (len(self._choices), M)).softmax(1)
        # an operation that does not read the state may get either child
        composed = torch.stack([op(children[side or 0], v) for op, side in self._choices], 1)
        return (p * composed).sum(1), p

    def _levels(self, input: Tensor, children: Tensor | Levels) -> Levels:
        if not isinstance(input, Tensor) or not isinstance(children, Tensor | Levels):
            raise TypeError(
                "input and children should be tensors, children perhaps Levels, got "
                f"{type(input).__name__} and {type(children).__name__}"
            )
        levels = children if isinstance(children, Levels) else Levels.of(children, len(input))
        if levels.leaves != len(input):
            raise ValueError(f"the trees have {levels.leaves} leaves, expected an input row for each, got {len(input)}")
        return levels


def _choices(ops: Sequence[Op]) -> list[tuple[Op, int | None]]:
    """Each operation for each child, or once, without a child, if it does not read the state."""
    return [(op, side) for op in ops for side in ((0, 1) if _reads_state(op) else (None,))]


def _reads_state(op: Op) -> bool:
    """Return whether any of some states makes a difference, given the same features."""
    v: Any = torch.linspace(-0.9, 0.9, 7, device="cpu")
    # features lie within (-1, 1), states need not: some operations differ only far out
    s = torch.cat((v, v.new_tensor([-10, -1.5, -1, 1, 1.5, 10])))
    with torch.no_grad():
        values = op(s.repeat(len(v), 1), v.unsqueeze(1).repeat(1, len(s)))
    return not bool((values == values[:, :1]).all())
