"""What the paper says: every number and claim that our results stand beside, and where it says it.

Weissenborn and Rocktäschel, "MuFuRU: The Multi-Function Recurrent Unit", 2016, arXiv 1606.03002.
"""

from __future__ import annotations

from dataclasses import dataclass

TITLE = "MuFuRU: The Multi-Function Recurrent Unit"
AUTHORS = "Weissenborn and Rocktäschel, 2016"
ADDRESS = "https://arxiv.org/abs/1606.03002"

OPERATIONS = ("keep", "replace", "max", "min", "mul", "diff", "forget")
"""Table 1."""

TOKENS = ("0", "1", "NOR", "Xq", "ABJ", "XOR", "NAND", "AND", "XNOR", "if/then", "then/if", "OR")
"""Figure 1(b): the truth values, and the gates of Graves' "Adaptive Computation Time" (arXiv 1603.08983)."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that can be put to the test."""

    name: str
    text: str
    """In the paper's words."""
    place: str


@dataclass(frozen=True)
class Number:
    """A result of the paper."""

    task: str
    model: str
    metric: str
    value: float
    place: str


LOGIC_SIZE = 8
"""The memory size of which the paper speaks (section 4.1)."""

LOGIC_CLAIMS = (
    Claim("small", "the MuFuRU learns to evaluate Boolean formulae with a memory size of only 8", "4.1, Figure 1(a)"),
    Claim("struggles", "the GRU struggles to generalize to longer sequences", "4.1, Figure 1(a)"),
    Claim(
        "emulates",
        "The GRU can emulate the operations needed to evaluate Boolean gates when provided with a much larger hidden "
        "dimension",
        "4.1, Figure 1(a)",
    ),
    Claim("gru overfits", "but it quickly starts to overfit with larger hidden dimensions", "4.1, Figure 1(a)"),
    Claim("never overfits", "the MuFuRU does not overfit even for large hidden dimensions", "4.1, Figure 1(a)"),
    Claim("sparse", "it makes sparse use of the provided operations", "4.1, Figure 1(b)"),
    Claim("or", "multiplication has the highest weight for modeling OR", "4.1, Figure 1(b)"),
)
"""The text of section 4.1 gives no accuracy in numbers."""

LOGIC_SETTING = {
    "training formulae": "1000, with 5 to 10 gates",
    "test formulae": "1000 unseen, with 11 to 20 gates",
    "epochs": "100",
    "optimiser": "Adam, β1 = 0, β2 = 0.999",
    "hyper-parameters": "the same for every cell",
}
LOGIC_OPEN = (
    "learning rate",
    "batch size",
    "how tokens become vectors",
    "first values of the weights",
    "runs per point",
)

LM_CLAIMS = (
    Claim("gru", "The GRU with a testset perplexity of 123.0", "4.2"),
    Claim("mufuru", "the MuFuRU with a perplexity of 119.7", "4.2"),
    Claim("ahead", "The GRU […] was outperformed by the MuFuRU", "4.2"),
    Claim("as good", "the MuFuRU should be at least as good at modeling sequences as the GRU", "4.2"),
)

SENTIMENT_CLAIMS = (
    Claim("gru", "GRU 87.3", "Figure 1(c)"),
    Claim("mufuru", "MuFuRU 87.6", "Figure 1(c)"),
    Claim("ahead", "The MuFuRU performs better than the GRU", "4.3"),
    Claim("near", "The MuFuRU even approaches state-of-the-art results", "4.3"),
    Claim("trees", "the differentiable operations of the MuFuRU can be integrated into other architectures", "4.3"),
)

NUMBERS = (
    Number("lm", "GRU", "test perplexity", 123.0, "4.2"),
    Number("lm", "MuFuRU", "test perplexity", 119.7, "4.2"),
    Number("sentiment", "RNTN", "test accuracy, %", 85.4, "Figure 1(c)"),
    Number("sentiment", "DCNN", "test accuracy, %", 86.8, "Figure 1(c)"),
    Number("sentiment", "CNN-MC", "test accuracy, %", 88.1, "Figure 1(c)"),
    Number("sentiment", "CT-LSTM", "test accuracy, %", 88.0, "Figure 1(c)"),
    Number("sentiment", "LSTM", "test accuracy, %", 84.9, "Figure 1(c)"),
    Number("sentiment", "GRU", "test accuracy, %", 87.3, "Figure 1(c)"),
    Number("sentiment", "MuFuRU", "test accuracy, %", 87.6, "Figure 1(c)"),
)


def numbers(task: str) -> tuple[Number, ...]:
    """The paper's results for a task."""
    return tuple(number for number in NUMBERS if number.task == task)
