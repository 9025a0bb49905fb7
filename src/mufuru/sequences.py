"""From padded, packed and batch-first sequences to the packed form of the kernels, and back.

Padded or `PackedSequence`, batch first or time first, one sequence or many, of equal or given lengths: the rest of the
library sees only `Sequences`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from mufuru.kernels.call import packed_order, present, whole_numbers
from mufuru.validate import check_numbers

Lengths: TypeAlias = Tensor | Sequence[int] | None
Resets: TypeAlias = Tensor | PackedSequence | None


@dataclass(frozen=True)
class Sequences:
    """Packed input: the rows of step 0, then of step 1, ..., the longest sequence first."""

    data: Tensor
    """(total, input)"""
    batch: int
    steps: int
    batch_first: bool
    batched: bool = True
    batch_sizes: Tensor | None = None
    """(steps that have a row,), on CPU; `None` if every sequence has all the steps. With padding: (steps,)."""
    order: Tensor | None = None
    """Index of the user's sequence for each row of a step; `None`: in the user's order."""
    packed: PackedSequence | None = None
    """The user's `PackedSequence`, if the input is one."""
    with_padding: bool = False
    """The padding follows the rows of the last step: a compiler then knows how many rows there are."""

    def lengths(self) -> Tensor:
        """(batch,), on CPU, in the user's order."""
        if self.batch_sizes is None:
            return torch.full((self.batch,), self.steps, device="cpu")
        lengths = (self.batch_sizes.unsqueeze(1) > torch.arange(self.batch, device="cpu")).sum(0)
        return lengths if self.order is None else torch.empty_like(lengths).scatter_(0, self.order.cpu(), lengths)

    def sort(self, state: Tensor) -> Tensor:
        """(..., batch, size) from the user's order to the rows' order."""
        return state if self.order is None else state.index_select(-2, self.order)

    def unsort(self, state: Tensor) -> Tensor:
        """The inverse of `sort`."""
        return state if self.order is None else state.index_select(-2, self.order.argsort())

    def like_input(self, outputs: list[Tensor], copy: bool) -> Tensor | PackedSequence:
        """Rows computed from `data`, (total, size), of each direction, side by side and as the user's input came.

        With `copy` the user may change it in place: it shares no memory with the rows. It is no view, either: joined or
        copied last, since hooks on a view, which sharded training sets, are lost when it is changed in place.
        """
        shaped = outputs if self.packed is not None else [self.padded(rows) for rows in outputs]
        joined = torch.cat(shaped, -1) if len(shaped) > 1 else shaped[0].clone() if copy else shaped[0]
        return joined if self.packed is None else PackedSequence(joined, *self.packed[1:])

    def padded(self, rows: Tensor) -> Tensor:
        """Rows computed from `data`, (total, ...), as a padded tensor in the user's order, zero past the ends."""
        if self.batch_sizes is None:
            grid = rows.view(self.steps, self.batch, *rows.shape[1:])
        else:
            grid = self._grid(rows, self.batch_sizes)
            grid = grid if self.order is None else grid.index_select(1, self.order.argsort())
        if not self.batched:
            return grid.squeeze(1)
        return grid.transpose(0, 1) if self.batch_first else grid

    def pack(self, padded: Tensor) -> Tensor:
        """The inverse of `padded`: the valid steps of a tensor laid out as the user's padded input."""
        grid = padded.unsqueeze(1) if not self.batched else padded.transpose(0, 1) if self.batch_first else padded
        if self.batch_sizes is None:
            return grid.reshape(self.steps * self.batch, *grid.shape[2:])
        grid = grid if self.order is None else grid.index_select(1, self.order)
        return _rows(grid, self.batch_sizes, self.with_padding)

    def resets(self, given: Resets, directions: int) -> list[Tensor | None]:
        """Return, for each direction, the rows before which the state is reset.

        Reverse reads each document from its own end: it sets back before the step that precedes a reset.
        """
        if given is None:
            return [None] * directions
        grid = self._checked_resets(given)
        rows: list[Tensor | None] = [self.pack(grid)]
        if directions == 2:
            # what wraps around to the last step has no effect: the reverse direction starts there, or has not started
            rows.append(self.pack(grid.roll(-1, int(self.batched and self.batch_first))))
        return rows

    def _checked_resets(self, given: Tensor | PackedSequence) -> Tensor:
        """The user's resets, padded as the input."""
        if self.packed is not None:
            return self.padded(_checked_mask(_packed_alike(given, self.packed), (self.data.size(0),), self.data))
        if not isinstance(given, Tensor):
            raise TypeError(f"resets should be a tensor as the input is, got {type(given).__name__}")
        shape = (self.batch, self.steps) if self.batch_first else (self.steps, self.batch)
        return _checked_mask(given, shape if self.batched else (self.steps,), self.data)

    def _grid(self, rows: Tensor, batch_sizes: Tensor) -> Tensor:
        """(steps, batch, ...): rows by step, the longest sequence first, zero past the ends."""
        if self.with_padding:
            places = packed_order(batch_sizes, self.batch).argsort().to(rows.device)
            return rows.index_select(0, places).view(self.steps, self.batch, *rows.shape[1:])
        grid = rows.new_zeros(self.steps, self.batch, *rows.shape[1:])
        grid[_places(batch_sizes, self.steps, self.batch, rows.device)] = rows
        return grid


def _rows(grid: Tensor, batch_sizes: Tensor, with_padding: bool) -> Tensor:
    """The inverse of `Sequences._grid`."""
    steps, batch = grid.shape[:2]
    if with_padding:
        order = packed_order(batch_sizes, batch).to(grid.device)
        return grid.reshape(steps * batch, *grid.shape[2:]).index_select(0, order)
    return grid[_places(batch_sizes, steps, batch, grid.device)]


def from_input(input: Tensor | PackedSequence, lengths: Lengths, batch_first: bool) -> Sequences:
    """Pack the user's input. The layer checks its width and dtype."""
    if isinstance(input, PackedSequence):
        if lengths is not None:
            raise ValueError("lengths= is for a padded batch: a PackedSequence carries its own lengths")
        return _from_packed(input, batch_first)
    if not isinstance(input, Tensor):
        raise TypeError(
            f"input should be a tensor or a PackedSequence, got {type(input).__name__}: torch.as_tensor makes a tensor "
            "of numbers, torch.nn.utils.rnn.pack_sequence packs a list of tensors"
        )
    input = check_numbers("input", input)
    if input.dim() not in (2, 3):
        raise ValueError(f"MuFuRU: Expected input to be 2D or 3D, got {input.dim()}D instead")
    batched = input.dim() == 3
    grid = (input.transpose(0, 1) if batch_first else input) if batched else input.unsqueeze(1)
    steps, batch, size = grid.shape
    if lengths is None:
        return Sequences(grid.reshape(steps * batch, size), batch, steps, batch_first, batched)
    if not batched:
        raise ValueError("lengths= is for a padded batch (3-D input): cut an unbatched input to its length instead")
    traced = torch.compiler.is_compiling()
    checked = _check_lengths(lengths, steps, batch)
    # any order of equal lengths will do in a graph: ONNX has no stable sort
    sorted_lengths, order = checked.sort(descending=True) if traced else checked.sort(descending=True, stable=True)
    batch_sizes = (sorted_lengths.unsqueeze(1) > torch.arange(steps, device="cpu")).sum(0)
    alive = batch_sizes if traced else batch_sizes[batch_sizes > 0]
    order = order.to(input.device)
    data = _rows(grid.index_select(1, order), alive, traced)
    return Sequences(data, batch, steps, batch_first, True, alive, order, with_padding=traced)


def _from_packed(input: PackedSequence, batch_first: bool) -> Sequences:
    if torch.compiler.is_compiling():
        raise RuntimeError("a PackedSequence cannot be compiled or exported: give a padded batch with lengths= instead")
    data, batch_sizes, order, _ = input
    for name, numbers in (("batch_sizes", batch_sizes), ("sorted_indices", order)):
        if numbers is not None:
            check_numbers(f"{name} of a PackedSequence", numbers)
    sizes = _checked_sizes(data, batch_sizes, order)
    data = check_numbers("the data of a PackedSequence", data)
    alive = batch_sizes if sizes[-1] else batch_sizes[batch_sizes > 0]
    order = None if order is None else order.to(data.device)
    return Sequences(data, sizes[0], len(sizes), batch_first, True, alive, order, input)


def _packed_alike(resets: Tensor | PackedSequence, input: PackedSequence) -> Tensor:
    if not isinstance(resets, PackedSequence):
        raise TypeError(
            f"with a PackedSequence resets should be one too, got {type(resets).__name__}: pack them as the input was "
            "packed, with the same lengths"
        )
    mine, order = resets.sorted_indices, input.sorted_indices
    same = mine is order or (mine is not None and order is not None and mine.tolist() == order.tolist())
    if not same or not torch.equal(resets.batch_sizes, input.batch_sizes):
        raise ValueError(
            "resets should have the batch_sizes and sorted_indices of the input, got others: pack them as the input "
            "was packed, with the same lengths"
        )
    return resets.data


def _checked_mask(resets: Tensor, shape: tuple[int, ...], input: Tensor) -> Tensor:
    resets = check_numbers("resets", resets)
    if resets.dtype != torch.bool:
        raise TypeError(f"resets should be torch.bool, got {resets.dtype}: convert them with .bool()")
    if resets.shape != shape:
        raise ValueError(
            f"resets should have the shape {list(shape)}, one Boolean for each step of the input, got "
            f"{list(resets.shape)}"
        )
    if resets.device != input.device:
        raise RuntimeError(
            f"resets should be on {input.device} as the input, got {resets.device}: move them with .to(device)"
        )
    return resets


def _checked_sizes(data: Tensor, batch_sizes: Tensor, order: Tensor | None) -> list[int]:
    """Check `batch_sizes`: a PackedSequence can be made by hand, and a kernel must not read out of bounds."""
    if not isinstance(data, Tensor):
        raise TypeError(f"the data of a PackedSequence should be a tensor, got {type(data).__name__}")
    made = "make it with pack_padded_sequence or pack_sequence"
    if batch_sizes.dtype != torch.int64 or batch_sizes.dim() != 1 or not len(batch_sizes):
        kind = f"{batch_sizes.dtype} of shape {list(batch_sizes.shape)}"
        raise RuntimeError(f"batch_sizes should be one int64 for each of 1 or more steps, got {kind}: {made}")
    sizes = whole_numbers(batch_sizes)
    rows = data.size(0) if data.dim() else 0
    if sum(sizes) != rows or sizes[-1] < 0 or sorted(sizes, reverse=True) != sizes:
        given = str(sizes) if len(sizes) < 20 else f"{len(sizes)} that sum to {sum(sizes)}"
        raise RuntimeError(
            f"a PackedSequence of {rows} rows should have batch_sizes that never grow and sum to that, "
            f"got {given}: {made}"
        )
    if order is not None and order.shape != (sizes[0],):
        raise RuntimeError(
            f"a PackedSequence of {sizes[0]} sequences should have as many sorted_indices, got {list(order.shape)}"
        )
    return sizes


def _places(batch_sizes: Tensor, steps: int, batch: int, device: torch.device) -> tuple[Tensor, ...]:
    """Step and sequence, longest first, of every packed row; on the CPU, since the meta device has no values."""
    counts = batch_sizes.new_zeros(steps)
    counts[: len(batch_sizes)] = batch_sizes
    return tuple(place.to(device) for place in present(counts, batch).nonzero(as_tuple=True))


def _check_lengths(lengths: Tensor | Sequence[int], steps: int, batch: int) -> Tensor:
    if isinstance(lengths, Tensor) and torch._C._functorch.is_batchedtensor(lengths):
        raise RuntimeError(
            "vmap cannot map over lengths, which decide what is computed: give the same lengths to all, "
            "or make the mapped dimension a part of the batch"
        )
    if isinstance(lengths, Tensor):
        lengths = check_numbers("lengths", lengths)
    checked = torch.as_tensor(lengths, device="cpu")
    fractional = checked.is_floating_point() or checked.is_complex() or checked.dtype == torch.bool
    if fractional and checked.numel():
        raise TypeError(f"lengths should be whole numbers, got {checked.dtype}")
    checked = checked.long()  # before they are compared: 300 is 44 among bytes
    if checked.shape != (batch,):
        raise ValueError(f"lengths should have one number for each of the {batch} sequences, got {list(checked.shape)}")
    if torch.compiler.is_compiling():
        # their values are known when it runs
        within = ((checked >= 0) & (checked <= steps)).all()
        torch._assert_async(within, "lengths should lie between 0 and the padded length")
    elif batch and not (int(checked.min()) >= 0 and int(checked.max()) <= steps):
        given = f"{int(checked.min())}..{int(checked.max())}"
        raise ValueError(f"lengths should lie between 0 and the padded length {steps}, got {given}")
    return checked
