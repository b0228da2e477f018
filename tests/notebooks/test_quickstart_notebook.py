"""The notebook that is shown is the one its script makes, and it runs from its first cell to its last."""

from __future__ import annotations

from pathlib import Path

import jupytext
import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"


@pytest.mark.parametrize("script", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_the_notebook_is_what_its_script_makes(script: Path) -> None:
    made = jupytext.read(script)
    shown = nbformat.read(script.with_suffix(".ipynb"), as_version=4)
    assert [(cell.cell_type, cell.source) for cell in shown.cells] == [
        (cell.cell_type, cell.source) for cell in made.cells
    ], "run `make notebooks`"


@pytest.mark.timeout(600)
def test_the_quickstart_runs_on_its_small_settings(tmp_path: Path) -> None:
    notebook = jupytext.read(FOLDER / "quickstart.py")
    for cell in notebook.cells:
        cell.source = cell.source.replace('"outputs/notebook"', repr(str(tmp_path)))
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(FOLDER)}}).execute()
    assert (tmp_path / "learning_curve.png").stat().st_size > 10_000
    text = "".join(
        str(output.get("text", "") or output.get("data", {}).get("text/plain", ""))
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    )
    assert "Your hand:" in text
    assert "after training, sampled" in text
