"""`save_pretrained`, `from_pretrained` and `push_to_hub`: models in folders, and on the Hugging Face Hub.

A folder needs safetensors, the Hub huggingface_hub as well; the library itself needs neither until it is asked.
"""

import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from mufuru.int8 import pack, unpack
from mufuru.ops import Op, did_you_mean
from mufuru.saving import files
from mufuru.saving.card import layer_card
from mufuru.saving.files import CONFIG, WEIGHTS, PretrainedError, optional
from mufuru.saving.operations import custom_operations, require_operations

FORMAT = 1
"""Version of the format of config.json; newer ones are refused."""
KEYS = ("format", "model", "dtype", "storage", "options", "custom_operations", "sha256")
MACHINE = ("self", "kernel", "device", "dtype")
"""Constructor arguments that are not saved; which kernel runs depends on the machine."""
STORAGES = ("full", "int8")
"""Storage of the numbers: unchanged, or matrices in 8 bits."""
DTYPES = {
    str(dtype).removeprefix("torch."): dtype for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)
}


class Pretrained(nn.Module):
    """A model that can be saved to a folder and loaded from it. Its options are its constructor's arguments, kept as
    attributes of the same names, unless a subclass says otherwise."""

    def save_pretrained(
        self,
        save_directory: str | os.PathLike[str],
        *,
        card: str | None = None,
        int8: bool = False,
        push_to_hub: bool = False,
        repo_id: str | None = None,
        **hub_options: Any,
    ) -> str | None:
        """Write config.json, model.safetensors and README.md, the model card; `card` is its text if not ours.

        With `int8=True` matrices are kept in 8 bits, a quarter of the size; loaded they are floating point again.
        With `push_to_hub=True` also do that; the further options are those of `push_to_hub`.
        """
        if (hub_options or repo_id) and not push_to_hub:
            named = ", ".join([*hub_options, *(["repo_id"] if repo_id else [])])
            raise TypeError(f"save_pretrained takes {named} only with push_to_hub=True")
        folder = Path(save_directory)
        config, tensors = self._saved(int8)
        files.write(folder, config, tensors, self._card() if card is None else card)
        if not push_to_hub:
            return None
        return self.push_to_hub(repo_id or folder.name, card=card, int8=int8, **hub_options)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | os.PathLike[str],
        *,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        force_download: bool = False,
        local_files_only: bool = False,
        **options: Any,
    ) -> Self:
        """Load a model from a folder, or from a repository on the Hub such as "user/model", in evaluation mode.

        Nothing in the files is run, and pickles are not read. `options` replace saved ones that do not change a shape,
        such as `dropout`. Operations of your own have to be registered first.
        """
        folder = Path(pretrained_model_name_or_path)
        if not folder.is_dir():
            hub_options: dict[str, Any] = {"revision": revision, "token": token, "cache_dir": cache_dir}
            hub_options |= {"force_download": force_download, "local_files_only": local_files_only}
            folder = _downloaded(str(pretrained_model_name_or_path), hub_options)
        try:
            return cls._read(folder, options)
        except RecursionError:
            raise PretrainedError(
                f"{folder / CONFIG} is nested too deeply to be a model's: get the file again"
            ) from None

    def push_to_hub(self, repo_id: str, *, card: str | None = None, int8: bool = False, **hub_options: Any) -> str:
        """Save to a repository on the Hub, created if necessary; returns the URL of the commit.

        The options are huggingface_hub's: `commit_message`, `private`, `token`, `branch`, `create_pr` and so on.
        """
        published = _mixin()()
        published.model, published.saving = self, {"card": card, "int8": int8}
        address: str = published.push_to_hub(repo_id, **hub_options)
        return address

    @classmethod
    def _model_name(cls) -> str:
        """Name of the model in config.json: that of mufuru's class, also for a subclass."""
        return next(base.__name__ for base in cls.__mro__ if base.__module__.startswith("mufuru."))

    def _operations(self) -> tuple[Op, ...]:
        """The operations that the layer composes with; a model of several layers has none of its own."""
        return ()

    @classmethod
    def _constructor(cls) -> Callable[..., None]:
        """The constructor of this library's class, also in a subclass that has its own."""
        own: Any = next(base for base in cls.__mro__ if base.__module__.startswith("mufuru."))
        constructor: Callable[..., None] = own.__init__
        return constructor

    @classmethod
    def _option_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls._constructor()).parameters if name not in MACHINE]

    def _options(self) -> dict[str, Any]:
        """The model's options as JSON can hold them: constructor arguments, kept as attributes of the same names."""
        options = {name: getattr(self, name) for name in self._option_names()}
        if "ops" in options:
            options["ops"] = list(options["ops"])
        if isinstance(options.get("op_bias"), Mapping):
            options["op_bias"] = dict(options["op_bias"])
        return options

    @classmethod
    def _from_options(
        cls, options: Any, tensors: dict[str, Tensor], dtype: torch.dtype, changes: dict[str, Any]
    ) -> Self:
        """Make a model that fits the tensors, without filling it. Invalid options raise TypeError or ValueError."""
        if not isinstance(options, dict):
            raise TypeError(f"options should be an object, got {type(options).__name__}")
        known = [*cls._option_names(), "kernel"]
        for name in {**options, **changes}:
            if name not in known:
                raise ValueError(f"unknown option {name!r}: {did_you_mean(name, known)}")
        for name in ("bidirectional", "learn_initial_state"):
            if not isinstance(options.get(name, False), bool):
                raise TypeError(f"{name} should be true or false, got {options[name]!r}")
        layers = {**options, **changes}.get("num_layers", 1)
        if isinstance(layers, int) and layers > len(tensors):
            raise ValueError(f"num_layers is {layers}, expected at most one for each of the {len(tensors)} tensors")
        # on the meta device: shapes are compared before memory of a damaged size is allocated
        make: Callable[..., Self] = cls
        return make(**{**options, **changes}, device="meta", dtype=dtype)

    def _card(self) -> str:
        """The text of README.md."""
        size = sum(parameter.numel() for parameter in self.parameters())
        return layer_card(self._model_name(), self._options(), list(custom_operations(self)), size)

    def _check_savable(self) -> None:
        """Refuse a model that could not be loaded again."""

    def _saved(self, int8: bool) -> tuple[dict[str, Any], dict[str, Tensor]]:
        for module in self.modules():
            if isinstance(module, Pretrained):
                module._check_savable()
        tensors = own_tensors(self)
        config = {
            "format": FORMAT,
            "model": self._model_name(),
            "dtype": _dtype_name(tensors),
            "storage": "int8" if int8 else "full",
            "options": self._options(),
            "custom_operations": custom_operations(self),
        }
        return config, pack(tensors) if int8 else tensors

    @classmethod
    def _read(cls, folder: Path, changes: dict[str, Any]) -> Self:
        config = files.read_config(folder)
        _check_config(cls, folder / CONFIG, config)
        tensors, data = files.read_weights(folder)
        # before anything is made from the config
        files.verify(folder, config, data)
        try:
            require_operations(config["custom_operations"])
            dtype = DTYPES[config["dtype"]]
            tensors = unpack(tensors, dtype) if config["storage"] == "int8" else tensors
            model = cls._from_options(config["options"], tensors, dtype, changes)
        except (TypeError, ValueError, RuntimeError, MemoryError, OverflowError) as error:
            # torch raises RuntimeError for a size that no machine has
            raise PretrainedError(f"{folder / CONFIG}: {' '.join(str(error).split())}") from None
        fill(model, tensors, folder / WEIGHTS)
        return model.eval()


def own_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and kept buffers by name; tied ones once, under the first name."""
    seen: dict[int, str] = {}
    named: dict[str, Tensor] = model.state_dict(keep_vars=True)
    return {name: tensor for name, tensor in named.items() if seen.setdefault(id(tensor), name) == name}


def fill(model: nn.Module, tensors: dict[str, Tensor], place: Path) -> None:
    """Load the tensors of a file into a model, or raise an error that says which do not fit; nothing is converted."""
    expected = own_tensors(model)
    wrong = [problem for name, need in expected.items() if (problem := _misfit(name, need, tensors.get(name)))]
    wrong += [f"{name} is not of this model" for name in sorted(tensors) if name not in expected]
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise PretrainedError(f"{place} does not fit {CONFIG}: {'; '.join(wrong[:3])}{more}")
    on_meta = any(tensor.is_meta for tensor in expected.values())
    try:
        # tied names are not in the file: strict would miss them
        model.load_state_dict(tensors, strict=False, assign=on_meta)
    except RuntimeError as error:
        raise PretrainedError(f"{place}: {' '.join(str(error).split())}") from None


def _misfit(name: str, need: Tensor, got: Tensor | None) -> str:
    if got is None:
        return f"{name} is missing"
    if (need.shape, need.dtype) == (got.shape, got.dtype):
        return ""
    return f"{name} should be {list(need.shape)} {need.dtype}, got {list(got.shape)} {got.dtype}"


def _check_config(cls: type[Pretrained], path: Path, config: dict[str, Any]) -> None:
    if unknown := sorted(config.keys() - set(KEYS)):
        raise PretrainedError(
            f"{path} has entries that are not known: {', '.join(unknown)}. Expected {', '.join(KEYS)}"
        )
    if missing := [key for key in KEYS if key not in config]:
        raise PretrainedError(f"{path} lacks {', '.join(missing)}: expected a folder that save_pretrained wrote")
    if config["format"] != FORMAT:
        raise PretrainedError(
            f"{path} has the format {config['format']!r}, this mufuru reads {FORMAT}: use a newer one"
        )
    if config["model"] != cls._model_name():
        raise PretrainedError(f"{path} is of a {config['model']}, got {cls.__name__}.from_pretrained: use that class's")
    # the JSON value may be a list, which cannot be a key
    if config["dtype"] not in list(DTYPES):
        raise PretrainedError(f"{path}: dtype should be one of {', '.join(DTYPES)}, got {config['dtype']!r}")
    if config["storage"] not in STORAGES:
        raise PretrainedError(f"{path}: storage should be one of {', '.join(STORAGES)}, got {config['storage']!r}")


def _dtype_name(tensors: dict[str, Tensor]) -> str:
    names = {str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values() if tensor.is_floating_point()}
    if len(names) != 1 or not names <= DTYPES.keys():
        raise PretrainedError(
            f"all parameters should be of one of the types {', '.join(DTYPES)}, got {', '.join(sorted(names))}"
            ": convert the model with .to(dtype) first"
        )
    return names.pop()


def _downloaded(name: str, options: dict[str, Any]) -> Path:
    """The folder with the files of a repository."""
    errors = optional("huggingface_hub.errors")
    try:
        folder: Path = _mixin().from_pretrained(name, **options).folder
    except errors.HFValidationError:
        raise PretrainedError(
            f"{name} is neither a folder nor the name of a repository on the Hub, such as 'user/model'"
        ) from None
    except errors.EntryNotFoundError as error:
        raise PretrainedError(f"{name} has no {CONFIG} or no {WEIGHTS}: {error}") from None
    except (ValueError, AttributeError, RecursionError) as error:
        # the mixin reads the file before we do
        raise PretrainedError(f"{CONFIG} of {name} is damaged ({error})") from None
    return folder


def _mixin() -> Any:
    """Return huggingface_hub's mixin with our way to write and read files."""
    hub = optional("huggingface_hub")

    class Published(hub.ModelHubMixin):  # type: ignore[misc, name-defined]
        model: Pretrained
        saving: dict[str, Any]
        folder: Path

        def _save_pretrained(self, save_directory: Path) -> None:
            self.model.save_pretrained(save_directory, **self.saving)

        @classmethod
        def _from_pretrained(cls, *, model_id: str, **options: Any) -> Any:
            place = cls()
            places = [Path(hub.hf_hub_download(model_id, name, **options)) for name in (CONFIG, WEIGHTS)]
            place.folder = places[0].parent
            return place

    return Published
