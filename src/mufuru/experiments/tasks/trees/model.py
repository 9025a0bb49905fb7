"""The model of trees and its settings: words embedded, a unit that composes them up the tree, a linear classifier at
every node."""

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

import mufuru
from mufuru import Levels
from mufuru.experiments.settings import Training, check_positive
from mufuru.experiments.tasks.cells import CellOptions
from mufuru.experiments.tasks.models import Metadata, TaskModel, Tensors
from mufuru.experiments.tasks.words import Meaning, WordsConfig, class_logits, embedding
from mufuru.tree_order import bottom_up

GRU = ("keep", "replace")
"""The operations that make a GRU."""
TreeCellName = Literal["mufuru", "gru", "lstm"]


@dataclass(frozen=True)
class TreeCellConfig(CellOptions):
    """The unit that composes two phrases."""

    options: ClassVar = {
        "mufuru": ("ops", "reset_bias", "keep_bias"),
        "gru": ("reset_bias", "keep_bias"),
        "lstm": ("keep_bias",),
    }
    cell: TreeCellName = "mufuru"
    """mufuru (TreeMuFuRU), gru (TreeMuFuRU with keep and replace alone) or lstm (the constituency Tree-LSTM)."""
    hidden_size: int = 100
    """Units of a node."""
    ops: tuple[str, ...] = mufuru.PAPER
    """Operations to choose from, for each child (mufuru only)."""
    reset_bias: float | None = None
    """Initial bias of the gates of both children (mufuru, gru); None for the default, 1."""
    keep_bias: float | None = None
    """Initial bias of what keeps a child's state: keep's logits in mufuru and gru, the forget gates in lstm; None for
    the default: 2 in mufuru and gru, random as its other biases in lstm."""

    def __post_init__(self) -> None:
        check_positive(self, "hidden_size")
        self.check_options()


@dataclass(frozen=True)
class TreebankConfig:
    """The parse trees: the Stanford Sentiment Treebank, or your own treebank in its format. Paths are kept as given."""

    treebank: str | None = None
    """Folder with your own train.txt, dev.txt and test.txt, in each line a tree of two parts a phrase; None for the
    Sentiment Treebank."""
    classes: Literal[2, 5] = 2
    """2, negative and positive, where neutral phrases are read but not learned from, or all 5."""
    data_dir: str | None = None
    """Folder with the Sentiment Treebank, as its zip or its train.txt, dev.txt and test.txt, and with named
    word vectors; None to download them once."""


@dataclass(frozen=True)
class TreesConfig(WordsConfig):
    """Classify every phrase of a sentence by its parse tree; tested on whole sentences."""

    cell: TreeCellConfig = field(default_factory=TreeCellConfig)
    training: Training = field(default_factory=lambda: Training(batch_size=25))
    data: TreebankConfig = field(default_factory=TreebankConfig)


PRESETS: dict[str, TreesConfig] = {
    # The paper has no trees. Units, minibatches, dropout and decay are those of Tai et al. (2015) for the Tree-LSTM.
    # They have vectors of 300 features, tuned at a rate of their own, and Adagrad at 0.05 with L2; here all is learned
    # by the paper's Adam, with decoupled decay of the weights. For TreeMuFuRU and Tree-LSTM alike this rate, held
    # constant, was the best of three tries on the development set.
    "paper": TreesConfig(
        TreeCellConfig(hidden_size=150),
        Training(epochs=10, batch_size=25, learning_rate=1e-3, beta1=0.0, weight_decay=1e-4, evaluate_every=200),
        vectors="glove.6B",
        embedding_dropout=0.5,
        output_dropout=0.5,
    ),
    "short": TreesConfig(
        TreeCellConfig(hidden_size=50),
        Training(epochs=2, batch_size=25, learning_rate=3e-3, beta1=0.0, schedule="cosine"),
        vectors="glove.6B",
        embedding_size=50,
        embedding_dropout=0.3,
        output_dropout=0.3,
    ),
}


class TreeClassifier(TaskModel):
    """Classifier of phrases: two classes have one logit, the second's: a logistic regression. More have one each."""

    settings, metadata = TreesConfig, Meaning

    def __init__(self, config: TreesConfig, meaning: Meaning, fingerprint: str = "") -> None:
        super().__init__()
        if meaning.vocabulary is None:
            raise ValueError("a tree has words, and the meaning of the model's numbers has no vocabulary")
        self.config, self.meaning, self.vocabulary = config, meaning, meaning.vocabulary
        self.carried = Metadata(meaning.to_json(), fingerprint)
        self.embedding = embedding(len(meaning.vocabulary), config)
        self.embedding_dropout = nn.Dropout(config.embedding_dropout)
        self.unit = unit(config.cell, config.embedding_size)
        self.output_dropout = nn.Dropout(config.output_dropout)
        classes = len(meaning.labels)
        self.output = nn.Linear(config.cell.hidden_size, 1 if classes == 2 else classes)

    def forward(self, words: Tensor, levels: Levels) -> Tensor:
        """Return (nodes, classes): the logits of every phrase."""
        states = self.unit(self.embed(words), levels)
        return class_logits(self.output(self.output_dropout(states)))

    def embed(self, words: Tensor) -> Tensor:
        """Return (leaves, features): the unit's input."""
        embedded: Tensor = self.embedding_dropout(self.embedding(words))
        return embedded

    def example(self, batch: int, steps: int, seed: int) -> Tensors:
        """Return words, and the children of trees that branch to the left, each with `steps` leaves."""
        words = torch.randint(len(self.vocabulary), (batch * steps,), generator=torch.Generator().manual_seed(seed))
        children: list[tuple[int, int]] = []
        for tree in range(batch):
            left = tree * steps
            for right in range(left + 1, left + steps):
                children.append((left, right))
                left = batch * steps + len(children) - 1
        return words, torch.tensor(children, dtype=torch.int64).view(-1, 2)

    @torch.no_grad()
    def answers(self, *arguments: Tensor) -> Tensors:
        words, children = arguments
        return (self(words, Levels.of(children, len(words))),)


def unit(config: TreeCellConfig, input_size: int) -> nn.Module:
    if config.cell == "lstm":
        return TreeLSTM(input_size, config.hidden_size, config.keep_bias)
    biases: dict[str, Any] = {} if config.reset_bias is None else {"reset_bias": config.reset_bias}
    biases |= {} if config.keep_bias is None else {"op_bias": {"keep": config.keep_bias}}
    ops = GRU if config.cell == "gru" else config.ops
    return mufuru.TreeMuFuRU(input_size, config.hidden_size, ops=ops, **biases)


class TreeLSTM(nn.Module):
    r"""The constituency Tree-LSTM of Tai, Socher and Manning (2015), their equations 9 to 14 for two children: a leaf
    has an input and no children, all others no input.

    $$i = \sigma(W_i x + U_i [h_l; h_r] + b_i), \quad f_k = \sigma(W_f x + U_{f_k} [h_l; h_r] + b_f)$$
    $$o = \sigma(W_o x + U_o [h_l; h_r] + b_o), \quad u = \tanh(W_u x + U_u [h_l; h_r] + b_u)$$
    $$c = i \odot u + f_l \odot c_l + f_r \odot c_r, \quad h = o \odot \tanh(c)$$

    A leaf has nothing to forget, so that $W_f$ would never be used and is left out. Rows of `weight_leaf` are i, o, u;
    of `weight` i, o, u, f of the left child, f of the right one; of `bias` i, o, u, f, as both forget gates share it.
    """

    def __init__(self, input_size: int, hidden_size: int, forget_bias: float | None = None) -> None:
        super().__init__()
        self.input_size, self.hidden_size = input_size, hidden_size
        self.weight_leaf = nn.Parameter(torch.empty(3 * hidden_size, input_size))
        self.weight = nn.Parameter(torch.empty(5 * hidden_size, 2 * hidden_size))
        self.bias = nn.Parameter(torch.empty(4 * hidden_size))
        bound = 1.0 / math.sqrt(hidden_size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)
        if forget_bias is not None:
            nn.init.constant_(self.bias.data[3 * hidden_size :], forget_bias)

    def forward(self, input: Tensor, levels: Levels) -> Tensor:
        """Return (nodes, hidden): h of every node."""
        return bottom_up(self._leaf(input), levels, self._compose)[:, : self.hidden_size]

    def _leaf(self, input: Tensor) -> Tensor:
        i, o, u = linear(input, self.weight_leaf, self.bias[: 3 * self.hidden_size]).chunk(3, 1)
        return _state(o, torch.sigmoid(i) * torch.tanh(u))

    def _compose(self, pairs: Tensor) -> Tensor:
        """Compose (nodes, 2, h and c side by side)."""
        h, c = pairs.chunk(2, 2)
        bias = torch.cat((self.bias, self.bias[3 * self.hidden_size :]))
        i, o, u, *f = linear(h.flatten(1), self.weight, bias).chunk(5, 1)
        return _state(o, torch.sigmoid(i) * torch.tanh(u) + (torch.sigmoid(torch.stack(f, 1)) * c).sum(1))


def _state(o: Tensor, c: Tensor) -> Tensor:
    return torch.cat((torch.sigmoid(o) * torch.tanh(c), c), 1)
