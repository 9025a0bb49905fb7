"""The language-model task: a text, cut into windows, in; the probability of its every token out."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import mufuru
from mufuru.experiments.data import ptb, text, tokenise
from mufuru.experiments.data.text import Corpus, Request
from mufuru.experiments.data.vocabulary import END, UNKNOWN, Vocabulary
from mufuru.experiments.tasks.cells import detach, traced, weight_table
from mufuru.experiments.tasks.lm.config import DataConfig, LMConfig
from mufuru.experiments.tasks.lm.model import LanguageModel, first_token
from mufuru.experiments.tasks.task import KEPT, State, Step, Totals

BLOCK = 1 << 20
"""Tokens counted at a time."""
PASSAGE = {"words": 40, "word": 40, "bpe": 60, "char": 160}
"""Tokens of a passage that a run keeps for the explorer."""
LARGEST = 700.0
"""A loss whose exponential is still finite."""


class Window(NamedTuple):
    """Some steps of all columns; the next window continues where it ends."""

    inputs: Tensor
    """(steps, batch): the tokens to read."""
    targets: Tensor
    """(steps, batch): the token after each of them."""


class Windows(Sequence[Window]):
    """The windows of a stream, in order, each made on access: a stream in a token file is not read before.

    Token t of a stream is predicted from the t - 1 before it, the first one from `<eos>`, as if a line had just ended.
    Training reads `batch_size` columns side by side, each a part of the stream that begins without a state but with the
    token before it; the few tokens at the end that fill no column of the same length are left out. Evaluation reads the
    whole stream as one column: the only way in which every token is predicted once, from all preceding tokens.
    """

    def __init__(self, tokens: Tensor, first: int, batch_size: int, steps: int) -> None:
        self.length, self.steps, self.first = len(tokens) // batch_size, steps, first
        self.columns = tokens[: batch_size * self.length].view(batch_size, self.length)

    def __len__(self) -> int:
        return -(-self.length // self.steps)

    def __getitem__(self, index: Any) -> Any:
        """Return a window, or those of a slice; the last may be shorter."""
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        start = range(len(self))[index] * self.steps
        targets = self.columns[:, start : start + self.steps].long()
        if start:
            before = self.columns[:, start - 1].long()
        else:
            # the last token of the column to the left
            before = torch.cat((targets.new_tensor([self.first]), self.columns[:-1, -1].long()))
        inputs = torch.cat((before.unsqueeze(1), targets[:, :-1]), 1)
        # time first
        return Window(inputs.T.contiguous(), targets.T.contiguous())


class LMTask:
    """Text, model and metrics of one run."""

    metric = "perplexity"
    higher_is_better = False

    def __init__(self, config: LMConfig, corpus: Corpus | None = None) -> None:
        self.config = config
        self.corpus = load(config.data) if corpus is None else corpus
        batch_size = config.training.batch_size
        reason = f"one for each of the {batch_size} columns of a batch. Give more text, or a smaller --batch-size"
        self.corpus.require("train", batch_size, reason)
        first = first_token(self.corpus.vocabulary)
        self._windows = {
            "train": Windows(self.corpus.train, first, batch_size, config.bptt),
            "valid": Windows(self.corpus.valid, first, 1, config.evaluation_window),
            "test": Windows(self.corpus.test, first, 1, config.evaluation_window),
        }

    def build(self) -> LanguageModel:
        return LanguageModel(self.config, self.corpus.vocabulary, self.corpus.fingerprint)

    def batches(self, split: str, epoch: int = 0) -> Sequence[Window]:
        """Return all windows in the order of the text, the same in every epoch."""
        return self._windows[split]

    def rows(self, batch: Window) -> int:
        return batch.inputs.size(1)

    def share(self, batch: Window, rows: slice) -> Window:
        """Return some columns."""
        return Window(*(tokens[:, rows].contiguous() for tokens in batch))

    def step(self, model: nn.Module, batch: Window, state: State) -> Step:
        language_model: Any = model
        step: Step = language_model.predict(batch.inputs, batch.targets, state)
        return replace(self.counted(step, batch), state=detach(step.state))

    def counted(self, step: Step, batch: Window) -> Step:
        """Return a step with the words and bytes of its targets: not for the Penn Treebank, whose numbers compare with
        no other text's, nor for separated punctuation, which loses the positions of blanks."""
        known = self.config.data.text and self.config.data.tokens != "words"
        return replace(step, sums=self.corpus.vocabulary.spans(*batch)) if known else step

    def metrics(self, totals: Totals) -> dict[str, float]:
        """Return loss in nats per token, perplexity, for characters the bits per character, and for a user's text the
        perplexity per word and the bits per byte."""
        loss = totals.mean("loss")
        metrics = {"loss": loss, "perplexity": perplexity(loss)}
        # a run of an earlier version may resume with totals that lack them
        if "bytes" in totals.sums:
            metrics |= comparable(totals.loss, totals.sums["words"], totals.sums["bytes"])
        return metrics | ({"bits_per_character": loss / math.log(2)} if self.config.data.tokens == "char" else {})

    def examples(self) -> list[str]:
        """Return passages of the validation text, spread over it, each from the beginning of a line if there is one."""
        valid, most = self.corpus.valid, PASSAGE[self.config.data.tokens]
        apart = max(len(valid) // KEPT, most)
        passages = (valid[start : start + most].long() for start in range(0, max(1, len(valid) - most), apart))
        texts = (self.corpus.vocabulary.written(from_line(ids, self.corpus.vocabulary.line_end)) for ids in passages)
        return list(dict.fromkeys(text for text in texts if text.strip()))

    def inspect(self, model: nn.Module) -> dict[str, Any]:
        """Return MuFuRU's mean operation weights by class of the token read, over validation; {} for other cells."""
        if self.config.cell.cell != "mufuru":
            return {}
        table = operation_weights(model, self.batches("valid"), self.corpus, self.config.data.tokens)
        return {"operation_weights": table}


def from_line(ids: Tensor, line_end: int | None) -> list[int]:
    """Return ids from the first line that begins in their first half."""
    tokens: list[int] = ids.tolist()
    first = tokens.index(line_end) + 1 if line_end in tokens[: len(tokens) // 2] else 0
    return tokens[first:]


def perplexity(loss: float) -> float:
    """Perplexity of a mean loss in nats; finite even for a diverged run, as JSON knows no infinity."""
    return math.exp(min(loss, LARGEST))


def comparable(loss: float, words: float, size: float) -> dict[str, float]:
    """Return the metrics that do not depend on what a token is, of a loss in nats over a whole text.

    Ends of lines count as words, since a model of words predicts them too; a text without a word has no perplexity.
    """
    return {"perplexity_per_word": perplexity(loss / max(words, 1.0)), "bits_per_byte": loss / size / math.log(2)}


def load(data: DataConfig) -> Corpus:
    if not data.text:
        return ptb.load(data.data_dir)
    words = data.vocabulary_size, data.min_count
    request = Request(data.text, data.tokens, *words, data.valid_text, data.test_text, data.held_out)
    large = data.tokens == "bpe" or request.bytes() > tokenise.LARGE
    return tokenise.load(request) if large else text.load(request)


FUNCTION_WORDS = """
a an the
this that these those such
all another any both each either enough every few fewer less little many more most much neither no none other others
several some
i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers herself
it its itself they them their theirs themselves one ones oneself who whom whose which what whoever whatever whichever
anybody anyone anything everybody everyone everything nobody nothing somebody someone something
about above across after against along amid among amongst around as at before behind below beneath beside besides
between beyond by despite down during except for from in inside into like near of off on onto opposite out outside over
past per plus since than through throughout till to toward towards under underneath unlike until up upon versus via with
within without
and but or nor so yet although because if lest once though unless when whenever where whereas wherever whether while
am is are was were be been being do does did doing done have has had having can could may might must shall should will
would ought need dare
not there here then thus hence also too very just only even ever never again else how why 's ' n't 'm 're 've 'll 'd
ain't aren't can't cannot couldn't didn't doesn't don't hadn't hasn't haven't isn't mustn't shouldn't wasn't weren't
won't wouldn't i'm i've i'll i'd you're you've you'll you'd he's he'll he'd she's she'll she'd it's it'll we're we've
we'll we'd they're they've they'll they'd that's there's what's who's let's
"""
"""Function words of English: articles, demonstratives, quantifiers, pronouns, prepositions, conjunctions, auxiliaries,
particles and contractions. Contracted forms stand as the Penn Treebank splits them ("does n't") and as other texts do
not ("doesn't")."""
_FUNCTION_WORDS = frozenset(FUNCTION_WORDS.split())
BANDS = (10, 100, 1000, 10_000)
"""Bounds of the frequency bands: the ten most frequent words of the training text, the next ninety, and so on."""


def operation_weights(model: nn.Module, windows: Sequence[Any], corpus: Corpus, level: str) -> dict[str, Any]:
    """Return the first layer's mean operation weights by class of the token it reads, ready for JSON.

    `{"tokens": names of the classes, "groups": "kind" or "frequency", "counts": steps, "ops", "weight": [[per
    operation] per class], "entropy"}`. A token is in one class of each group; <eos> and <unk> are kinds and have no
    frequency. Classes that the text does not have are left out; entropy is that of the choice, in nats.
    """
    recorder, state = mufuru.Recorder(labels=len(corpus.vocabulary)), None
    for window in windows:
        trace, (_, state) = traced(model, window.inputs, state)
        recorder.add(trace, labels=window.inputs)
    use = recorder.use()
    rows = []
    for group, name, tokens in classes(corpus.vocabulary, frequency_ranks(corpus), level):
        steps = use.label_steps[tokens]
        if int(steps.sum()):
            weight = (use.label_weight[tokens].nan_to_num() * steps.unsqueeze(1)).sum(0) / steps.sum()
            rows.append((name, group, steps.sum(), weight))
    names, groups, counts, weights = (list(column) for column in zip(*rows, strict=True))
    return {"tokens": names, "groups": groups} | weight_table(
        names, counts, use.op_names, weights, float(use.entropy.sum(0).mean())
    )


def frequency_ranks(corpus: Corpus) -> Tensor:
    """Return (vocabulary,): 0 for the most frequent word of the training text; special words are not counted."""
    counts = torch.zeros(len(corpus.vocabulary), dtype=torch.int64)
    for block in corpus.train.split(BLOCK):
        counts += torch.bincount(block.long(), minlength=len(counts))
    counts[special(corpus.vocabulary)] = -1
    ranks = torch.empty_like(counts)
    ranks[counts.argsort(descending=True, stable=True)] = torch.arange(len(counts))
    return ranks


def special(vocabulary: Vocabulary) -> list[int]:
    """Return the ids of <eos> and <unk>, where there are any."""
    return [*vocabulary.encode([word for word in (END, UNKNOWN) if word in vocabulary]).tolist()]


def classes(vocabulary: Vocabulary, ranks: Tensor, level: str) -> Iterator[tuple[str, str, Tensor]]:
    """Yield group, name and token ids of every class."""
    kind_of: Callable[[str], str] = KINDS_OF[level]
    marks = {vocabulary.words[number] for number in special(vocabulary)}
    kinds = [word if word in marks else kind_of(word) for word in vocabulary.labels]
    for kind in sorted(set(kinds), key=lambda kind: (kind in marks, kind)):
        yield "kind", kind, torch.tensor([index for index, other in enumerate(kinds) if other == kind])
    last = len(vocabulary) - len(marks)
    for low, high in zip((0, *BANDS), (*BANDS, last), strict=True):
        if low < min(high, last):
            name = f"rank {low + 1:,} to {min(high, last):,}"
            yield "frequency", name, ((ranks >= low) & (ranks < min(high, last))).nonzero().flatten()


def kind_of_word(word: str) -> str:
    """Return the class of a word; the Penn Treebank writes N for any number."""
    if word.lower() in _FUNCTION_WORDS:
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


def kind_of_part(part: str) -> str:
    """Return the class of a part of a word; one that begins a word has the blank before it."""
    if any(character.isalpha() for character in part):
        return "beginnings of words" if part[0].isspace() else "parts of words"
    return kind_of_character(part.strip() or part)


KINDS_OF: dict[str, Callable[[str], str]] = {
    "words": kind_of_word,
    "word": kind_of_word,
    "char": kind_of_character,
    "bpe": kind_of_part,
}
"""The classes of tokens at each level."""
