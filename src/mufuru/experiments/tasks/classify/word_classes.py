"""Words of English that turn, strengthen or contrast what a sentence says, by class.

A word is listed where that is its usual work in a review: "all", "such", "even", "ever", "simply" (not of degree),
"lack", "fail" (which name a fault rather than turn one around), "still", "except", "unless" (more often of time or
condition) are not. Contracted forms stand as the treebank splits them ("does n't") and as other texts do not
("doesn't").
"""

from __future__ import annotations

import re

NEGATION = (
    "not n't no never neither nor none nobody nothing nowhere without hardly barely scarcely rarely seldom cannot "
    "ain't aren't can't couldn't didn't doesn't don't hadn't hasn't haven't isn't mustn't shouldn't wasn't weren't "
    "won't wouldn't"
)
INTENSIFIER = (
    "very so too really truly extremely incredibly absolutely completely totally utterly thoroughly highly deeply most "
    "more much quite rather pretty fairly especially particularly remarkably surprisingly terribly awfully enormously "
    "hugely vastly greatly immensely intensely exceptionally extraordinarily unusually perfectly entirely wholly fully "
    "overly downright wildly supremely"
)
CONTRAST = (
    "but although though however yet despite while whereas nevertheless nonetheless instead notwithstanding albeit "
    "otherwise regardless"
)
BRACKETS = "-lrb- -rrb- -lsb- -rsb- -lcb- -rcb-"
"""How treebanks write brackets."""

CLASSES = ("negation", "intensifier", "contrast", "punctuation", "other")
_LISTS = {"negation": NEGATION, "intensifier": INTENSIFIER, "contrast": CONTRAST, "punctuation": BRACKETS}
_CLASS_OF = {word: name for name, words in _LISTS.items() for word in words.split()}


def word_class(word: str) -> str:
    """The class of a word in any case; what has neither letter nor digit is punctuation."""
    listed = _CLASS_OF.get(word.lower())
    return listed or ("other" if re.search(r"[^\W_]", word) else "punctuation")
