"""A stream of tokens cut into windows.

Token t of a stream is predicted from the t - 1 before it; the first one from `<eos>`, as if a line had just ended. So
a stream of n tokens holds n predictions, no more and no less.

Training reads `batch_size` columns side by side, each a stretch of the stream; each begins without a state but with the
token before it, and the few tokens at the end that fill no column of the same length are left out. Evaluation reads the
whole stream as one column: the only way in which every token is predicted once, from all that came before it. Then
the size of a window is a matter of memory alone.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Window(NamedTuple):
    """Some steps of all columns; the window after it goes on where it ends."""

    inputs: Tensor
    """(steps, batch): the tokens to read."""
    targets: Tensor
    """(steps, batch): the token after each of them."""


def cut(tokens: Tensor, first: int, batch_size: int, steps: int) -> list[Window]:
    """The windows of a stream, in order; `first` stands before its first token. The last window may be shorter."""
    before = torch.cat((tokens.new_tensor([first]), tokens[:-1]))[: len(tokens)]
    length = len(tokens) // batch_size
    if not length:
        return []
    # time comes first, so that every window is one piece of memory
    inputs, targets = (
        stream[: batch_size * length].view(batch_size, length).T.contiguous().split(steps)
        for stream in (before, tokens)
    )
    return [Window(*pair) for pair in zip(inputs, targets, strict=True)]
