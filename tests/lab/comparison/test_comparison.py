"""Medians over seeds, and the pages and tables that show them."""

import numpy as np
import pytest

from hushgrid.broker.simulation import run
from hushgrid.lab.comparison.medians import median
from hushgrid.lab.comparison.page import of_sweep
from hushgrid.lab.comparison.runs import Compared
from hushgrid.lab.comparison.words import summary
from hushgrid.lab.sweep.sweeps import sweep
from tests.support.scenarios.swept import SWEPT

pytest.importorskip("pandas")
pytest.importorskip("distributed")
pytest.importorskip("pyarrow")

PURE = {"adjacency": {"replace-one-record": {"clip": 1.0}}, "epsilon": 5.0}


@pytest.mark.runs
@pytest.mark.parametrize("n", [5, 20])
def test_the_error_of_a_median_is_that_of_its_bootstrap(n):
    rng = np.random.default_rng(n)
    values = rng.lognormal(size=n)
    drawn = np.median(rng.choice(values, size=(200_000, n)), axis=1)
    # Of an even number the bootstrap takes the mean of two order statistics; the weights are those of one between them.
    assert median(values).error == pytest.approx(drawn.std(), rel=0.01 if n % 2 else 0.1)


def test_a_median_leaves_out_what_is_not_finite_and_has_no_error_of_one_value():
    found = median(np.array([3.0, np.nan, 1.0, np.inf, 2.0]))
    assert (found.n, found.value, found.low, found.high) == (3, 2.0, 1.5, 2.5)
    assert (median(np.array([4.0])).value, np.isnan(median(np.array([4.0])).error)) == (4.0, True)
    assert median(np.array([])).n == 0


@pytest.fixture(scope="module")
def both():
    """Pure and approximate at the same number."""
    return sweep(SWEPT, {"privacy": [SWEPT["privacy"], PURE], "algorithm.rounds": [2, 5]}, seeds=3)


@pytest.mark.runs
def test_pure_and_approximate_epsilons_have_their_own_columns_and_are_no_rivals(both):
    page, words = of_sweep(both, SWEPT), summary(both, None)
    assert page.count('<th scope="col">ε, pure</th>') == page.count('<th scope="col">ε, with δ</th>') == 1
    assert "They are not the same promise" in page
    rivals = page.split("Under the same noise")[1].split("</table>")[0]
    assert ">ε 5, pure<" in rivals
    assert ">ε 5, δ 1e-05<" in rivals
    assert rivals.count("the least median") == 2
    assert "ε is" in words
    assert words.count("pure") == words.count("approximate") == 2


@pytest.mark.runs
def test_a_page_runs_no_script_loads_nothing_and_says_that_no_run_is_private(both):
    page = of_sweep(both, SWEPT)
    assert "<script" not in page
    assert "default-src 'none'" in page
    assert "none of these runs is private" in page
    assert "12 runs (2 values of privacy × 2 values of algorithm.rounds × 3 seeds): 12 done." in page


@pytest.mark.runs
def test_points_without_a_number_among_their_values_are_drawn_as_bars():
    found = sweep(SWEPT, {"network.kind": ["ring", "complete"]}, seeds=3)
    page = of_sweep(found, SWEPT)
    assert 'aria-label="Relative error of x"' in page
    assert "<text>relative error of x</text>" in page


@pytest.mark.runs
def test_runs_beside_each_other_show_what_differs_and_withhold_what_is_private(tmp_path):
    run(SWEPT, seed=1, out=tmp_path / "seeded")
    run(SWEPT, out=tmp_path / "private", set={"algorithm.rounds": 3})
    run(SWEPT, seed=1, out=tmp_path / "pure", set={"privacy": PURE, "problem.l2": 0.2})
    compared = Compared([tmp_path / name for name in ("seeded", "private", "pure")])
    head, rows = compared.table()
    table = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    assert table["private"]["relative error of x"] == "–"
    assert table["private"]["privacy"] == "upheld"
    assert table["seeded"]["relative error of x"] != "–"
    assert (table["pure"]["ε, pure"], table["pure"]["ε, with δ"]) == ("5", "–")
    assert table["seeded"]["ε, with δ"] == "5, δ 1e-05"
    differing = dict(compared.differences())
    assert differing["algorithm.rounds"] == ["5", "3", "5"]
    assert "algorithm.name" not in differing
    assert "The runs do not solve the same problem: problem.l2 differ." in compared.text()
    assert "<script" not in compared.page()
