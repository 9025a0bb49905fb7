"""Kinds of tensors that a program may hand over: the same numbers, held in other ways, and what holds none at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

ANY = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
COMPLEX = (torch.float32, torch.float64)
"""The dtypes of which torch has complex numbers without a warning."""
HALF = (torch.bfloat16, torch.float16)


class Kind(NamedTuple):
    """How a tensor is held. Where numbers lie between those of the tensor, they are NaN: what reads them shows."""

    make: Callable[[Tensor], Tensor]
    """From a plain tensor; its numbers, unless the kind decides them."""
    dtypes: tuple[torch.dtype, ...] = ANY
    dims: tuple[int, ...] = (1, 2, 3, 4)
    empty: bool = True
    """Whether there are such tensors without elements."""
    leaf: bool = True
    """Whether it can require a gradient."""

    def fits(self, dtype: torch.dtype, shape: tuple[int, ...]) -> bool:
        return dtype in self.dtypes and len(shape) in self.dims and (self.empty or 0 not in shape)


class Labelled(Tensor):
    """A subclass that adds nothing."""


class Wrapper(Tensor):
    """A subclass without memory of its own: every operator is done on the tensor inside."""

    inside: Tensor

    @staticmethod
    def __new__(cls, inside: Tensor) -> Wrapper:
        made: Wrapper = Tensor._make_wrapper_subclass(
            cls, inside.size(), strides=inside.stride(), dtype=inside.dtype, device=inside.device
        )
        made.inside = inside
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        args, kwargs = pytree.tree_map_only(Wrapper, lambda tensor: tensor.inside, (args, kwargs or {}))
        return pytree.tree_map_only(Tensor, Wrapper, func(*args, **kwargs))


def _every_second(t: Tensor) -> Tensor:
    return torch.stack([t, torch.full_like(t, torch.nan)], -1)[..., 0]


def _columns(t: Tensor) -> Tensor:
    """Columns of a wider matrix, not the first."""
    wide = t.new_full((*t.shape[:-1], t.size(-1) + 3), torch.nan)
    wide[..., 1:-2] = t
    return wide[..., 1:-2]


def _offset(t: Tensor) -> Tensor:
    """One element into its storage, so that it begins at no multiple of a vector."""
    return torch.cat([t.new_full((1,), torch.nan), t.flatten()])[1:].view(t.shape)


def _overlapping(t: Tensor) -> Tensor:
    """Windows that share their elements, as `unfold` makes them."""
    count = sum(t.shape) - t.dim() + 1
    numbers = t.flatten().repeat(count // max(t.numel(), 1) + 1)[:count] if t.numel() else t.new_empty(0)
    return numbers.as_strided(t.shape, [1] * t.dim())


def _made_in_inference_mode(t: Tensor) -> Tensor:
    with torch.inference_mode():
        return t.clone()


def _freed(t: Tensor, share: float = 0.0) -> Tensor:
    """Its storage given back, as sharded training does; with a share, cut."""
    t.untyped_storage().resize_(int(share * t.numel()) * t.element_size())
    return t


def _from_numpy(t: Tensor) -> Tensor:
    return torch.from_numpy(t.numpy().copy())


READABLE = {
    "plain": Kind(lambda t: t),
    "transposed": Kind(lambda t: t.transpose(0, -1).contiguous().transpose(0, -1), dims=(2, 3, 4)),
    "every second": Kind(_every_second),
    "columns": Kind(_columns),
    "offset": Kind(_offset),
    "overlapping": Kind(_overlapping),
    "expanded first": Kind(lambda t: t[:1].expand_as(t), empty=False),
    "expanded last": Kind(lambda t: t[..., :1].expand_as(t), empty=False),
    "expanded number": Kind(lambda t: t.new_tensor(0.3).expand(t.shape)),
    "negative": Kind(lambda t: torch._neg_view(-t)),
    "negative every second": Kind(lambda t: torch._neg_view(_every_second(-t))),
    "imaginary of conjugate": Kind(lambda t: torch.complex(t, -t).conj().imag, COMPLEX),
    "real of conjugate": Kind(lambda t: torch.complex(t, t).conj().real, COMPLEX),
    "view of complex": Kind(lambda t: torch.view_as_real(torch.complex(t, -t).conj().resolve_conj())[..., 1], COMPLEX),
    "zero tensor": Kind(lambda t: torch._efficientzerotensor(t.shape, dtype=t.dtype)),
    "from NumPy": Kind(_from_numpy, COMPLEX),
    "inference tensor": Kind(_made_in_inference_mode, leaf=False),
    "subclass": Kind(lambda t: t.as_subclass(Labelled)),
    "computed": Kind(lambda t: t.requires_grad_() * 1),
}
"""What torch's operators read, and so the reference: all kernels have to."""

FOREIGN = {
    "wrapper": Kind(Wrapper),
    "sparse": Kind(lambda t: t.to_sparse()),
    "compressed sparse": Kind(lambda t: t.to_sparse_csr(), COMPLEX, (2,), leaf=False),
    "mkldnn": Kind(lambda t: t.to_mkldnn(), (torch.float32,), empty=False, leaf=False),
    "quantised": Kind(lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8), (torch.float32,), leaf=False),
    "nested": Kind(lambda t: torch.nested.nested_tensor(list(t)), dims=(2, 3), empty=False),
    "jagged": Kind(
        lambda t: torch.nested.nested_tensor(list(t), layout=torch.jagged), dims=(2, 3), empty=False, leaf=False
    ),
    "meta": Kind(lambda t: t.to("meta")),
}
"""What may be refused with a sentence; what is taken must be right."""

GONE = {"freed": Kind(_freed, empty=False), "cut": Kind(lambda t: _freed(t, 0.5), empty=False)}
"""What holds less than its shape says: refused with a sentence, never read. The reference is not asked, since torch's
operators read it."""

KINDS = READABLE | FOREIGN | GONE

VALUES: dict[str, Callable[[Tensor], Tensor]] = {
    "noise": lambda t: t,
    "zeros": torch.zeros_like,
    "ties": lambda t: t.round(decimals=0),
    "one NaN": lambda t: _one(t, torch.nan),
    "one infinity": lambda t: _one(t, torch.inf),
    "huge": lambda t: t * torch.finfo(t.dtype).max ** 0.5,
    "tiny": lambda t: t * torch.finfo(t.dtype).smallest_normal,
}


def _one(t: Tensor, number: float) -> Tensor:
    changed = t.clone()
    changed.view(-1)[t.numel() // 2 : t.numel() // 2 + 1] = number
    return changed
