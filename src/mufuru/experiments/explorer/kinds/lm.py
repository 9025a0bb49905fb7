"""Language models: the distribution of the next word or character."""

from __future__ import annotations

import torch
from torch import Tensor

from mufuru.experiments.data.text import cut
from mufuru.experiments.explorer.kinds.reader import Prediction, Reader, Steps, ranked
from mufuru.experiments.tasks.lm.task import first_token


class TextReader(Reader):
    @property
    def takes(self) -> str:  # type: ignore[override]
        return "words" if self.config.data.level == "word" else "characters"

    def steps(self, text: str) -> Steps:
        """The text after the token that stands before every text; its last line is not at its end yet."""
        level, vocabulary = self.config.data.level, self.model.vocabulary
        words = list(cut(text.splitlines(keepends=True), level))
        words = words[:-1] if words and level == "word" and not text.endswith("\n") else words
        unknown = list(dict.fromkeys(word for word in words if word not in vocabulary))
        notes = [f"Not in the vocabulary, read as {vocabulary.unknown}: {', '.join(unknown)}."] if unknown else []
        numbers = torch.cat((torch.tensor([first_token(vocabulary)]), vocabulary.encode(words)))
        first = vocabulary.words[int(numbers[0])]
        return Steps([first, *words], numbers, notes)

    def outputs(self, steps: Steps) -> Tensor:
        outputs, _ = self.model(steps.x.unsqueeze(1))
        rows: Tensor = outputs[:, 0]
        return rows

    def predict(self, steps: Steps, outputs: Tensor) -> list[Prediction]:
        probabilities = self.model.output(outputs).softmax(1)
        came = probabilities[:-1].gather(1, steps.x[1:].unsqueeze(1)).squeeze(1).tolist()
        tops = ranked(probabilities, self.model.vocabulary.words)
        return [Prediction(top, came=p) for top, p in zip(tops, [*(round(p, 6) for p in came), None], strict=True)]
