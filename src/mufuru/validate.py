"""Validation of tensors from outside: behind it every tensor is dense and has all its memory."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

ORDINARY = {Tensor, nn.Parameter}
"""Types without their own behaviour; only torch's operators can read the others."""


def check_numbers(name: str, tensor: Tensor) -> Tensor:
    """Return the tensor, or a copy with its own memory; refuse one that is not dense or whose memory was freed.

    A tensor can be more than its memory: the negative of it, zeros without any, a storage that was given back.
    """
    return tensor if torch.compiler.is_compiling() or is_whole(tensor) else _checked(name, tensor)


def check_all(names: Iterable[Any], tensors: Iterable[Tensor | None]) -> list[Tensor | None]:
    """Apply `check_numbers` to many tensors, `None` among them."""
    if torch.compiler.is_compiling():
        return list(tensors)
    pairs = zip(names, tensors, strict=False)
    return [tensor if tensor is None or is_whole(tensor) else _checked(name, tensor) for name, tensor in pairs]


def is_whole(tensor: Tensor) -> bool:
    """Return whether nothing is wrong, for the usual tensor: contiguous, of no special kind."""
    return (
        _keys(tensor).raw_repr() in _ORDINARY_KEYS
        and tensor.is_contiguous()
        and tensor.untyped_storage().nbytes() >= tensor.nbytes + tensor.storage_offset() * tensor.itemsize
    )


def _checked(name: str, tensor: Tensor) -> Tensor:
    if _keys(tensor).raw_repr() not in _ORDINARY_KEYS:
        if not (tensor := _materialised(name, tensor)).is_cpu:
            return tensor
        if type(tensor) not in ORDINARY or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            return tensor
    needed = tensor.nbytes
    if not tensor.is_contiguous() and needed:
        last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
        needed = (last + 1) * tensor.itemsize
    if needed and tensor.untyped_storage().nbytes() < needed + tensor.storage_offset() * tensor.itemsize:
        raise RuntimeError(
            f"{name} has the shape {list(tensor.shape)}, but its memory was freed or cut, as sharded training does "
            "between two uses: restore it before the layer runs"
        )
    return tensor


def _materialised(name: str, tensor: Tensor) -> Tensor:
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        kind = "nested" if tensor.is_nested else "quantized" if tensor.is_quantized else str(tensor.layout)[6:]
        raise TypeError(
            f"{name} should be a dense tensor, got one that is {kind}: convert it first, for example with to_dense()"
        )
    return tensor.clone() if tensor._is_zerotensor() else tensor.resolve_neg()


_keys: Any = torch._C._dispatch_keys
"""The set of dispatch keys of a tensor; as one number it shows whether the tensor is special in any way."""


def _keys_of_new_tensors(inference: bool) -> int:
    with torch.inference_mode(inference):
        keys: int = _keys(torch.empty(0, device="cpu")).raw_repr()
    return keys


# at import and not at the first call, which may be inside a transform, where a new tensor is not ordinary
_ORDINARY_KEYS = frozenset({_keys_of_new_tensors(False), _keys_of_new_tensors(True)})
