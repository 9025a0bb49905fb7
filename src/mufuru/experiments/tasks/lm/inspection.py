"""The operations of a MuFuRU at each class of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import mufuru
from mufuru.experiments.data.text import Corpus
from mufuru.experiments.data.vocabulary import Vocabulary

GROUPS = {
    "articles": "a an the",
    "demonstratives": "this that these those such",
    "quantifiers": (
        "all another any both each either enough every few fewer less little many more most much neither no none "
        "other others several some"
    ),
    "pronouns": (
        "i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her "
        "hers herself it its itself they them their theirs themselves one ones oneself who whom whose which what "
        "whoever whatever whichever anybody anyone anything everybody everyone everything nobody nothing somebody "
        "someone something"
    ),
    "prepositions": (
        "about above across after against along amid among amongst around as at before behind below beneath beside "
        "besides between beyond by despite down during except for from in inside into like near of off on onto "
        "opposite out outside over past per plus since than through throughout till to toward towards under "
        "underneath unlike until up upon versus via with within without"
    ),
    "conjunctions": (
        "and but or nor so yet although because if lest once though unless when whenever where whereas wherever "
        "whether while"
    ),
    "auxiliaries": (
        "am is are was were be been being do does did doing done have has had having can could may might must shall "
        "should will would ought need dare"
    ),
    "particles": (
        "not there here then thus hence also too very just only even ever never again else how why 's ' n't 'm 're "
        "'ve 'll 'd"
    ),
    "contractions": (
        "ain't aren't can't cannot couldn't didn't doesn't don't hadn't hasn't haven't isn't mustn't shouldn't "
        "wasn't weren't won't wouldn't i'm i've i'll i'd you're you've you'll you'd he's he'll he'd she's she'll "
        "she'd it's it'll we're we've we'll we'd they're they've they'll they'd that's there's what's who's let's"
    ),
}
FUNCTION_WORDS = frozenset(word for words in GROUPS.values() for word in words.split())
"""Function words of English, a closed class. Contracted forms stand as the Penn Treebank splits them ("does n't") and
as other texts do not ("doesn't")."""
BANDS = (10, 100, 1000, 10_000)
"""Bounds of the frequency bands: the ten most frequent words of the training text, the next ninety, and so on."""


def operation_weights(model: nn.Module, windows: Sequence[Any], corpus: Corpus, level: str) -> dict[str, Any]:
    """The first layer's mean operation weights by class of the token it reads, ready for JSON.

    `{"tokens": names of the classes, "groups": "kind" or "frequency", "counts": steps, "ops", "weight": [[per
    operation] per class], "entropy"}`. A token is in one class of each group; <eos> and <unk> are kinds and have no
    frequency. Classes that the text does not have are left out; entropy is that of the choice, in nats.
    """
    use = record(model, windows, len(corpus.vocabulary))
    ranks = frequency_ranks(corpus)
    rows = []
    for group, name, tokens in classes(corpus.vocabulary, ranks, level):
        steps = use.label_steps[tokens]
        if int(steps.sum()):
            weight = (use.label_weight[tokens].nan_to_num() * steps.unsqueeze(1)).sum(0) / steps.sum()
            rows.append((name, group, int(steps.sum()), [round(value, 6) for value in weight.tolist()]))
    names, groups, counts, weights = (list(column) for column in zip(*rows, strict=True))
    entropy = round(float(use.entropy.sum(0).mean()), 6)
    return {
        "tokens": names, "groups": groups, "counts": counts, "ops": list(use.op_names), "weight": weights,
        "entropy": entropy,
    }  # fmt: skip


@torch.no_grad()
def record(model: nn.Module, windows: Sequence[Any], vocabulary: int) -> Any:
    """The mean operation weights at each token of the vocabulary."""
    recorder, state = mufuru.Recorder(labels=vocabulary), None
    for window in windows:
        with mufuru.tracing(model) as traces:
            _, state = model(window.inputs, state)
        (layer,) = traces.values()
        recorder.add(layer[0], labels=window.inputs)
    return recorder.use()


def frequency_ranks(corpus: Corpus) -> Tensor:
    """(vocabulary,): 0 for the most frequent word of the training text; the special words are not counted."""
    counts = torch.bincount(corpus.train, minlength=len(corpus.vocabulary))
    counts[special(corpus.vocabulary)] = -1
    ranks = torch.empty_like(counts)
    ranks[counts.argsort(descending=True, stable=True)] = torch.arange(len(counts))
    return ranks


def special(vocabulary: Vocabulary) -> list[int]:
    """The ids of <eos> and <unk>."""
    return [index for index in (vocabulary.end, vocabulary.unknown_index) if index is not None]


def classes(vocabulary: Vocabulary, ranks: Tensor, level: str) -> Iterator[tuple[str, str, Tensor]]:
    """Group, name and token ids of every class."""
    kind_of: Callable[[str], str] = kind_of_character if level == "char" else kind_of_word
    marks = {vocabulary.words[number] for number in special(vocabulary)}
    kinds = [word if word in marks else kind_of(word) for word in vocabulary.words]
    for kind in sorted(set(kinds), key=lambda kind: (kind in marks, kind)):
        yield "kind", kind, torch.tensor([index for index, other in enumerate(kinds) if other == kind])
    last = len(vocabulary) - len(marks)
    for low, high in zip((0, *BANDS), (*BANDS, last), strict=True):
        if low < min(high, last):
            name = f"rank {low + 1:,} to {min(high, last):,}"
            yield "frequency", name, ((ranks >= low) & (ranks < min(high, last))).nonzero().flatten()


def kind_of_word(word: str) -> str:
    """The Penn Treebank writes N for any number."""
    if word.lower() in FUNCTION_WORDS:
        return "function words"
    if word == "N" or any(letter.isdigit() for letter in word):
        return "numbers"
    return "content words" if any(letter.isalpha() for letter in word) else "punctuation"


def kind_of_character(character: str) -> str:
    if character.isspace():
        return "blanks"
    if character.isalpha():
        return "letters"
    return "digits" if character.isdigit() else "punctuation"
