"""Imports point one way, and the library needs nothing but torch and the standard library."""

from __future__ import annotations

import ast
import copy
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import mufuru

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"
ROOT = Path(mufuru.__file__).parent
ROAD = (
    ("mufuru.disk", "mufuru.int8", "mufuru.ops", "mufuru.tensors", "mufuru.tree_order", "mufuru.validate"),
    ("mufuru.bridge", "mufuru.saving", "mufuru.unit"),
    ("mufuru.kernels",),
    ("mufuru.noise", "mufuru.sequences"),
    ("mufuru.trace",),
    ("mufuru.plot", "mufuru.recorder", "mufuru.recurrent"),
    ("mufuru.cell", "mufuru.layer", "mufuru.prune", "mufuru.tree"),
    ("mufuru.export", "mufuru.sklearn", "mufuru.torchrl"),
    ("mufuru.experiments.draws", "mufuru.experiments.settings"),
    ("mufuru.experiments.data", "mufuru.experiments.record"),
    ("mufuru.experiments.tasks",),
    ("mufuru.experiments.report", "mufuru.experiments.explorer", "mufuru.experiments.engine"),
    ("mufuru.experiments.reproduce", "mufuru.experiments.search", "mufuru.experiments.ship"),
    ("mufuru.experiments.cli",),
    ("mufuru.__main__",),
)
"""All modules and packages from the bottom to the top: a module may import its own package and what stands below."""
OUTSIDE = {"mufuru", "mufuru.experiments"}
"""Packages whose __init__ only gathers names, or holds nothing."""
MAPS = {"mufuru": "    src/mufuru/\n", "mufuru.experiments": "    src/mufuru/experiments/\n"}
"""Packages whose modules CONTRIBUTING.md lists, and the first line of each list."""


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, ast.Module]:
    return {name_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(ROOT.rglob("*.py"))}


def only_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def import_nodes(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports anywhere in the code, inside functions too, but not those made only for the type checker."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif not only_for_types(child):
            yield from import_nodes(child)


def imported(tree: ast.Module, known: set[str]) -> set[str]:
    found: set[str] = set()
    for node in import_nodes(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            assert node.level == 0, "imports name the package, so that they can be read and checked"
            module = node.module or ""
            deeper = {f"{module}.{alias.name}" for alias in node.names} & known
            found |= deeper if len(deeper) == len(node.names) else deeper | {module}
    return found


@cache
def graph() -> dict[str, set[str]]:
    trees = modules()
    return {name: imported(tree, set(trees)) for name, tree in trees.items()}


def reached(name: str, edges: dict[str, set[str]]) -> set[str]:
    """All modules that a module imports, directly or through others."""
    seen: set[str] = set()
    open_ends = [name]
    while open_ends:
        for module in edges.get(open_ends.pop(), set()) - seen:
            seen.add(module)
            open_ends.append(module)
    return seen


def inside(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def in_library(name: str) -> bool:
    return not inside(name, ("mufuru.experiments", "mufuru.__main__"))


def test_modules_are_found() -> None:
    assert {"mufuru", "mufuru.ops", "mufuru.layer", "mufuru.kernels.reference"} <= set(graph())


def test_every_module_has_its_rung() -> None:
    rungs = [package for packages in ROAD for package in packages]
    for name in set(graph()) - OUTSIDE:
        assert [package for package in rungs if inside(name, (package,))] != [], f"{name} is on no rung of ROAD"
    gone = [package for package in rungs if not any(inside(name, (package,)) for name in graph())]
    assert not gone


def test_neighbours_do_not_import_each_other() -> None:
    """Modules on one rung stand side by side: what one needs of another belongs on a lower rung."""
    edges = graph()
    for packages in ROAD:
        for one in packages:
            others = tuple(package for package in packages if package != one)
            met = [
                (name, module)
                for name in edges
                if inside(name, (one,))
                for module in edges[name]
                if inside(module, others)
            ]
            assert not met


def mapped(package: str) -> list[str]:
    """The modules of a package that CONTRIBUTING.md lists, in its order."""
    block = CONTRIBUTING.read_text(encoding="utf-8").split(MAPS[package])[1].split("\n\n")[0]
    lines = [re.match(r" {6}((?:\w+(?:\.py|/)(?: {2}(?=\w+\.py)|))+)", line) for line in block.splitlines()]
    names = [name for line in lines if line for name in line[1].split()]
    return [f"{package}.{name.removesuffix('.py').removesuffix('/')}" for name in names]


def test_contributing_maps_every_module() -> None:
    rungs = {package for packages in ROAD for package in packages} - {"mufuru.__main__"}
    listed = [name for package in MAPS for name in mapped(package)]
    assert sorted(listed) == sorted(rungs)


def test_modules_import_what_stands_above_them_in_contributing() -> None:
    listed, edges = [name for package in MAPS for name in mapped(package)], graph()
    for place, one in enumerate(listed):
        below = tuple(listed[place + 1 :])
        wrong = [
            (name, module) for name in edges if inside(name, (one,)) for module in edges[name] if inside(module, below)
        ]
        assert not wrong


def test_imports_point_one_way() -> None:
    edges = graph()
    for height, packages in enumerate(ROAD):
        above = tuple(package for higher in ROAD[height + 1 :] for package in higher)
        for name in edges:
            if inside(name, packages):
                wrong = sorted(module for module in reached(name, edges) if inside(module, above))
                assert not wrong, f"{name} imports {wrong}, which stand above it"


def test_no_module_imports_itself_through_others() -> None:
    edges = graph()
    circles = sorted(name for name in edges if name in reached(name, edges))
    assert not circles


def at_import_time(tree: ast.Module) -> ast.Module:
    """The code that runs when a module is imported: without the bodies of functions."""

    class Outside(ast.NodeTransformer):
        def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
            return None

        visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    bare: ast.Module = Outside().visit(copy.deepcopy(tree))
    return bare


BRIDGES = {"mufuru.sklearn": {"numpy", "sklearn"}, "mufuru.torchrl": {"tensordict", "torchrl"}}
"""Modules for another library, which only their users import, and what they need of it."""
ON_A_GPU = "mufuru.kernels.triton."
"""Modules that a call on a GPU imports, where torch brings triton along."""


def test_the_library_imports_torch_and_the_standard_library_only() -> None:
    """When it is imported; a function may ask for more, and says what to install."""
    allowed = {"mufuru", "torch"} | sys.stdlib_module_names
    for name, tree in modules().items():
        if in_library(name):
            found = imported(at_import_time(tree), set())
            more = {"triton"} if name.startswith(ON_A_GPU) else BRIDGES.get(name, set())
            assert {module.split(".")[0] for module in found} <= allowed | more, name


def test_triton_is_imported_by_the_first_call_on_a_gpu() -> None:
    for name, tree in modules().items():
        if not name.startswith(ON_A_GPU):
            outside = imported(at_import_time(tree), set(modules()))
            assert not [module for module in outside if module.startswith(ON_A_GPU)], name


def test_nothing_imports_the_bridges() -> None:
    for name, edges in graph().items():
        assert not edges & set(BRIDGES), name


def test_the_command_starts_with_the_standard_library_only() -> None:
    start = ast.parse((ROOT.parent / "mufuru_command.py").read_text(encoding="utf-8"))
    assert imported(at_import_time(start), set()) <= sys.stdlib_module_names | {"collections.abc"}


def test_the_library_never_imports_the_experiments() -> None:
    for name, tree in modules().items():
        if in_library(name):
            text = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
            assert not [line for line in text if "experiments" in line], name
