"""The classifier: what it reads, how it pools, and that no sequence depends on its neighbours."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from classify_data import CELLS, LABELS, config, task
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from mufuru.experiments.data.vocabulary import UNKNOWN, Vocabulary
from mufuru.experiments.tasks.cells import CellName
from mufuru.experiments.tasks.classify.config import PoolingName
from mufuru.experiments.tasks.classify.model import Classifier, Pooling, Standardise, encode
from mufuru.experiments.tasks.words import Meaning
from mufuru.kernels import library

POOLINGS: tuple[PoolingName, ...] = ("last", "max", "mean", "attention")
ULPS = 1e-6
"""Logits are of the size of 1: products of other shapes may round their last bits in another way."""


def logits_together_and_alone(model: nn.Module, made: Any) -> tuple[Tensor, Tensor]:
    """Logits of all validation sequences in one ragged batch, and of each alone."""
    encoded = made._encoded["valid"]
    everything = torch.arange(len(encoded.lengths))
    batch = encoded.batch(everything)
    with torch.no_grad():
        together = model(batch.inputs)[batch.which.argsort()]
        alone = torch.cat([model(encoded.batch(number.view(1)).inputs) for number in everything])
    return together, alone


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}], ids=["plain", "deep"])
@pytest.mark.parametrize("kind", ["text", "numeric"])
def test_the_same_alone_and_in_a_ragged_batch(
    cell: CellName, pooling: PoolingName, options: dict[str, Any], kind: str
) -> None:
    made = task(cell, kind, pooling=pooling, **options)
    model = made.build().eval()
    if pooling == "attention":
        nn.init.normal_(model.get_parameter("pooling.query"))
    together, alone = logits_together_and_alone(model, made)
    torch.testing.assert_close(together, alone, rtol=0, atol=ULPS)
    assert together.std() > 100 * ULPS


@pytest.mark.skipif(library.status().state == "unavailable", reason="needs the native library")
def test_the_states_of_mufuru_are_the_same_bits_alone_and_together() -> None:
    """Its kernel computes a sequence's numbers in one order, whoever its neighbours are."""
    made = task(hidden_size=20)
    model = made.build().eval()
    model.output = nn.Identity()
    together, alone = logits_together_and_alone(model, made)
    assert torch.equal(together, alone)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_gradients_are_those_of_a_padded_computation(pooling: PoolingName) -> None:
    """Against plain formulae over each sequence cut out by hand; in double, so that the tolerance can be tight."""
    module = Pooling(pooling, 3).double()
    if module.query is not None:
        nn.init.normal_(module.query)
    parts = [torch.randn(steps, 3, dtype=torch.float64, requires_grad=True) for steps in (4, 2, 2, 1)]
    last = torch.stack([part[-1] for part in parts])
    found = module(pack_sequence(parts), last)
    expected = torch.stack([by_hand(part, pooling, module.query) for part in parts])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    weights = torch.randn_like(found)
    learned = [*parts, *module.parameters()]
    for one, other in zip(
        torch.autograd.grad((found * weights).sum(), learned, retain_graph=True),
        torch.autograd.grad((expected * weights).sum(), learned),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def by_hand(outputs: Tensor, pooling: PoolingName, query: Tensor | None) -> Tensor:
    if query is not None:
        return (outputs @ query).softmax(0) @ outputs
    return {"last": outputs[-1], "max": outputs.amax(0), "mean": outputs.mean(0)}[pooling]


def test_pooling_by_numbers() -> None:
    packed = pack_sequence([torch.tensor([[1.0, -5.0], [3.0, -1.0], [2.0, -3.0]]), torch.tensor([[-4.0, 8.0]])])
    last = torch.zeros(2, 2)
    assert Pooling("max", 2)(packed, last).tolist() == [[3.0, -1.0], [-4.0, 8.0]]
    assert Pooling("mean", 2)(packed, last).tolist() == [[2.0, -3.0], [-4.0, 8.0]]
    # an attention that has learned nothing yet looks at all steps alike
    assert Pooling("attention", 2)(packed, last).tolist() == [[2.0, -3.0], [-4.0, 8.0]]
    assert Pooling("last", 2)(packed, last) is last


def test_attention_with_huge_scores_stays_finite() -> None:
    module = Pooling("attention", 1)
    nn.init.constant_(module.get_parameter("query"), 1000.0)
    packed = pack_sequence([torch.tensor([[1.0], [-1.0]]), torch.tensor([[-1.0]])])
    assert module(packed, torch.zeros(2, 1)).tolist() == [[1.0], [-1.0]]


def test_two_classes_are_a_logistic_regression() -> None:
    made = task()
    model = made.build().eval()
    batch = made.batches("valid")[0]
    step = made.step(model, batch, None)
    logits = model(batch.inputs)
    assert model.output.out_features == 1
    assert logits[:, 0].tolist() == [0.0] * len(logits)
    expected = nn.functional.binary_cross_entropy_with_logits(logits[:, 1], batch.targets.float(), reduction="sum")
    torch.testing.assert_close(step.loss, expected)


def test_five_classes_have_a_logit_each() -> None:
    made = task(classes=5)
    model = made.build()
    batch = made.batches("train")[0]
    assert model(batch.inputs).shape == (8, 5)
    made.step(model, batch, None).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_dropout_is_of_training_only() -> None:
    made = task(embedding_dropout=0.5, output_dropout=0.5)
    model = made.build()
    inputs = made.batches("valid")[0].inputs
    assert not torch.equal(model(inputs), model(inputs))
    model.eval()
    assert torch.equal(model(inputs), model(inputs))


def test_a_text_without_words_is_read_as_an_unknown_word() -> None:
    meaning = Meaning(LABELS, Vocabulary((UNKNOWN, "good")))
    encoded = encode([[], ["GOOD"], ["what"]], torch.zeros(3), meaning, config())
    assert encoded.steps.tolist() == [0, 1, 0]
    assert encoded.lengths.tolist() == [1, 1, 1]


@pytest.mark.parametrize(("lowercase", "expected"), [(True, [1, 1]), (False, [0, 1])])
def test_case(lowercase: bool, expected: list[int]) -> None:
    meaning = Meaning(LABELS, Vocabulary((UNKNOWN, "good")))
    encoded = encode([["Good", "good"]], torch.zeros(1), meaning, config(lowercase=lowercase))
    assert encoded.steps.tolist() == expected


def test_the_longest_that_is_read() -> None:
    settings = config(max_length=2)
    words, numbers = Meaning(LABELS, Vocabulary((UNKNOWN, "a", "b"))), Meaning(LABELS, None, 1)
    assert encode([["a", "b", "b"], ["b"]], torch.zeros(2), words, settings).steps.tolist() == [1, 2, 2]
    assert encode([torch.ones(5, 1)], torch.zeros(1), numbers, settings).lengths.tolist() == [2]


def test_numbers_are_standardised_by_training() -> None:
    made = task(kind="numeric")
    standard = made.build().embedding
    assert isinstance(standard, Standardise)
    values = torch.cat(made.labelled.train.sequences)
    found = standard(values)
    # the second channel's deviation is 1e-3 around -3: float32 knows it to four digits
    torch.testing.assert_close(found.mean(0), torch.zeros(2), rtol=0, atol=1e-3)
    torch.testing.assert_close(found.std(0, correction=0), torch.ones(2), rtol=1e-3, atol=0)


def test_a_channel_that_never_changes() -> None:
    standard = Standardise(2)
    standard.measure(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    assert standard(torch.tensor([[3.0, 5.0]])).tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize("kind", ["text", "numeric"])
def test_a_model_comes_back_from_its_weights_alone(kind: str) -> None:
    made = task(kind=kind, pooling="attention")
    model = made.build().eval()
    again = Classifier.restored(made.config, model.state_dict())
    again.load_state_dict(model.state_dict())
    assert again.meaning == model.meaning
    inputs = made.batches("test")[0].inputs
    assert torch.equal(again.eval()(inputs), model(inputs))


def test_a_meaning_goes_to_json_and_back() -> None:
    for meaning in (
        Meaning(("a", "b"), Vocabulary((UNKNOWN, "ü"))),
        Meaning(("1", "2", "3"), None, 4),
    ):
        assert Meaning.from_json(meaning.to_json()) == meaning


def test_outputs_are_pooled_in_their_own_sequence() -> None:
    """The packed rows' owners against torch's own unpacking."""
    made = task(pooling="mean", bidirectional=True)
    model = made.build().eval()
    inputs = made.batches("valid")[0].inputs
    outputs, state = model.reader(inputs._replace(data=model.embedding(inputs.data)))
    padded, lengths = pad_packed_sequence(outputs)
    expected = padded.sum(0) / lengths.unsqueeze(1)
    torch.testing.assert_close(model.pooling(outputs, model.reader.last(state)), expected, rtol=0, atol=ULPS)


def test_the_model_has_no_other_parameters() -> None:
    model = Classifier(config("gru"), task("gru").meaning)
    names = {name.partition(".")[0] for name, _ in model.named_parameters()}
    assert names == {"embedding", "reader", "output"}
