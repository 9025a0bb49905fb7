"""A model in a folder: config.json describes it, model.safetensors holds its tensors, README.md is its card.

Nothing in these files is ever run. config.json has a checksum over itself and every byte of the numbers, so files that
were damaged, changed or mixed with those of another model are refused rather than loaded.
"""

import hashlib
import importlib
import json
from pathlib import Path
from typing import Any

from torch import Tensor

from mufuru.disk import write_atomically

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
PICKLES = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"\x80\x8a")
"""First bytes of a file that torch.save or pickle wrote."""


class PretrainedError(ValueError):
    """A saved model that cannot be loaded or saved: the message says what was expected, what came and what to do."""


def write(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor], card: str) -> None:
    """Write the three files, config.json last: where it is, the others are whole."""
    safetensors = optional("safetensors.torch")
    # contiguous copies: tensors that share memory, or are parts of larger ones, are written as what they are
    data = safetensors.save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})
    try:
        text = json.dumps({**config, "sha256": checksum(config, data)}, indent=2, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise PretrainedError(f"an option of this model cannot be written as JSON: {error}") from None
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).unlink(missing_ok=True)
    write_atomically(folder / WEIGHTS, data)
    write_atomically(folder / CARD, card.encode())
    write_atomically(folder / CONFIG, f"{text}\n".encode())


def read_config(folder: Path) -> dict[str, Any]:
    """Return the contents of config.json."""
    path = folder / CONFIG
    try:
        config = json.loads(path.read_bytes().decode())
    except FileNotFoundError:
        raise PretrainedError(f"{path} is missing: expected a folder that save_pretrained wrote") from None
    except ValueError as error:
        raise PretrainedError(f"{path} is damaged ({error}): get the file again") from None
    if not isinstance(config, dict):
        raise PretrainedError(f"{path} should hold an object with the model's options, got {type(config).__name__}")
    return config


def read_weights(folder: Path) -> tuple[dict[str, Tensor], bytes]:
    """Return the tensors of model.safetensors, and its bytes for the checksum."""
    path = folder / WEIGHTS
    safetensors = optional("safetensors.torch")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        others = sorted(
            file.name for file in folder.glob("*") if file.suffix in (".bin", ".pt", ".pth", ".pkl", ".ckpt")
        )
        there = f"; {', '.join(others)} could run code when loaded and is not read" if others else ""
        raise PretrainedError(f"{path} is missing{there}: expected a folder that save_pretrained wrote") from None
    try:
        # copies with memory of their own: loaded tensors are views of the file's bytes
        return {name: tensor.clone() for name, tensor in safetensors.load(data).items()}, data
    except Exception as error:
        # the error's class is part of a package that may be missing
        if type(error).__name__ != "SafetensorError":
            raise
        # only now: the length that safetensors begins with may look like a pickle's first bytes
        if data.startswith(PICKLES):
            raise PretrainedError(
                f"{path} is a pickle under another name, which could run code when loaded: it is not read. "
                "Expected safetensors, as save_pretrained writes them"
            ) from None
        raise PretrainedError(f"{path} is cut off or is no safetensors file ({error}): get the file again") from None


def checksum(config: dict[str, Any], weights: bytes) -> str:
    """SHA-256 over the config without its checksum, and the bytes of the weights."""
    rest = {key: value for key, value in config.items() if key != "sha256"}
    total = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
    total.update(weights)
    return total.hexdigest()


def verify(folder: Path, config: dict[str, Any], weights: bytes) -> None:
    if checksum(config, weights) != config.get("sha256"):
        raise PretrainedError(
            f"{folder}: {CONFIG} and {WEIGHTS} do not have the checksum that they were saved with: one of them was "
            "damaged or changed, or belongs to another model. Get both again"
        )


def optional(module: str) -> Any:
    """Import an optional package."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != package:
            raise
        raise ModuleNotFoundError(
            f"{package} is not installed: `pip install '.[hub]'` in the folder of mufuru", name=error.name
        ) from None
