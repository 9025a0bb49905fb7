"""The model card, README.md on the Hub: a head for programs, then text for readers."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

PAPER = "[MuFuRU: The Multi-Function Recurrent Unit](https://arxiv.org/abs/1606.03002)"


def page(head: Mapping[str, Any], *parts: str) -> str:
    """Return a card from its head and parts; the head is YAML, of which JSON is a subset."""
    lines = (f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items())
    return "\n".join(["---", *lines, "---", "", *(f"{part.strip()}\n" for part in parts)])


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", r"\|") for cell in line) + " |" for line in lines)


def layer_card(name: str, options: Mapping[str, Any], custom: Sequence[str], parameters: int) -> str:
    """The card of a bare layer: what it is and how to get it back."""
    head = {"library_name": "mufuru", "tags": ["mufuru", "pytorch", "recurrent"]}
    rows = [(f"`{key}`", f"`{json.dumps(value)}`") for key, value in options.items()]
    return page(
        head,
        f"# {name}",
        f"A {name} layer of {parameters:,} parameters, for PyTorch: {PAPER}.",
        f"## Use\n\n{code(f'mufuru.{name}', 'import mufuru', custom)}",
        f"## Options\n\n{table(('option', 'value'), rows)}",
    )


def code(cls: str, imports: str, custom: Sequence[str]) -> str:
    """Return the code that loads a model, after the registration of custom operations."""
    registered = [
        f'mufuru.register("{name}", ...)  # the function (s, v) -> tensor it was trained with' for name in custom
    ]
    imports = imports if "import mufuru\n" in f"{imports}\n" or not custom else f"import mufuru\n{imports}"
    lines = [imports, "", *registered, f'model = {cls}.from_pretrained("this/model")  # a folder, or a name on the Hub']
    return "\n".join(["```python", *lines, "```"])
