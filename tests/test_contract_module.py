"""What a module is to a program: names, files, copies and places, asked of `nn.GRU` first and then of `MuFuRU`."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mufuru import MuFuRU, MuFuRUCell, TreeMuFuRU

STEPS, BATCH, N, M = 6, 2, 3, 5


def make(layer_type: Any, **options: Any) -> Any:
    return layer_type(N, M, **({"num_layers": 2, "bidirectional": True} | options))


def assert_same(a: nn.Module, b: nn.Module, dtype: torch.dtype = torch.float32) -> None:
    x = torch.randn(STEPS, BATCH, N, dtype=dtype)
    assert torch.equal(a(x)[0], b(x)[0])
    assert torch.equal(a(x)[1], b(x)[1])


def test_parameter_names_are_grus(layer_type: Any) -> None:
    for options in ({}, {"bias": False}, {"num_layers": 3, "bidirectional": False}):
        names = [name for name, _ in make(layer_type, **options).named_parameters()]
        assert names == [name for name, _ in make(nn.GRU, **options).named_parameters()]


def test_attributes_are_the_arguments(layer_type: Any) -> None:
    module = make(layer_type, batch_first=True, dropout=0.25, bias=False)
    names = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
    assert [getattr(module, name) for name in names] == [N, M, 2, False, True, 0.25, True]


def test_first_weights_are_uniform_within_the_bound(layer_type: Any) -> None:
    for name, parameter in layer_type(30, 40).named_parameters():
        if name.startswith("weight"):
            assert parameter.abs().max() <= 40**-0.5
            # over a thousand draws: the largest is within a percent of the bound
            assert parameter.abs().max() > 0.99 * 40**-0.5


def test_reset_parameters_draws_anew(layer_type: Any) -> None:
    module = make(layer_type)
    before = module.weight_hh_l1.clone()
    module.reset_parameters()
    assert not torch.equal(before, module.weight_hh_l1)


def test_seed_gives_the_same_parameters(layer_type: Any) -> None:
    modules = [(torch.manual_seed(3), make(layer_type))[1] for _ in range(2)]
    assert_same(*modules)


def test_all_weights_lists_parameters_by_unit(layer_type: Any) -> None:
    module = make(layer_type)
    assert [len(unit) for unit in module.all_weights] == [4] * 4
    listed = [weight for unit in module.all_weights for weight in unit]
    assert all(a is b for a, b in zip(listed, module.parameters(), strict=True))
    assert module.all_weights[1][1] is module.weight_hh_l0_reverse


def test_flatten_parameters_changes_nothing(layer_type: Any) -> None:
    module, x = make(layer_type), torch.randn(STEPS, BATCH, N)
    before = module(x)[0]
    assert module.flatten_parameters() is None
    assert torch.equal(before, module(x)[0])


def test_repr_says_what_differs_from_the_defaults(layer_type: Any) -> None:
    name = layer_type.__name__
    assert repr(layer_type(3, 4)) == f"{name}(3, 4)"
    options = {"num_layers": 2, "bias": False, "batch_first": True, "dropout": 0.5, "bidirectional": True}
    text = ", ".join(f"{key}={value}" for key, value in options.items())
    assert repr(layer_type(3, 4, **options)) == f"{name}(3, 4, {text})"


def test_subclasses_may_have_arguments_of_their_own(layer_type: Any) -> None:
    class Encoder(layer_type):  # type: ignore[misc]
        def __init__(self, width: int) -> None:
            super().__init__(width, width, batch_first=True)

        def forward(self, words: Tensor) -> Tensor:
            output: Tensor = super().forward(words)[0]
            return output

    encoder = Encoder(N)
    assert encoder(torch.randn(BATCH, STEPS, N)).shape == (BATCH, STEPS, N)
    assert encoder(words=torch.randn(BATCH, STEPS, N)).shape == (BATCH, STEPS, N)
    assert repr(encoder) == "Encoder(3, 3, batch_first=True)"


def test_deepcopy_is_independent(layer_type: Any) -> None:
    module = make(layer_type)
    twin = copy.deepcopy(module)
    assert_same(module, twin)
    with torch.no_grad():
        twin.weight_hh_l0.zero_()
    assert module.weight_hh_l0.any()


def test_pickle(layer_type: Any) -> None:
    module = make(layer_type)
    assert_same(module, pickle.loads(pickle.dumps(module)))


def test_save_the_module_whole(layer_type: Any, tmp_path: Path) -> None:
    module = make(layer_type)
    torch.save(module, tmp_path / "module.pt")
    assert_same(module, torch.load(tmp_path / "module.pt", weights_only=False))


@pytest.mark.parametrize(
    "model",
    [MuFuRU(3, 4, 2, zoneout=0.1), MuFuRU(3, 4, controller_size=2, op_bias={"keep": 1}), MuFuRUCell(3, 4),
     TreeMuFuRU(3, 4)], ids=["layers", "controller", "cell", "tree"],
)  # fmt: skip
def test_torch_load_trusts_what_a_module_is_made_of(model: nn.Module) -> None:
    """As the default of torch is; a model around it needs its own classes only."""
    file = io.BytesIO()
    torch.save(nn.ModuleList([model]), file)
    file.seek(0)
    with torch.serialization.safe_globals([nn.ModuleList]):
        (found,) = torch.load(file)
    assert repr(found) == repr(model)
    assert all(torch.equal(a, b) for a, b in zip(found.parameters(), model.parameters(), strict=True))


@pytest.mark.filterwarnings("ignore:.torch.jit.script.* is deprecated:DeprecationWarning")
@pytest.mark.parametrize("model", [MuFuRU(3, 4), nn.ModuleList([MuFuRUCell(3, 4)])], ids=["layer", "in a model"])
def test_script_is_refused_in_words(model: nn.Module) -> None:
    with pytest.raises(NotImplementedError, match=r"torch\.jit\.script cannot read MuFuRU.*torch\.export"):
        torch.jit.script(model)


def test_state_dict_survives_a_weights_only_load(layer_type: Any) -> None:
    module, other, file = make(layer_type), make(layer_type), io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert_same(module, other)


def test_state_dict_is_strict(layer_type: Any) -> None:
    module = make(layer_type)
    good = module.state_dict()
    missing = {name: value for name, value in good.items() if name != "bias_hh_l1"}
    wrong = {
        "Missing key": missing,
        "Unexpected key": good | {"weight_hr_l0": torch.zeros(1)},
        "size mismatch": good | {"weight_ih_l0": torch.zeros(1, N)},
    }
    for text, state in wrong.items():
        with pytest.raises(RuntimeError, match=text):
            module.load_state_dict(state)
    assert module.load_state_dict(missing, strict=False).missing_keys == ["bias_hh_l1"]


def test_factory_arguments(layer_type: Any) -> None:
    module = make(layer_type, device="meta", dtype=torch.float64)
    assert all(p.device.type == "meta" and p.dtype == torch.float64 for p in module.parameters())
    real = make(layer_type, dtype=torch.float64)
    module = module.to_empty(device="cpu")
    module.load_state_dict(real.state_dict())
    assert_same(module, real, torch.float64)


def test_shapes_on_the_meta_device(layer_type: Any) -> None:
    output, h_n = make(layer_type, device="meta")(torch.empty(STEPS, BATCH, N, device="meta"))
    assert output.shape == (STEPS, BATCH, 2 * M)
    assert h_n.device.type == "meta"


def test_default_dtype_is_followed(layer_type: Any) -> None:
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        assert make(layer_type).weight_ih_l0.dtype == torch.float64
    finally:
        torch.set_default_dtype(before)


def test_dropout_on_one_layer_warns_once(layer_type: Any) -> None:
    with pytest.warns(UserWarning, match="dropout option adds dropout after all but last recurrent layer") as caught:
        layer_type(3, 4, dropout=0.5)
    assert len(caught) == 1


def test_what_programs_ask_that_take_an_lstm_too(layer_type: Any) -> None:
    layer = layer_type(3, 4, 2)
    output, h_n = layer(torch.randn(5, 2, 3))
    assert output.size(-1) == (layer.proj_size or layer.hidden_size)
    assert isinstance(h_n, tuple) == (layer.mode == "LSTM")
