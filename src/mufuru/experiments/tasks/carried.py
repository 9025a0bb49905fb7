"""What a model needs beside its weights to be used without its data, such as a vocabulary, kept among its weights.

So a run folder is enough to use a model, one file holds what belongs together under one checksum, and weights can never
meet the vocabulary of another run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

ANY = ""
"""The fingerprint of a model that takes the weights of any data."""


class Carried(nn.Module):
    """A value that JSON can hold, and a fingerprint of the data that it came from, as buffers of a model.

    Weights that were trained on other data are refused; a model without a fingerprint takes any.
    """

    content: Tensor
    fingerprint: Tensor

    def __init__(self, value: Any, fingerprint: str = ANY) -> None:
        super().__init__()
        self.register_buffer("content", to_bytes(json.dumps(value)))
        # always as long as a sha256, since weights have to fit in shape
        self.register_buffer("fingerprint", to_bytes(fingerprint.ljust(64, "-")))

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        """As always, unless the weights belong to other data."""
        found, own = state_dict.get(f"{prefix}fingerprint"), self.fingerprint
        if found is not None and to_text(own).strip("-") and not torch.equal(found, own):
            errors: list[str] = rest[-1]
            errors.append("they were trained on other data, or the files of the data have changed since")
        else:
            super()._load_from_state_dict(dict(state_dict), prefix, *rest)


def carried_by(weights: Mapping[str, Tensor], name: str = "carried") -> Any:
    """The value that the weights of a model hold in its submodule of this name."""
    return json.loads(to_text(weights[f"{name}.content"]))


def to_bytes(text: str) -> Tensor:
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


def to_text(data: Tensor) -> str:
    return bytes(data.numpy().tobytes()).decode()
