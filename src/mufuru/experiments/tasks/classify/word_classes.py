"""Words of English that turn, strengthen or contrast what a sentence says, by class.

Contracted forms stand as the treebank splits them ("does n't") and as other texts do not ("doesn't").
"""

from __future__ import annotations

import re

NEGATION = (
    "not n't no never neither nor none nobody nothing nowhere without hardly barely scarcely rarely seldom lack lacks "
    "lacking lacked fail fails failed failing cannot ain't aren't can't couldn't didn't doesn't don't hadn't hasn't "
    "haven't isn't mustn't shouldn't wasn't weren't won't wouldn't"
)
INTENSIFIER = (
    "very so too really truly extremely incredibly absolutely completely totally utterly thoroughly highly deeply most "
    "more much quite rather pretty fairly especially particularly remarkably surprisingly terribly awfully enormously "
    "immensely intensely exceptionally extraordinarily perfectly purely simply entirely wholly all such even ever"
)
CONTRAST = (
    "but although though however yet despite while whereas still nevertheless nonetheless instead except unless "
    "notwithstanding albeit otherwise regardless"
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
