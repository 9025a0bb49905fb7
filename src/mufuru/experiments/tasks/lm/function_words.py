"""Function words of English: articles, pronouns, prepositions, conjunctions, auxiliaries, particles.

A closed class, so that a list can hold it. Contracted forms stand as the Penn Treebank splits them ("does n't") and as
other texts do not ("doesn't").
"""

from __future__ import annotations

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
