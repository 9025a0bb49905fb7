"""The notebook runs from top to bottom, and what it shows was made by running it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
NOTEBOOK = Path(__file__).parents[2] / "examples" / "swap_a_gru.ipynb"
UPDATES = re.compile(r"^UPDATES = \d+", re.MULTILINE)
# of the kernel's transport, between two processes of this machine
pytestmark = pytest.mark.filterwarnings("ignore")


def read() -> Any:
    return nbformat.read(NOTEBOOK, 4)


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_it_runs(tmp_path: Path) -> None:
    notebook = read()
    first = code_cells(notebook)[0]
    assert UPDATES.search(first.source)
    first.source = UPDATES.sub("UPDATES = 20", first.source)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3
    assert not [output for output in outputs if output.get("name") == "stderr"]


def test_it_shows_a_whole_run() -> None:
    cells = code_cells(read())
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    printed = "".join(output.get("text", "") for cell in cells for output in cell.outputs)
    updates = UPDATES.search(cells[0].source)
    assert updates is not None
    # both layers were trained to the end, and solved the task
    assert printed.count(f"update {int(updates[0].split()[-1]):5}") == 2
    assert [float(rate) for rate in re.findall(r"of 20 commands: ([\d.]+)", printed)] == pytest.approx([1, 1], abs=0.01)
