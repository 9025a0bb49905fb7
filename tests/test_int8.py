"""Weights of 8 bits: how far they are from the original, in the file and in products."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mufuru import MuFuRU
from mufuru.int8 import Int8Embedding, Int8Linear, dequantise, dynamic, pack, quantise, unpack
from mufuru.saving.files import PretrainedError, checksum


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 12)
        self.read = MuFuRU(12, 16)
        self.tag = nn.Linear(16, 30)

    def forward(self, tokens: Tensor) -> Tensor:
        tags: Tensor = self.tag(self.read(self.embed(tokens))[0])
        return tags


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_no_weight_moves_by_more_than_half_a_scale(dtype: torch.dtype) -> None:
    weight = (torch.randn(20, 30, dtype=torch.float64) * torch.logspace(-6, 3, 20, dtype=torch.float64)[:, None]).to(
        dtype
    )
    q, scale = quantise(weight)
    assert q.dtype == torch.int8
    assert int(q.abs().amax(1).min()) == int(q.abs().max()) == 127
    # float32 rounds the quotient and the product once each
    assert ((dequantise(q, scale, torch.float64) - weight.double()).abs() <= 0.5001 * scale.double()[:, None]).all()


def test_zeros_stay_zeros_and_whole_numbers_of_the_scale_stay() -> None:
    weight = torch.tensor([[0.0, 0.0, 0.0], [127.0, -3.0, 0.0], [-2.54, 0.02, 1.0]])
    q, scale = quantise(weight)
    assert q.tolist() == [[0, 0, 0], [127, -3, 0], [-127, 1, 50]]
    assert torch.equal(dequantise(q, scale)[:2], weight[:2])
    again, _ = quantise(dequantise(q, scale))
    assert torch.equal(again, q)


def test_what_is_no_number_has_no_8_bits() -> None:
    with pytest.raises(ValueError, match="infinite or NaN"):
        quantise(torch.tensor([[1.0, torch.nan]]))


def test_packing_takes_matrices_only() -> None:
    tensors = {"a": torch.randn(3, 4), "b": torch.randn(3), "c": torch.arange(6).view(2, 3), "d": torch.randn(2, 0)}
    packed = pack(tensors)
    assert {name for name, tensor in packed.items() if tensor.dtype == torch.int8} == {"a"}
    assert packed.keys() - tensors.keys() == {"a/scale"}
    unpacked = unpack(packed, torch.float32)
    assert unpacked.keys() == tensors.keys()
    assert all(torch.equal(unpacked[name], tensors[name]) for name in "bcd")
    with pytest.raises(ValueError, match="a should be int8 with one float32 scale for each of its rows"):
        unpack({**packed, "a/scale": torch.ones(2)}, torch.float32)
    assert "z/scale" in unpack({**packed, "z/scale": torch.ones(2)}, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_saved_layer_has_8_bits_and_comes_back_near(tmp_path: Path, dtype: torch.dtype) -> None:
    layer = MuFuRU(40, 60, bidirectional=True, dtype=dtype).eval()
    layer.save_pretrained(tmp_path / "full")
    layer.save_pretrained(tmp_path / "small", int8=True)
    loaded = MuFuRU.from_pretrained(tmp_path / "small")
    for name, parameter in layer.named_parameters():
        expected = dequantise(*quantise(parameter), dtype) if parameter.dim() > 1 else parameter
        assert torch.equal(loaded.get_parameter(name), expected), name
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("full", "small")]
    # 1 byte a weight in place of 4 or 8, and beside them biases and scales
    assert sizes[1] < (0.29 if dtype == torch.float32 else 0.16) * sizes[0]
    x = torch.randn(30, 4, 40, dtype=dtype)
    # a weight moves by up to 0.4 % of its row's largest; over 30 steps the states are bounded by 1
    torch.testing.assert_close(loaded(x)[0], layer(x)[0], atol=0.05, rtol=0)
    assert not torch.equal(loaded(x)[0], layer(x)[0])


def test_a_storage_that_is_not_known(tmp_path: Path) -> None:
    MuFuRU(3, 4).save_pretrained(tmp_path, int8=True)
    config = json.loads((tmp_path / "config.json").read_text())
    for storage, message in (("int4", "storage should be one of full, int8, got 'int4'"), ("full", "does not fit")):
        config["storage"] = storage
        config["sha256"] = checksum(config, (tmp_path / "model.safetensors").read_bytes())
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(PretrainedError, match=message):
            MuFuRU.from_pretrained(tmp_path)


def by_hand(linear: nn.Linear, x: Tensor) -> Tensor:
    """The product of whole numbers, row by row, in double precision."""
    q, scale = quantise(linear.weight)
    size = x.abs().amax(-1, keepdim=True)
    inputs = (x * (63 / size)).round()
    products = inputs.double() @ q.double().T * scale.double() * size.double() / 63
    return (products + linear.bias.double()).float()


@pytest.mark.parametrize("rows", [1, 2, 77])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (3, 5), (200, 1000)])
def test_a_linear_layer_multiplies_whole_numbers(rows: int, inputs: int, outputs: int) -> None:
    linear = nn.Linear(inputs, outputs)
    with torch.no_grad():
        # the largest sums that there are: whoever adds them up in 16 bits shows here
        linear.weight[0] = linear.weight[0].abs().max()
    x = torch.randn(rows, inputs) * torch.logspace(-3, 3, rows)[:, None]
    x[0] = x[0].abs().max()
    found = Int8Linear(linear)(x)
    # whole numbers are exact: float32 rounds scales, sizes and the sum with the bias
    torch.testing.assert_close(found, by_hand(linear, x), rtol=1e-5, atol=1e-5)


def test_a_row_does_not_depend_on_the_others() -> None:
    small = Int8Linear(nn.Linear(20, 30))
    x = torch.randn(5, 7, 20) * 10 ** torch.randn(5, 7, 1)
    x[2, 3] = 0.0
    together = small(x)
    for place in torch.cartesian_prod(torch.arange(5), torch.arange(7)):
        row = tuple(place.tolist())
        assert torch.equal(small(x[row]), together[row])
    assert torch.equal(together[2, 3], small.bias)


def test_a_model_keeps_its_answers() -> None:
    model = Tagger().eval()
    small = dynamic(model)
    assert isinstance(small.tag, Int8Linear)
    assert isinstance(small.embed, Int8Embedding)
    assert isinstance(small.read, MuFuRU)
    tokens = torch.randint(50, (9, 4))
    expected = model(tokens).detach()
    # 8 bits of weights and 7 of inputs: about one part in a hundred
    torch.testing.assert_close(small(tokens), expected, atol=0.03 * float(expected.abs().max()), rtol=0)
    assert not torch.equal(small(tokens), expected)
    assert torch.equal(small.tag.weight, dequantise(*quantise(model.tag.weight)))
    assert torch.equal(small.embed(tokens), small.embed.weight[tokens])
    assert isinstance(model.tag, nn.Linear), "the model itself stays as it is"
    assert not any(parameter.requires_grad for parameter in small.parameters())


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method:DeprecationWarning")
def test_compiled() -> None:
    small, tokens = dynamic(Tagger()), torch.randint(50, (9, 4))
    with torch.no_grad():
        # fused sums round differently
        torch.testing.assert_close(torch.compile(small)(tokens), small(tokens), rtol=1e-5, atol=1e-6)


def test_loaded_weights_are_used() -> None:
    one, other = (dynamic(nn.Sequential(nn.Linear(6, 7))) for _ in range(2))
    x = torch.randn(3, 6)
    before = one(x)
    one.load_state_dict(other.state_dict())
    assert torch.equal(one(x), other(x))
    assert not torch.equal(one(x), before)
    assert isinstance(one[0], Int8Linear)
    one.load_state_dict(dynamic(nn.Sequential(nn.Linear(6, 7))).state_dict(), assign=True)
    torch.testing.assert_close(one(x), by_hand(nn_linear(one[0]), x), rtol=1e-5, atol=1e-5)


def nn_linear(small: Int8Linear) -> nn.Linear:
    """In floating point, what the 8-bit layer stands for."""
    linear = nn.Linear(small.in_features, small.out_features)
    linear.load_state_dict({"weight": small.weight, "bias": small.bias})
    return linear


# bfloat16 keeps 8 bits of the scales, and of whatever the layers hand on
@pytest.mark.parametrize(("dtype", "far"), [(torch.float64, 1e-5), (torch.bfloat16, 0.05)])
def test_a_small_model_can_be_converted(dtype: torch.dtype, far: float) -> None:
    small, tokens = dynamic(Tagger()), torch.randint(50, (9, 4))
    expected = small(tokens)
    converted = copy.deepcopy(small).to(dtype)
    answers = converted(tokens)
    assert answers.dtype == converted.embed(tokens).dtype == dtype
    torch.testing.assert_close(answers.float(), expected, atol=far, rtol=0)
    # float64 kept every bit of the scales and biases
    if dtype == torch.float64:
        assert torch.equal(converted.to(torch.float32)(tokens), expected)


def test_copies_and_twice_the_same() -> None:
    model = Tagger().double()
    small = dynamic(model)
    tokens = torch.randint(50, (9, 4))
    answers = small(tokens)
    assert answers.dtype == torch.float64
    for other in (copy.deepcopy(small), pickle.loads(pickle.dumps(small)), dynamic(small)):
        assert torch.equal(other(tokens), answers)
    with pytest.raises(ValueError, match=r"put a single Linear into an nn.Sequential"):
        dynamic(nn.Linear(2, 3))
