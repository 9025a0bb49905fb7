"""Saved layers: the same layer comes back, and files that are not what they should be are refused in one sentence."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import mufuru
from mufuru import MuFuRU, MuFuRUCell, TreeMuFuRU, ops
from mufuru.saving.files import PICKLES, PretrainedError, checksum

LAYERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "stacked, both ways": {"num_layers": 2, "bidirectional": True, "batch_first": True, "dropout": 0.25},
    "controller, learned start": {"controller_size": 2, "learn_initial_state": True, "reset": None},
    "controller, relu": {"controller_size": 2, "controller_activation": "relu"},
    "few operations": {"ops": ("keep", "replace"), "reset": "after", "activation": "sigmoid"},
    "first biases": {"op_bias": {"keep": 1.5}, "reset_bias": 0.5, "zoneout": 0.125},
    "first biases in order": {"ops": ("max", "add"), "op_bias": [1.0, -1.0]},
    "no biases": {"bias": False},
    "double": {"dtype": torch.float64},
    "half": {"dtype": torch.bfloat16},
}


TREES: dict[str, dict[str, Any]] = {
    "plain": {},
    "few operations": {"ops": ("replace", "keep"), "op_bias": {"keep": 1.0}, "reset_bias": 0.5},
    "biases in order": {"ops": ("max", "add"), "op_bias": [1.0, -1.0]},
    "double": {"dtype": torch.float64},
}


@pytest.fixture(autouse=True)
def _own_operations_go() -> Iterator[None]:
    before = ops.names()
    yield
    for name in set(ops.names()) - set(before):
        mufuru.unregister(name)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    MuFuRU(3, 4, num_layers=2).save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def change(folder: Path, edit: Callable[[dict[str, Any]], object], sign: bool = True) -> None:
    """Edit config.json, by default with a checksum that fits: so it is not the checksum that refuses."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    edit(config)
    if sign:
        config["sha256"] = checksum(config, (folder / "model.safetensors").read_bytes())
    path.write_text(json.dumps(config))


def change_weights(folder: Path, edit: Callable[[dict[str, Tensor]], object]) -> None:
    """Write other tensors, under a checksum that fits."""
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    edit(tensors)
    safetensors.torch.save_file(tensors, path)
    change(folder, lambda config: None)


def refused(folder: Path, *words: str, cls: Any = MuFuRU) -> str:
    with pytest.raises(PretrainedError) as error:
        cls.from_pretrained(folder)
    message = str(error.value)
    assert "\n" not in message
    for word in words:
        assert word in message
    return message


def same(one: nn.Module, other: nn.Module) -> None:
    """The same parameters bit for bit, under the same names."""
    assert {name: (p.dtype, p.requires_grad) for name, p in one.named_parameters()} == {
        name: (p.dtype, p.requires_grad) for name, p in other.named_parameters()
    }
    for name, parameter in one.named_parameters():
        assert torch.equal(parameter, other.get_parameter(name)), name


@pytest.mark.parametrize("options", TREES.values(), ids=TREES)
def test_a_layer_of_trees_comes_back(options: dict[str, Any], tmp_path: Path) -> None:
    layer = TreeMuFuRU(3, 4, **options)
    layer.save_pretrained(tmp_path)
    loaded = TreeMuFuRU.from_pretrained(tmp_path)
    assert repr(loaded) == repr(layer)
    same(layer, loaded)
    words, children = torch.randn(3, 3, dtype=options.get("dtype")), torch.tensor([[0, 1], [3, 2]])
    assert torch.equal(layer(words, children), loaded(words, children))
    refused(tmp_path, "is of a TreeMuFuRU", cls=MuFuRU)


def test_a_layer_of_trees_names_its_own_operations(tmp_path: Path) -> None:
    mufuru.register("halve", lambda s, v: 0.5 * s)
    TreeMuFuRU(3, 4, ops=("replace", "halve")).save_pretrained(tmp_path)
    mufuru.unregister("halve")
    refused(tmp_path, "mufuru.register('halve', function)", cls=TreeMuFuRU)


@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS)
def test_a_layer_comes_back(options: dict[str, Any], tmp_path: Path) -> None:
    layer = MuFuRU(3, 4, **options)
    layer.save_pretrained(tmp_path)
    chance = torch.get_rng_state()
    loaded = MuFuRU.from_pretrained(tmp_path)
    assert torch.equal(chance, torch.get_rng_state()), "loading draws no random numbers"
    assert not loaded.training
    assert repr(loaded) == repr(layer)
    same(layer, loaded)
    x = torch.randn(5, 2, 3, dtype=options.get("dtype"))
    for one, other in zip(layer.eval().trace(x).parts, loaded.trace(x).parts, strict=True):
        assert torch.equal(one.output, other.output)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors", "README.md"}


def test_switches_may_be_numbers(tmp_path: Path) -> None:
    switch: Any = 1
    layer = MuFuRU(3, 4, bidirectional=switch, learn_initial_state=switch)
    layer.save_pretrained(tmp_path)
    same(layer, MuFuRU.from_pretrained(tmp_path))


def test_what_is_loaded_can_be_trained(saved: Path) -> None:
    loaded = MuFuRU.from_pretrained(saved).train()
    before = {name: parameter.clone() for name, parameter in loaded.named_parameters()}
    loaded(torch.randn(5, 2, 3))[0].square().sum().backward()
    torch.optim.SGD(loaded.parameters(), 0.1).step()
    assert not any(torch.equal(parameter, before[name]) for name, parameter in loaded.named_parameters())


def test_a_cell_comes_back(tmp_path: Path) -> None:
    cell = MuFuRUCell(3, 4, ops=("keep", "max"))
    cell.save_pretrained(tmp_path)
    same(cell, MuFuRUCell.from_pretrained(tmp_path))
    refused(tmp_path, "is of a MuFuRUCell, got MuFuRU.from_pretrained")


def test_a_subclass_comes_back(tmp_path: Path) -> None:
    class Mine(MuFuRU):
        pass

    layer = Mine(3, 4)
    layer.save_pretrained(tmp_path)
    loaded = Mine.from_pretrained(tmp_path)
    assert type(loaded) is Mine
    same(layer, loaded)


def test_options_can_be_replaced(saved: Path) -> None:
    loaded = MuFuRU.from_pretrained(saved, dropout=0.5, kernel="reference")
    assert (loaded.dropout, loaded.kernel) == (0.5, "reference")
    with pytest.raises(PretrainedError, match=r"weight_ih_l0 should be \[45, 3\] torch.float32, got \[36, 3\]"):
        MuFuRU.from_pretrained(saved, hidden_size=5)
    with pytest.raises(PretrainedError, match=r"unknown option 'hiden_size'.*Did you mean 'hidden_size'"):
        MuFuRU.from_pretrained(saved, hiden_size=4)


def test_saving_again_replaces_all(tmp_path: Path) -> None:
    MuFuRU(3, 4).save_pretrained(tmp_path)
    layer = MuFuRU(2, 5)
    layer.save_pretrained(tmp_path, card="# Mine\n")
    same(layer, MuFuRU.from_pretrained(tmp_path))
    assert (tmp_path / "README.md").read_text() == "# Mine\n"


def test_the_kernel_is_not_saved(tmp_path: Path) -> None:
    MuFuRU(3, 4, kernel="native").save_pretrained(tmp_path)
    assert MuFuRU.from_pretrained(tmp_path).kernel == "auto"


class Harmful:
    """Unpickled, it leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("write", [pickle.dump, torch.save], ids=["pickle", "torch.save"])
def test_a_renamed_pickle_is_not_read(saved: Path, tmp_path: Path, write: Any) -> None:
    with open(saved / "model.safetensors", "wb") as file:
        write({"weight_ih_l0": Harmful(tmp_path / "harm")}, file)
    change(saved, lambda config: None)
    refused(saved, "is a pickle under another name", "could run code")
    assert not (tmp_path / "harm").exists()


def test_a_header_as_long_as_a_pickle_begins_is_read(tmp_path: Path) -> None:
    """safetensors begins with the length of its header: 640 is 80 02 there, as pickles of protocol 2 begin."""
    layer = MuFuRU(100, 100, bidirectional=True)
    layer.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes().startswith(PICKLES)
    same(layer, MuFuRU.from_pretrained(tmp_path))


def test_a_pickle_beside_is_not_read(saved: Path, tmp_path: Path) -> None:
    torch.save({"weight_ih_l0": Harmful(tmp_path / "harm")}, saved / "pytorch_model.bin")
    MuFuRU.from_pretrained(saved)
    (saved / "model.safetensors").unlink()
    refused(saved, "model.safetensors is missing; pytorch_model.bin could run code when loaded and is not read")
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("keep", [0, 4, 8, 100, -1], ids=lambda keep: f"{keep} bytes")
def test_a_file_that_is_cut_off(saved: Path, keep: int) -> None:
    path = saved / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    refused(saved, "model.safetensors is cut off or is no safetensors file")


def test_a_flipped_bit_anywhere_is_noticed(saved: Path) -> None:
    """In the head of the file, in each tensor, and in the config."""
    for name, step in (("model.safetensors", 97), ("config.json", 13)):
        whole = (saved / name).read_bytes()
        for place in range(0, len(whole), step):
            damaged = bytearray(whole)
            damaged[place] ^= 1
            (saved / name).write_bytes(damaged)
            # a blank of config.json may become something that means the same
            if name == "model.safetensors" or json_of(bytes(damaged)) != json.loads(whole):
                refused(saved)
        (saved / name).write_bytes(whole)
    MuFuRU.from_pretrained(saved)


def json_of(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


def test_a_changed_number_is_noticed_by_the_checksum(saved: Path) -> None:
    path = saved / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    refused(saved, "do not have the checksum that they were saved with")
    shutil.rmtree(saved)
    MuFuRU(3, 4).save_pretrained(saved)
    change(saved, lambda config: config["options"].update(zoneout=0.5), sign=False)
    refused(saved, "do not have the checksum that they were saved with")


def test_files_of_two_models_are_not_mixed(saved: Path, tmp_path: Path) -> None:
    MuFuRU(3, 4, num_layers=2).save_pretrained(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "model.safetensors", saved)
    refused(saved, "belongs to another model")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda c: c["options"].update(ops=["keep", "maximum"]), "unknown operation 'maximum': expected one of keep"),
        (lambda c: c["options"].update(ops="keep"), "ops is a sequence of names"),
        (lambda c: c["options"].update(hidden_size="4"), "hidden_size should be of type int, got: str"),
        (lambda c: c["options"].update(hidden_size=-4), "hidden_size must be greater than zero"),
        (lambda c: c["options"].update(hidden_size=10**9), "Storage size calculation overflowed"),
        (lambda c: c["options"].update(hidden_size=10**6), "weight_ih_l0 should be [9000000, 3]"),
        (lambda c: c["options"].update(bidirectional="no"), "bidirectional should be true or false, got 'no'"),
        (lambda c: c["options"].update(bidirectional=True), "weight_ih_l0_reverse is missing"),
        (lambda c: c["options"].update(num_layers=1), "weight_hh_l1 is not of this model"),
        (lambda c: c["options"].update(num_layers=10**5), "num_layers is 100000, expected at most one for each of"),
        (lambda c: c["options"].update(reset_bias=10**400), "int too large to convert to float"),
        (lambda c: c["options"].update(activation="relu"), "activation should be 'tanh' or 'sigmoid', got 'relu'"),
        (lambda c: c["options"].update(zoneout="x"), "zoneout should be a number in range [0, 1]"),
        (lambda c: c["options"].update(colour="red"), "unknown option 'colour'"),
        (lambda c: c["options"].pop("input_size"), "missing 1 required positional argument: 'input_size'"),
        (lambda c: c.update(options=[]), "options should be an object, got list"),
        (lambda c: c.update(dtype="int8"), "dtype should be one of float32, float64, float16, bfloat16, got 'int8'"),
        (lambda c: c.update(dtype=[]), "dtype should be one of float32, float64, float16, bfloat16, got []"),
        (
            lambda c: c.update(dtype="float64"),
            "weight_ih_l0 should be [36, 3] torch.float64, got [36, 3] torch.float32",
        ),
        (lambda c: c.update(format=2), "has the format 2, this mufuru reads 1: use a newer one"),
        (lambda c: c.update(auto_map={"AutoModel": "x.Y"}), "has entries that are not known: auto_map"),
        (lambda c: c.pop("dtype"), "lacks dtype"),
        (lambda c: c.update(custom_operations=["half"]), "custom_operations should be samples of operations by name"),
    ],
)
def test_a_config_that_cannot_be_meant(saved: Path, edit: Any, message: str) -> None:

    change(saved, edit)
    refused(saved, message)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t: t.update(more=torch.zeros(2)), "more is not of this model"),
        (lambda t: t.pop("bias_hh_l1"), "bias_hh_l1 is missing"),
        (lambda t: t.update(bias_hh_l1=torch.zeros(35)), "bias_hh_l1 should be [36] torch.float32, got [35]"),
        (lambda t: t.update(bias_hh_l1=torch.zeros(36, dtype=torch.float64)), "got [36] torch.float64"),
        (lambda t: t.update(bias_hh_l1=torch.zeros(36, dtype=torch.int32)), "got [36] torch.int32"),
        (lambda t: [t.pop(name) for name in sorted(t)[2:]], "and 3 more"),
    ],
)
def test_weights_of_another_model(saved: Path, edit: Any, message: str) -> None:
    change_weights(saved, edit)
    refused(saved, "model.safetensors does not fit config.json", message)


def test_the_checksum_is_asked_before_the_model_is_made(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(saved, lambda config: config["options"].update(hidden_size=5), sign=False)
    monkeypatch.setattr(MuFuRU, "__init__", lambda *_, **__: pytest.fail("a layer was made of a changed file"))
    refused(saved, "do not have the checksum that they were saved with")


@pytest.mark.parametrize("depth", [500, 960, 100_000])
@pytest.mark.parametrize("place", ["options", "dtype"])
def test_a_config_nested_too_deeply(saved: Path, place: str, depth: int) -> None:
    config = json.loads((saved / "config.json").read_text()) | {place: 0}
    nested = "[" * depth + "]" * depth
    (saved / "config.json").write_text(json.dumps(config).replace(f'"{place}": 0', f'"{place}": {nested}'))
    refused(saved, "config.json")


@pytest.mark.parametrize("text", ["", "{", "[]", "\udcff"])
def test_a_config_that_is_no_config(saved: Path, text: str) -> None:
    (saved / "config.json").write_bytes(text.encode(errors="surrogateescape"))
    refused(saved, "config.json")


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    refused(tmp_path, "config.json is missing: expected a folder that save_pretrained wrote")


def test_operations_of_ones_own_have_to_be_provided(tmp_path: Path) -> None:
    def halve(s: Tensor, v: Tensor) -> Tensor:
        return 0.5 * s

    mufuru.register("halve", halve)
    layer = MuFuRU(3, 4, ops=("keep", "halve", lambda s, v: (s - v).log()))
    layer.save_pretrained(tmp_path)
    assert set(json.loads((tmp_path / "config.json").read_text())["custom_operations"]) == {"halve", "op2"}
    refused(tmp_path, "operations that are not built in: provide them first, with mufuru.register('op2', function)")
    mufuru.unregister("halve")
    message = refused(tmp_path, "mufuru.register('halve', function), mufuru.register('op2', function)")
    assert message.startswith(str(tmp_path / "config.json"))
    card = (tmp_path / "README.md").read_text()
    assert 'mufuru.register("halve", ...)' in card
    mufuru.register("op2", lambda s, v: (s - v).log())
    mufuru.register("halve", lambda s, v: 0.4 * s)
    refused(tmp_path, "'halve' that is registered here gives other values than the one that the model was saved with")
    mufuru.unregister("halve")
    mufuru.register("halve", halve)
    same(layer, MuFuRU.from_pretrained(tmp_path))


def test_an_own_operation_under_a_name_that_is_taken_is_not_saved(tmp_path: Path) -> None:
    def max(s: Tensor, v: Tensor) -> Tensor:
        return s + v

    with pytest.raises(ValueError, match="'max' is not the registered one of that name"):
        MuFuRU(3, 4, ops=("keep", max)).save_pretrained(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_parametrized_weight_is_not_saved(tmp_path: Path) -> None:
    layer = MuFuRU(3, 4)
    parametrize.register_parametrization(layer, "weight_hh_l0", nn.Tanh())
    with pytest.raises(PretrainedError, match=r"weight_hh_l0 is computed from other tensors.*remove_parametrizations"):
        layer.save_pretrained(tmp_path)
    assert not list(tmp_path.iterdir())
    parametrize.remove_parametrizations(layer, "weight_hh_l0")
    layer.save_pretrained(tmp_path)
    same(layer, MuFuRU.from_pretrained(tmp_path))


def test_mixed_types_are_not_saved(tmp_path: Path) -> None:
    layer = MuFuRU(3, 4)
    layer.bias_ih_l0 = nn.Parameter(layer.bias_ih_l0.detach().double())
    with pytest.raises(PretrainedError, match=r"one of the types float32.*got float32, float64"):
        layer.save_pretrained(tmp_path)


def test_a_failed_write_leaves_no_config(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full: what is there is not taken for a model."""

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        MuFuRU(3, 4).save_pretrained(saved)
    refused(saved, "config.json is missing")
    assert not list(saved.glob(".*"))
