"""The constituency Tree-LSTM of Tai, Socher and Manning (2015), over the same levels as `TreeMuFuRU`."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from mufuru import Levels
from mufuru.tree_order import bottom_up


class TreeLSTM(nn.Module):
    r"""The paper's equations 9 to 14 for two children: a leaf has an input and no children, all others no input.

    $$i = \sigma(W_i x + U_i [h_l; h_r] + b_i), \quad f_k = \sigma(W_f x + U_{f_k} [h_l; h_r] + b_f)$$
    $$o = \sigma(W_o x + U_o [h_l; h_r] + b_o), \quad u = \tanh(W_u x + U_u [h_l; h_r] + b_u)$$
    $$c = i \odot u + f_l \odot c_l + f_r \odot c_r, \quad h = o \odot \tanh(c)$$

    A leaf has nothing to forget, so that $W_f$ would never be used and is left out. Rows of `weight_leaf` are i, o, u;
    of `weight` i, o, u, f of the left child, f of the right one; of `bias` i, o, u, f, as both forget gates share it.
    """

    def __init__(self, input_size: int, hidden_size: int, forget_bias: float | None = None) -> None:
        super().__init__()
        self.input_size, self.hidden_size = input_size, hidden_size
        self.weight_leaf = nn.Parameter(torch.empty(3 * hidden_size, input_size))
        self.weight = nn.Parameter(torch.empty(5 * hidden_size, 2 * hidden_size))
        self.bias = nn.Parameter(torch.empty(4 * hidden_size))
        bound = 1.0 / math.sqrt(hidden_size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)
        if forget_bias is not None:
            nn.init.constant_(self.bias.data[3 * hidden_size :], forget_bias)

    def forward(self, input: Tensor, levels: Levels) -> Tensor:
        """(nodes, hidden): h of every node."""
        return bottom_up(self._leaf(input), levels, self._compose)[:, : self.hidden_size]

    def _leaf(self, input: Tensor) -> Tensor:
        i, o, u = linear(input, self.weight_leaf, self.bias[: 3 * self.hidden_size]).chunk(3, 1)
        return _state(o, torch.sigmoid(i) * torch.tanh(u))

    def _compose(self, pairs: Tensor) -> Tensor:
        """From (nodes, 2, h and c side by side)."""
        h, c = pairs.chunk(2, 2)
        bias = torch.cat((self.bias, self.bias[3 * self.hidden_size :]))
        i, o, u, *f = linear(h.flatten(1), self.weight, bias).chunk(5, 1)
        return _state(o, torch.sigmoid(i) * torch.tanh(u) + (torch.sigmoid(torch.stack(f, 1)) * c).sum(1))


def _state(o: Tensor, c: Tensor) -> Tensor:
    return torch.cat((torch.sigmoid(o) * torch.tanh(c), c), 1)
