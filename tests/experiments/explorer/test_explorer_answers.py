"""The explorer's numbers are those of the models themselves: after every token, for every kind of run and layer."""

from __future__ import annotations

from typing import Any

import classify_data
import lm_texts
import pytest
import torch
from explored_runs import FORMULA, shipped_runs, trained, untrained, view
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

import mufuru
from mufuru.experiments.draws import Draws
from mufuru.experiments.explorer import ExploredRun, explored, numbers, runs, shipped
from mufuru.experiments.explorer.numbers import plain
from mufuru.experiments.explorer.runs import Place, Refused
from mufuru.experiments.tasks.classify.use import SequenceReader
from mufuru.experiments.tasks.logic.formulae import Wanted, parse, sample_unique
from mufuru.experiments.tasks.logic.task import without_beginning

ROUNDING = 2e-6
"""Probabilities are rounded to 6 places; the rest is single precision in another order."""
STATES = 0.5e-4 + 1e-6
"""States are told in ten-thousandths."""
SENTENCE = "the film is very good , not bad"


def probabilities(answer: dict[str, Any], labels: tuple[str, ...]) -> Tensor:
    """(steps, labels) of an answer."""
    rows = [dict(prediction["top"]) for prediction in answer["predictions"]]
    return torch.tensor([[row[label] for label in labels] for row in rows], dtype=torch.float64)


def by_prefix(run: ExploredRun, text: str) -> Tensor:
    """The same by the model's own forward pass, on each beginning of the text alone."""
    reader: Any = run.reader
    x = reader.steps(text).x
    with torch.no_grad():
        rows = [reader.model(pack_sequence([x[: end + 1]])) for end in range(len(x))]
    found = torch.cat(rows).double()
    return torch.stack((1 - found.sigmoid(), found.sigmoid()), 1) if found.dim() == 1 else found.softmax(1)


@pytest.mark.parametrize("both_ways", [False, True], ids=["forward", "both ways"])
@pytest.mark.parametrize("pooling", ["last", "max", "mean", "attention"])
@pytest.mark.parametrize("cell", classify_data.CELLS)
def test_a_classifier_predicts_as_on_each_beginning_alone(cell: Any, pooling: str, both_ways: bool) -> None:
    run = untrained("classify", cell=cell, pooling=pooling, bidirectional=both_ways, num_layers=2, classes=3)
    answer = run.answer(view(SENTENCE))
    assert answer["tokens"] == SENTENCE.split()
    expected = by_prefix(run, SENTENCE)
    assert float(expected.std(0).max()) > 1e-3, "the predictions do not depend on the text: nothing is tested"
    torch.testing.assert_close(probabilities(answer, run.reader.labels), expected, atol=ROUNDING, rtol=0)


@pytest.mark.parametrize("both_ways", [False, True], ids=["forward", "both ways"])
@pytest.mark.parametrize("cell", classify_data.CELLS)
def test_a_formula_is_predicted_as_on_each_beginning_alone(cell: Any, both_ways: bool) -> None:
    run = untrained("logic", cell=cell, bidirectional=both_ways)
    answer = run.answer(view())
    torch.testing.assert_close(probabilities(answer, ("false", "true")), by_prefix(run, FORMULA), atol=ROUNDING, rtol=0)


def test_a_series_is_read_from_rows_and_columns() -> None:
    (run,) = trained("series")
    values = [0.25, -1.0, 2.0, 0.5]
    answers = [run.answer(view(mark.join(map(str, values)))) for mark in (" ", ", ", "\t", "\n", ",\n")]
    assert answers[0]["tokens"] == ["0.25", "-1", "2", "0.5"]
    assert all(answer == answers[0] for answer in answers)
    expected = by_prefix(run, " ".join(map(str, values)))
    torch.testing.assert_close(probabilities(answers[0], run.reader.labels), expected, atol=ROUNDING, rtol=0)


def test_numbers_that_overflow_are_refused() -> None:
    (run,) = trained("series")
    with pytest.raises(Refused, match="infinities or NaN for this text: give it smaller numbers"):
        run.answer(view("3e38 -3e38 3e38"))


@pytest.mark.parametrize("cell", lm_texts.CELLS)
def test_a_language_model_tells_the_next_words(cell: Any) -> None:
    run = untrained("lm", cell=cell)
    model: Any = run.reader.model
    answer = run.answer(view("the cat sat\non the zebra"))
    tokens = ["<eos>", "the", "cat", "sat", "<eos>", "on", "the", "zebra"]
    assert answer["tokens"] == tokens
    assert answer["notes"] == ["Not in the vocabulary, read as <unk>: zebra."]
    numbers = model.vocabulary.encode(tokens)
    with torch.no_grad():
        outputs, _ = model(numbers.unsqueeze(1))
        expected = model.output(outputs[:, 0]).softmax(1)
    # this vocabulary has ten words, so that all of them are told
    torch.testing.assert_close(probabilities(answer, model.vocabulary.words), expected.double(), atol=ROUNDING, rtol=0)
    for step, prediction in enumerate(answer["predictions"]):
        told = [p for _, p in prediction["top"]]
        assert told == sorted(told, reverse=True)
        came = prediction.get("came")
        assert (
            came is None if step == len(tokens) - 1 else abs(came - float(expected[step, numbers[step + 1]])) < ROUNDING
        )


def test_a_language_model_of_characters_reads_every_one() -> None:
    (run,) = trained("letters")
    assert run.info()["takes"] == "characters"
    assert run.answer(view("the cat\n"))["tokens"] == ["\n", *"the cat\n"]


@pytest.mark.parametrize("direction", [0, 1])
@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("cell", ["mufuru", "gru"])
def test_weights_states_and_contributions_are_those_of_a_trace(cell: Any, layer: int, direction: int) -> None:
    run = untrained("classify", cell=cell, bidirectional=True, num_layers=2)
    answer = run.answer(view(SENTENCE, layer=layer, direction=direction, unit=4))
    reader: Any = run.reader
    x = reader.model.embedding(reader.steps(SENTENCE).x)
    rnn: Any = reader.layer.rnn
    with torch.no_grad():
        trace = rnn.trace(x)
    expected = {
        "weights": trace.weights(layer, direction)[..., 4],
        "contributions": trace.contributions(layer, direction)[..., 4],
        "before": trace.states(layer, direction)[..., 4],
        "features": trace.features(layer, direction)[..., 4],
        "after": trace.outputs(layer, direction)[..., 4],
    }
    for name, values in expected.items():
        # told to 7 places
        torch.testing.assert_close(torch.tensor(answer["unit"][name]), values, atol=1e-6, rtol=0)
    mean = trace.weights(layer, direction).mean(-1)
    torch.testing.assert_close(torch.tensor(answer["weights"]), mean, atol=1e-5, rtol=0)
    torch.testing.assert_close(states_of(answer), trace.outputs(layer, direction), atol=STATES, rtol=0)


def states_of(answer: dict[str, Any]) -> Tensor:
    scale: float = answer["states"]["scale"]
    return scale * torch.tensor(answer["states"]["values"])


def test_the_map_has_the_leading_operation_of_every_unit_and_the_plots_order() -> None:
    run = untrained("classify", hidden_size=9)
    found = run.answer(view(SENTENCE))["map"]
    reader: Any = run.reader
    with torch.no_grad():
        p = reader.layer.rnn.trace(reader.model.embedding(reader.steps(SENTENCE).x)).weights()
    for step, unit in torch.cartesian_prod(torch.arange(8), torch.arange(9)).tolist():
        weights = p[step, :, unit].tolist()
        # told in thousandths
        assert found["scale"] * found["shares"][step][unit] == pytest.approx(max(weights), abs=0.5e-3 + 1e-6)
        assert found["ops"][step][unit] == weights.index(max(weights))
    assert found["order"] == mufuru.plot.similar(p.double()) != list(range(9))


def test_units_are_compared_over_all_of_a_long_text() -> None:
    p = torch.full((200, 2, 3), 0.5)
    # unit 0 differs from the others at the end alone
    p[150:, 0, 0], p[150:, 1, 0] = 0.9, 0.1
    assert numbers.leading(p)["order"] in ([0, 1, 2], [0, 2, 1], [1, 2, 0], [2, 1, 0])
    p[:, :, 1] = p[:, :, 0]
    assert numbers.leading(p)["order"] in ([0, 1, 2], [1, 0, 2], [2, 1, 0], [2, 0, 1])


@pytest.mark.parametrize("zoneout", [0.0, 0.3])
@pytest.mark.parametrize("unit", range(6))
def test_contributions_add_up_to_the_new_state(unit: int, zoneout: float) -> None:
    run = untrained("lm", regularisation={"zoneout": zoneout})
    found = run.answer(view("the cat sat on the mat", unit=unit))["unit"]
    parts = {name: torch.tensor(found[name], dtype=torch.float64) for name in found if name != "index"}
    # eight numbers of 7 places each, computed in single precision
    exact = {"atol": 2e-6, "rtol": 0}
    torch.testing.assert_close(parts["contributions"].sum(1) + parts["rest"], parts["after"], **exact)
    torch.testing.assert_close(parts["weights"] * parts["values"], parts["contributions"], **exact)
    torch.testing.assert_close(parts["weights"].sum(1), torch.ones(7, dtype=torch.float64), **exact)
    torch.testing.assert_close(parts["after"][:-1], parts["before"][1:], **exact)
    assert bool(parts["rest"].any()) == (zoneout > 0)


def test_rounding_of_large_states_is_no_rest() -> None:
    layer = mufuru.MuFuRU(3, 20)
    # choices that do not see the states: large ones would leave one operation alone, and nothing to round
    nn.init.zeros_(layer.weight_hh_l0)
    trace = layer.trace(torch.randn(9, 1, 3), 1e4 * torch.randn(1, 1, 20))
    assert not any(numbers.parts(trace, 0, 0, unit)["rest"].any() for unit in range(20))


def test_a_gru_predicts_what_it_did_as_a_gru() -> None:
    task = classify_data.task("gru", pooling="mean")
    model: Any = task.build().eval()
    run = explored("gru", "classify", SequenceReader(model, task.config))
    assert [op["name"] for op in run.info()["ops"]] == ["keep", "replace"]
    seen = probabilities(run.answer(view(SENTENCE)), run.reader.labels)
    torch.manual_seed(20160610)
    original: Any = task.build().eval()
    original.load_state_dict(
        {name: value for name, value in model.state_dict().items() if "rnn" not in name}
        | {f"reader.rnn.{name}": value for name, value in model.reader.rnn.to_gru().state_dict().items()}
    )
    assert isinstance(original.reader.rnn, nn.GRU)
    assert run.parameters == sum(parameter.numel() for parameter in original.parameters())
    with torch.no_grad():
        x = run.reader.steps(SENTENCE).x
        expected = torch.cat([original(pack_sequence([x[: end + 1]])) for end in range(len(x))]).double().softmax(1)
    torch.testing.assert_close(seen, expected, atol=ROUNDING, rtol=0)


@pytest.mark.parametrize(
    "asked", [{"forbid": ("replace",)}, {"forbid": ("max", "min")}, {"force": "mul"}, {"force": "keep"}], ids=str
)
def test_interventions_are_those_of_the_library(asked: dict[str, Any]) -> None:
    run = shipped_runs()[0]
    usual = run.answer(view())
    answer = run.answer(view(**asked))
    model: Any = run.reader.model
    with mufuru.intervene(model, **asked):
        expected = by_prefix(run, FORMULA)
    torch.testing.assert_close(probabilities(answer, ("false", "true")), expected, atol=ROUNDING, rtol=0)
    weights = torch.tensor(answer["unit"]["weights"])
    gone = [k for k, op in enumerate(answer["ops"]) if op in asked.get("forbid", ()) or asked.get("force", op) != op]
    assert not weights[:, gone].any()
    assert weights.sum(1).sub(1).abs().max() < 1e-6
    assert answer["predictions"] != usual["predictions"]
    assert run.answer(view()) == usual, "an intervention outlived its request"


def test_truth_is_told_where_a_formula_is_finished() -> None:
    answer = shipped_runs()[0].answer(view("1 0 ∧ 0"))
    assert answer["tokens"] == ["1", "0", "AND", "0"]
    assert [p.get("truth") for p in answer["predictions"]] == ["true", None, "false", None]
    assert "not finished" in answer["notes"][0]
    assert shipped_runs()[0].answer(view())["notes"] == []


@pytest.mark.parametrize("text", ["1 0 A", "1 0 if/", "1 0 AND 1 x", "1 0 AND 1 then/i"])
def test_a_gate_that_is_being_typed_is_not_a_mistake(text: str) -> None:
    answer = shipped_runs()[0].answer(view(text))
    assert answer["tokens"] == text.split()[:-1]
    assert "not finished" in answer["notes"][0]


def test_a_long_word_is_looked_at_once() -> None:
    # from each of its letters it would take minutes
    text = 200_000 * "a" + "!"
    assert without_beginning(text) == text
    assert without_beginning("1 0 AND 1_/the") == "1 0 AND 1_/"


def test_words_that_a_classifier_does_not_know_are_told() -> None:
    (run,) = trained("texts")
    answer = run.answer(view("The zebra is GOOD"))
    assert answer["tokens"] == ["The", "zebra", "is", "GOOD"]
    assert answer["notes"] == ["Not in the vocabulary, read as <unk>: zebra, is."]


def test_a_classifier_reads_no_further_than_it_was_trained_to() -> None:
    run = untrained("classify", max_length=3)
    answer = run.answer(view(SENTENCE))
    assert answer["tokens"] == SENTENCE.split()[:3]
    assert len(answer["predictions"]) == 3
    assert answer["notes"][0] == "The model reads the first 3 steps alone."


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"unit": 8}, "unit should be from 0 to 7"),
        ({"unit": -1}, "unit should be"),
        ({"layer": 1}, "layer should be from 0 to 0"),
        ({"direction": 1}, "direction should be"),
        ({"forbid": ("maxx",)}, "Did you mean 'max'?"),
        ({"force": "no"}, "has no operation 'no'"),
        ({"forbid": mufuru.PAPER}, "nothing is left"),
        ({"forbid": ("max",), "force": "max"}, "nothing is left"),
        ({"text": ""}, "expected a value"),
        ({"text": "1 0 MAYBE"}, "unknown 'MAYBE' at column 5"),
        ({"text": "1 " * 4001}, "characters, at most 8,000"),
        ({"text": "1" + "0 AND " * 150}, "301 tokens, at most 300"),
    ],
    ids=str,
)
def test_what_cannot_be_shown_is_refused_in_a_sentence(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Refused) as caught:
        shipped_runs()[0].answer(view(**fields))
    assert sentence in caught.value.detail
    assert 400 <= caught.value.status_code < 500


def test_models_that_read_both_ways_read_less_at_once() -> None:
    run = untrained("classify", bidirectional=True)
    assert len(run.answer(view("good " * runs.STEPS_BOTH_WAYS))["predictions"]) == runs.STEPS_BOTH_WAYS
    with pytest.raises(Refused, match="both ends"):
        run.answer(view("good " * (runs.STEPS_BOTH_WAYS + 1)))


def test_cells_without_operations_show_states_alone() -> None:
    run = untrained("classify", cell="lstm")
    answer = run.answer(view(SENTENCE))
    assert "weights" not in answer
    assert states_of(answer).shape == (8, 6)
    with pytest.raises(Refused, match="lstm, which has no operations"):
        run.answer(view(SENTENCE, forbid=("keep",)))


@pytest.mark.parametrize(("number", "least"), [(0, 0.99), (1, 0.97)], ids=[folder.name for folder in shipped()])
def test_the_shipped_models_evaluate_formulae_they_have_never_seen(number: int, least: float) -> None:
    """The MuFuRU nearly all, and a GRU of as many units some fewer, trained alike."""
    run = shipped_runs()[number]
    formulae = sample_unique(Wanted(400, 5, 20), Draws("explorer", "fresh", 1))
    right = 0
    for formula in formulae:
        last = run.answer(view(str(formula)))["predictions"][-1]
        right += last["top"][0][0] == last["truth"] == str(formula.value).lower()
    assert right / len(formulae) >= least


def test_the_shipped_models_are_small() -> None:
    for folder in shipped():
        assert {path.name for path in folder.iterdir()} == {"config.json", "result.json", "best.safetensors"}
        assert sum(path.stat().st_size for path in folder.iterdir()) < 16_000


def test_the_opening_example_turns_on_one_operation() -> None:
    run = shipped_runs()[0]
    text = run.info()["examples"][0]
    labels = {op: run.answer(view(text, forbid=(op,)))["predictions"][-1]["top"][0][0] for op in mufuru.PAPER}
    last = run.answer(view(text))["predictions"][-1]
    assert last["top"][0][0] == last["truth"] == "false"
    assert [op for op, label in labels.items() if label == "true"] == ["mul"]


def test_every_example_can_be_read() -> None:
    for run in shipped_runs():
        for text in run.info()["examples"]:
            assert run.answer(view(text))["tokens"] == str(parse(text)).split()
            assert run.answer(view(text))["notes"] == []


def test_formulas_are_readable_without_latex() -> None:
    shown = [op["formula"] for op in shipped_runs()[0].info()["ops"]]
    assert shown == ["s", "v", "max(s, v)", "min(s, v)", "s ⊙ v", "½ |s − v|", "0"]
    assert [plain(op.formula) for op in map(mufuru.ops.get, ("sqr_diff", "negate", "add"))] == [
        "¼ (s − v)²",
        "−s",
        "s + v",
    ]
    assert plain(r"\mathrm{mine}(s, v)") == "mine(s, v)"


def test_the_tokens_where_a_unit_did_the_same() -> None:
    """The nearest sums of contributions among validation formulae, by the trace itself, of each formula once."""
    run, unit, token = shipped_runs()[0], 5, 4
    layer: Any = run.rnn

    def contributions(text: str) -> Tensor:
        with torch.no_grad(), mufuru.tracing(layer) as traces:
            run.reader.outputs(run.reader.steps(text))
        found: Tensor = traces[""][0].contributions(0, 0)[:, 0, :, unit]
        return found

    here = contributions(FORMULA)[token]
    answer = run.alike(Place("mufuru-8", FORMULA, unit=unit, token=token))
    texts = run.reader.corpus
    assert answer["texts"] == len(texts) == len(set(texts)) == 40
    nearest = sorted(float((contributions(text) - here).abs().sum(1).min()) for text in texts)
    shown = answer["found"]
    # told in four places
    assert [one["difference"] for one in shown] == pytest.approx(nearest[: len(shown)], abs=1e-4)
    for one in shown:
        difference = (contributions(one["text"]) - here).abs().sum(1)[one["token"]]
        assert one["difference"] == pytest.approx(float(difference), abs=1e-4)
        assert one["around"][one["at"]] == run.reader.steps(one["text"]).tokens[one["token"]]
    # never the place itself
    first = shown[0]
    again = run.alike(Place("mufuru-8", first["text"], unit=unit, token=first["token"]))["found"]
    assert (first["text"], first["token"]) not in [(one["text"], one["token"]) for one in again]
    with pytest.raises(Refused, match="token should be from 0 to 6 in this text, got 7"):
        run.alike(Place("mufuru-8", FORMULA, token=7))
    with pytest.raises(Refused, match="which has no operations"):
        untrained("logic", cell="vanilla").alike(Place("fresh", FORMULA))
