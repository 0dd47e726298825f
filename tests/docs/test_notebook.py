"""docs/notebook.ipynb: its cells run, and it was committed as it ran."""

import json

import matplotlib
import pytest

from tests.support.paths import ROOT

NOTEBOOK = json.loads((ROOT / "docs/notebook.ipynb").read_text(encoding="utf-8"))
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def test_its_cells_run(capsys):
    pytest.importorskip("pandas")
    matplotlib.use("agg")
    from matplotlib import pyplot

    names: dict[str, object] = {}
    try:
        for k, cell in enumerate(CODE):
            exec(compile("".join(cell["source"]), f"cell {k}", "exec"), names)
    finally:
        pyplot.close("all")
    assert names["result"].privacy.upheld is True
    assert names["plain"].quality.verdict == "solved"
    shown = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in shown] == ["without noise", "epsilon 2"]


def test_it_was_committed_executed_in_order_and_without_errors():
    """If this fails: `make notebook`."""
    assert [cell["execution_count"] for cell in CODE] == list(range(1, len(CODE) + 1))
    kinds = [output["output_type"] for cell in CODE for output in cell["outputs"]]
    assert "error" not in kinds
    shown = [kind for cell in CODE for output in cell["outputs"] for kind in output.get("data", {})]
    assert shown.count("image/png") == 2  # the history as a plot
    assert "text/html" in shown
