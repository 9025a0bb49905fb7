r"""Weights of 8 bits: a quarter of the file, and faster products where the processor has them.

Every row of a matrix, the weights of one output, has its own scale: $w \approx q \cdot \mathrm{scale}$, $q$ a
whole number in [-127, 127], so no weight moves by more than half a scale. Vectors such as biases stay as they are.
"""

import copy
from collections.abc import Mapping
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo  # torch.compiler.disable, without its import of the whole compiler

LARGEST = 127
INPUT, ZERO = 63, 64
"""Inputs of a product are whole numbers of [-63, 63], written with 64 added: two of their products with weights fit
into 16 bits, in which processors without VNNI add them up; with all 8 bits they would overflow."""
SCALE = "/scale"
"""Suffix of the name of a matrix's scales in a file."""

Model = TypeVar("Model", bound=nn.Module)


def quantise(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(rows, ...) int8 and (rows,) float32: the nearest whole numbers of each row's scale, and the scales."""
    if not weight.isfinite().all():
        raise ValueError("a weight is infinite or NaN: it has no 8-bit form")
    rows = weight.detach().float()
    scale = rows.flatten(1).abs().amax(1) / LARGEST
    # a row of zeros needs a scale that can be divided by
    scale = torch.where(scale > 0, scale, 1.0)
    return (rows / _along_rows(scale, rows)).round().clamp(-LARGEST, LARGEST).to(torch.int8), scale


def dequantise(q: Tensor, scale: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the weights from 8-bit numbers and scales."""
    return (q.float() * _along_rows(scale, q)).to(dtype)


def pack(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors as a file stores them: every matrix in 8 bits, with its scales beside it."""
    packed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.dim() > 1 and tensor.numel():
            packed[name], packed[name + SCALE] = quantise(tensor)
        else:
            packed[name] = tensor
    return packed


def unpack(packed: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Return tensors packed by `pack` in floating point."""
    unpacked: dict[str, Tensor] = {}
    for name, tensor in packed.items():
        scale = packed.get(name + SCALE)
        if scale is not None:
            if tensor.dtype != torch.int8 or scale.dtype != torch.float32 or scale.shape != tensor.shape[:1]:
                raise ValueError(f"{name} should be int8 with one float32 scale for each of its rows")
            unpacked[name] = dequantise(tensor, scale, dtype)
        elif name.removesuffix(SCALE) == name or name.removesuffix(SCALE) not in packed:
            unpacked[name] = tensor
    return unpacked


def dynamic(model: Model) -> Model:
    """Return a copy for inference with all matrices in 8 bits.

    `nn.Linear` multiplies in 8 bits: its input is quantised on the fly, each row by itself, so no result depends on
    what else is in the batch. `nn.Embedding` keeps 8 bits and gives floating point. A recurrent layer has its weights
    rounded as in 8 bits and runs on its own kernel.
    """
    if type(model) in (nn.Linear, nn.Embedding):
        raise ValueError(f"dynamic takes a model: put a single {type(model).__name__} into an nn.Sequential")
    small = copy.deepcopy(model).eval()
    for parent in list(small.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, Int8Linear(child))
            elif type(child) is nn.Embedding and child.max_norm is None:
                setattr(parent, name, Int8Embedding(child))
    with torch.no_grad():
        for parameter in small.parameters():
            parameter.requires_grad_(False)
            if parameter.dim() > 1 and parameter.is_floating_point():
                parameter.copy_(dequantise(*quantise(parameter), parameter.dtype))
    return small


class Int8Linear(nn.Module):
    """`nn.Linear` with 8-bit weights and inputs, for inference."""

    q: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        if not torch.backends.mkldnn.is_available():
            raise RuntimeError("8-bit products need oneDNN, and this build of torch has none: use the model as it is")
        self.in_features, self.out_features = linear.in_features, linear.out_features
        q, scale = quantise(linear.weight)
        self.register_buffer("q", q)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().clone())
        self._packed: Tensor | None = None
        self._zeros = torch.zeros(self.out_features, dtype=torch.int64, device="cpu")

    @property
    def weight(self) -> Tensor:
        """The weights as floating point."""
        return dequantise(self.q, self.scale)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.detach().float().reshape(-1, self.in_features)
        size = rows.abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
        inputs = (rows * (INPUT / size)).round().add_(ZERO).to(torch.uint8)
        product = self._product(inputs)
        # the result is large and its memory slow: one pass over it
        y = product.mul_(size) if self.bias is None else torch.addcmul(self.bias.float(), product, size)
        return y.to(x.dtype).view(*x.shape[:-1], self.out_features)

    def _product(self, inputs: Tensor) -> Tensor:
        # torch's compiler wants packed weights as constants of its graph, and fails where they are not
        return self._computed(inputs) if torch.compiler.is_exporting() else self._outside_of_graphs(inputs)

    @_disable_dynamo
    def _outside_of_graphs(self, inputs: Tensor) -> Tensor:
        return self._computed(inputs)

    def _computed(self, inputs: Tensor) -> Tensor:
        packed = self._packed
        if packed is None:
            packed = self._packed = torch.ops.onednn.qlinear_prepack(self.q, None)
        # oneDNN takes scales of single precision, whatever the model was converted to
        scale = self.scale.float()
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            inputs, 1 / INPUT, ZERO, packed, scale, self._zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return product

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        super()._load_from_state_dict(*args, **options)
        # other weights: they are packed again at the next product
        self._packed = None

    def _apply(self, *args: Any, **options: Any) -> Self:
        super()._apply(*args, **options)  # type: ignore[no-untyped-call]
        self._packed = None
        return self

    def __getstate__(self) -> dict[str, Any]:
        # the packed weights are the processor's own: a copy makes them again
        return {**self.__dict__, "_packed": None}

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Int8Embedding(nn.Module):
    """`nn.Embedding` with 8-bit weights, for inference."""

    q: Tensor
    scale: Tensor
    _like: Tensor

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = embedding.num_embeddings, embedding.embedding_dim
        q, scale = quantise(embedding.weight)
        self.register_buffer("q", q)
        self.register_buffer("scale", scale)
        # nothing but a dtype, which `model.to(dtype)` changes too
        self.register_buffer("_like", embedding.weight.detach().new_empty(0), persistent=False)

    @property
    def dtype(self) -> torch.dtype:
        """The output's dtype."""
        return self._like.dtype

    @property
    def weight(self) -> Tensor:
        """The weights as floating point."""
        return dequantise(self.q, self.scale, self.dtype)

    def forward(self, numbers: Tensor) -> Tensor:
        rows = self.q[numbers].float() * self.scale[numbers].unsqueeze(-1)
        return rows.to(self.dtype)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


def _along_rows(scale: Tensor, like: Tensor) -> Tensor:
    return scale.view(-1, *[1] * (like.dim() - 1))
