"""Models of `mufuru train` on a user's data beside common baselines: classify, regress, tag and forecast.

    pip install -c constraints.txt '.[own-data]'
    python benchmarks/own_data.py                      twenty minutes on one core
    python benchmarks/own_data.py --only sunspots      one data set anew, the rest of the record stays
    python benchmarks/own_data.py --quick              seconds, to see that it runs; writes no record

Data comes with packages that install by name (aeon, scikit-learn, statsmodels), or is Python's own standard library.
It is written as a user's files, or comes as such, and is read from there. Settings are presets with 32 units, the same
for both cells. Weights are selected on validation data. Baselines, which select nothing, learn from training and
validation data together.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import importlib.util
import io
import json
import statistics
import sysconfig
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from cost_tables import table
from record import machine

from mufuru.experiments.data import ts
from mufuru.experiments.draws import permutation
from mufuru.experiments.engine import fit
from mufuru.experiments.tasks import KINDS

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("asyncio", "email", "importlib", "multiprocessing", "unittest")
"""Packages of the standard library: their documentation is text by label, their lines are sentences of tokens."""
CELLS = ("mufuru", "gru")
FEW: dict[str, Any] = {"updates": 500}
"""Half of the presets' updates or less: a benchmark of minutes."""
NOTE = (
    "Data sets, settings and seeds were committed before these runs. By then, test results of one seed (0) with the "
    "same settings were known for eight of the sets: all but BasicMotions, JapaneseVowels, Airline and Lynx. Once, "
    "before any of these runs, settings of forecasts were changed after a look at a result on the test part of "
    "sunspots; nothing else was chosen by test data."
)


class Case(NamedTuple):
    """A data set as files, and what it is measured by."""

    task: str
    metrics: tuple[str, ...]
    settings: dict[str, Any]
    """Settings of the data beside the preset's."""
    baselines: Callable[[], dict[str, float]]
    """The first metric of others; forecasts bring their own."""
    size: str
    changes: dict[str, Any]
    """Other settings, as `replace` takes them; those of training by name."""
    series: bool = False
    """Take the classifier's preset for series."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=CASES, action="append", help="data sets to measure; all if left out")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each cell")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    made = machine(datetime.date.today().isoformat())
    rows: dict[str, Any] = {}
    for name in chosen.only or CASES:
        with tempfile.TemporaryDirectory() as folder:
            rows[name] = measure(CASES[name](Path(folder)), Path(folder), chosen.seeds, chosen.quick)
        print(name, json.dumps(rows[name]), flush=True)
        if not chosen.quick:
            keep(name, rows[name] | {"machine": made})
    print(tables({"note": NOTE, "rows": rows}))


def keep(name: str, row: dict[str, Any]) -> None:
    """Put a row into the record, and write the table of all."""
    path = RESULTS / "own_data.json"
    known = json.loads(path.read_text())["rows"] if path.exists() else {}
    known[name] = row
    record = {"note": NOTE, "rows": {case: known[case] for case in CASES if case in known}}
    path.write_text(json.dumps(record, indent=1) + "\n")
    (RESULTS / "own_data.md").write_text(tables(record))


def measure(case: Case, folder: Path, seeds: int, quick: bool) -> dict[str, Any]:
    """Return the test metrics of both cells, by seed, and those of the baselines."""
    kind = KINDS[case.task]
    preset = kind.presets["series" if case.series else "short"]
    models: dict[str, dict[str, list[float]]] = {metric: {cell: [] for cell in CELLS} for metric in case.metrics}
    baselines = {case.metrics[0]: case.baselines()}
    for cell in CELLS:
        for seed in range(1 if quick else seeds):
            changes = {name: value for name, value in case.changes.items() if not hasattr(preset.training, name)}
            training = {name: value for name, value in case.changes.items() if name not in changes}
            config = replace(
                preset,
                cell=replace(preset.cell, hidden_size=32).for_cell(cell),
                training=replace(preset.training, **training | ({"epochs": 1, "updates": 10} if quick else {})),
                data=replace(preset.data, **case.settings),
                seed=seed,
                **changes,
            )
            result = fit(case.task, config, folder / f"{cell}-{seed}")["test"]
            for metric in case.metrics:
                models[metric][cell].append(result[metric])
                if (naive := f"naive_{metric}") in result:
                    baselines[metric] = {"seasonal-naive": result[naive]}
    return {"task": case.task, "size": case.size, "models": models, "baselines": baselines}


def packaged(package: str, *path: str) -> Path:
    """Return a file that comes with a package, which is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{package} is not installed: pip install -c constraints.txt '.[own-data]'")
    return Path(spec.submodule_search_locations[0]).joinpath(*path)


def archived(name: str) -> tuple[dict[str, Any], list[Any], str]:
    """Return the settings that name the files of a set that comes with aeon; its series, padded and flat, and labels;
    and its size."""
    files = [packaged("aeon", "datasets", "data", name, f"{name}_{part}.ts") for part in ("TRAIN", "TEST")]
    parts = [ts.read(file).rows for file in files]
    longest = max(len(values) for rows in parts for _, _, values in rows)
    arrays: list[Any] = []
    for rows in parts:
        padded = [np.pad(values, ((0, longest - len(values)), (0, 0))).ravel() for _, _, values in rows]
        arrays += [np.stack(padded), [label for _, label, _ in rows]]
    settings = {"data": str(files[0]), "test_data": str(files[1]), "held_out": (0.2, 0.1)}
    return settings, arrays, f"{len(parts[0])} + {len(parts[1])} series"


def series_case(name: str) -> Callable[[Path], Case]:
    def made(folder: Path) -> Case:
        settings, (x, y, test_x, test_y), size = archived(name)
        return Case("classify", ("accuracy",), settings, lambda: peers(x, y, test_x, test_y), size, FEW, series=True)

    return made


def peers(x: Any, y: Any, test_x: Any, test_y: Any) -> dict[str, float]:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.neighbors import KNeighborsClassifier

    known = {"1-NN": KNeighborsClassifier(1), "random forest": RandomForestClassifier(500, random_state=0)}
    return {name: float(peer.fit(x, y).score(test_x, test_y)) for name, peer in known.items()}


def targets_case(name: str) -> Callable[[Path], Case]:
    def made(folder: Path) -> Case:
        from sklearn.dummy import DummyRegressor
        from sklearn.ensemble import RandomForestRegressor
        from sklearn.metrics import root_mean_squared_error
        from sklearn.neighbors import KNeighborsRegressor

        settings, (x, y, test_x, test_y), size = archived(name)

        def baselines() -> dict[str, float]:
            known = {"mean": DummyRegressor(), "1-NN": KNeighborsRegressor(1)}
            known["random forest"] = RandomForestRegressor(500, random_state=0)
            wanted = np.array(test_y, float)
            return {name: float(root_mean_squared_error(wanted, peer.fit(x, np.array(y, float)).predict(test_x)))
                    for name, peer in known.items()}  # fmt: skip

        return Case("regress", ("rmse",), settings, baselines, size, FEW)

    return made


def digits(folder: Path) -> Case:
    """Scanned digits, row by row: 8 steps of 8 channels."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    test = np.zeros(len(labels), bool)
    test[permutation(len(labels), "own data", "digits")[:400].numpy()] = True
    for part, rows in (("train", ~test), ("test", test)):
        lines = (json.dumps({"values": row.reshape(8, 8).tolist(), "label": str(label)})
                 for row, label in zip(images[rows], labels[rows], strict=True))  # fmt: skip
        (folder / f"{part}.jsonl").write_text("\n".join(lines) + "\n")

    def baselines() -> dict[str, float]:
        return peers(images[~test], labels[~test], images[test], labels[test])

    files = {"data": str(folder / "train.jsonl"), "test_data": str(folder / "test.jsonl")}
    size = f"{(~test).sum()} + {test.sum()} images"
    return Case("classify", ("accuracy",), files, baselines, size, FEW, series=True)


def sources() -> Iterator[tuple[str, str]]:
    """Yield package and text of files of the standard library."""
    for package in PACKAGES:
        for path in sorted((Path(sysconfig.get_path("stdlib")) / package).glob("*.py")):
            yield package, path.read_text(encoding="utf-8")


def documentation(folder: Path) -> Case:
    """Docstrings: which package is this written in?"""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    rows = dict.fromkeys((" ".join(text.split()[:60]), package) for package, source in sources()
                         for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)
                         if (text := ast.get_docstring(node)))  # fmt: skip
    texts, labels = zip(*rows, strict=True)
    order = permutation(len(texts), "own data", "docstrings").tolist()
    cut = len(order) * 4 // 5
    parts = {part: [(texts[row], labels[row]) for row in some]
             for part, some in (("train", order[:cut]), ("test", order[cut:]))}  # fmt: skip
    for part, some in parts.items():
        lines = (json.dumps({"text": text, "label": label}) for text, label in some)
        (folder / f"{part}.jsonl").write_text("\n".join(lines) + "\n")

    def baselines() -> dict[str, float]:
        (x, y), (test_x, test_y) = (zip(*parts[part], strict=True) for part in ("train", "test"))
        peer = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression(C=10, max_iter=1000))
        return {"TF-IDF + logistic regression": float(peer.fit(x, y).score(test_x, test_y))}

    files = {"data": str(folder / "train.jsonl"), "test_data": str(folder / "test.jsonl")}
    size = f"{len(parts['train'])} + {len(parts['test'])} texts"
    return Case("classify", ("accuracy",), files, baselines, size, {})


def calls(source: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the tokens of each line of code, and their labels: B-CALL and I-CALL for the dotted name that is called,
    B-DEF for the name that is defined."""
    names: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER):
            names.append(token.string)
        elif token.type == tokenize.NEWLINE and names:
            yield names, labelled(names)
            names = []


def labelled(names: list[str]) -> list[str]:
    labels = ["O"] * len(names)
    for place, name in enumerate(names):
        if name != "(" or not place or not names[place - 1].isidentifier():
            continue
        start = place - 1
        while start >= 2 and names[start - 1] == "." and names[start - 2].isidentifier():
            start -= 2
        if start and names[start - 1] in ("def", "class"):
            labels[start] = "B-DEF"
        elif names[place - 1] not in KEYWORDS:
            labels[start:place] = ["B-CALL", *["I-CALL"] * (place - 1 - start)]
    return labels


KEYWORDS = (
    "if",
    "elif",
    "while",
    "for",
    "in",
    "not",
    "and",
    "or",
    "return",
    "assert",
    "yield",
    "except",
    "is",
    "lambda",
)


def lines_of_code(folder: Path) -> Case:
    """Lines of Python: which names are called or defined? Test lines are of other files."""
    from seqeval.metrics import f1_score

    files = [source for _, source in sources()]
    order = permutation(len(files), "own data", "calls").tolist()
    cut = len(order) * 4 // 5
    parts = {part: [line for row in some for line in calls(files[row])][:most]
             for part, some, most in (("train", order[:cut], 1500), ("test", order[cut:], 500))}  # fmt: skip
    for part, some in parts.items():
        rows = ("\n".join(f"{name}\t{label}" for name, label in zip(*line, strict=True)) for line in some)
        (folder / f"{part}.conll").write_text("\n\n".join(rows) + "\n")

    def baselines() -> dict[str, float]:
        seen: dict[str, Counter[str]] = defaultdict(Counter)
        for names, labels in parts["train"]:
            for name, label in zip(names, labels, strict=True):
                seen[name][label] += 1
        usual = {name: counts.most_common(1)[0][0] for name, counts in seen.items()}
        found = [[usual.get(name, "O") for name in names] for names, _ in parts["test"]]
        return {"usual label of each word": float(f1_score([labels for _, labels in parts["test"]], found))}

    named = {"data": str(folder / "train.conll"), "test_data": str(folder / "test.conll")}
    size = f"{len(parts['train'])} + {len(parts['test'])} lines"
    return Case("tag", ("span_f1",), named, baselines, size, FEW)


def forecast_case(make: Callable[[Path], Path], **changes: Any) -> Callable[[Path], Case]:
    def made(folder: Path) -> Case:
        file = make(folder)
        settings = {"data": str(file), "held_out": (0.15, 0.15)}
        size = f"{len(file.read_text().splitlines()) - 1} values"
        return Case("forecast", ("mase", "smape"), settings, dict, size, changes | FEW)

    return made


def statistics_file(name: str) -> Callable[[Path], Path]:
    """Return a function that writes a data set of statsmodels as a table."""

    def made(folder: Path) -> Path:
        import statsmodels.datasets as known

        data = getattr(known, name).load_pandas().data
        if name == "co2":
            # weekly with gaps: means of months, as its documentation advises
            data = data["co2"].resample("MS").mean().interpolate().reset_index()
        data.to_csv(folder / "series.csv", index=False)
        return folder / "series.csv"

    return made


CASES: dict[str, Callable[[Path], Case]] = {
    "docstrings": documentation,
    "digits": digits,
    "GunPoint": series_case("GunPoint"),
    "ItalyPowerDemand": series_case("ItalyPowerDemand"),
    "BasicMotions": series_case("BasicMotions"),
    "JapaneseVowels": series_case("JapaneseVowels"),
    "Covid3Month": targets_case("Covid3Month"),
    "lines of code": lines_of_code,
    "sunspots": forecast_case(statistics_file("sunspots"), horizon=5, season=11),
    "co2": forecast_case(statistics_file("co2"), horizon=12, season=12),
    "Airline": forecast_case(
        lambda _: packaged("aeon", "datasets", "data", "Airline", "Airline.csv"), horizon=12, season=12
    ),
    "Lynx": forecast_case(lambda _: packaged("aeon", "datasets", "data", "Lynx", "Lynx.csv"), horizon=5, season=10),
}


def tables(record: dict[str, Any]) -> str:
    """Return the table of a record, and its note."""
    rows = [("data", "task", "training + test", "test metric", "MuFuRU", "GRU", "baselines")]
    for name, row in record["rows"].items():
        for metric, cells in row["models"].items():
            peers = row["baselines"].get(metric, {})
            beside = "; ".join(f"{peer} {value:.4g}" for peer, value in peers.items())
            rows.append((name, row["task"], row["size"], metric, *(spread(cells[cell]) for cell in CELLS), beside))
    return f"{table(*rows)}\nMean and standard deviation over seeds, their number in parentheses. {record['note']}\n"


def spread(values: list[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.2g}" if len(values) > 1 else ""
    return f"**{statistics.fmean(values):.4g}**{deviation} ({len(values)})"


if __name__ == "__main__":
    main()
