"""The table of what of the papers is here: no item is missing, and what it names exists."""

import re

import pytest

from hushgrid import scenarios
from hushgrid.cli.main import COMMANDS, make_parser
from hushgrid.lab.studies.catalogue import STUDIES
from hushgrid.lab.studies.coverage import COVERAGE, listing, table
from tests.support.paths import ROOT


def several(kind, *numbers):
    return {f"{kind} {number}" for number in numbers}


#: As the papers number them. Lemmas, assumptions and remarks serve proofs; they have no line.
NUMBERED = {
    "dp-recal": several("Algorithm", 1)
    | several("Theorem", *range(1, 5))
    | several("Figure", *range(1, 10))
    | several("Table", "I", "II", "III", "IV", "V"),
    "objpert-ladmm": several("Algorithm", 3.1)
    | several("Theorem", 4.2, 4.3, 4.4, 4.5, 4.6, 5.3, 5.4, 5.5)
    | several("Figure", *range(1, 8))
    | several("Table", 1),
    "pi-admm": several("Algorithm", *range(1, 5))
    | several("Theorem", 1, 2, 3)
    | several("Corollary", 1)
    | several("Figure", *range(1, 7)),
    "dpp2": several("Algorithm", 1)
    | several("Theorem", 1, 2, 3)
    | several("Corollary", 1)
    | several("Figure", 1, 2, 3)
    | several("Table", "I"),
    "recycled-admm": several("Algorithm", 1, 2, 3)
    | several("Theorem", "IV.1", "V.1", "VI.1", "VI.2")
    | several("Figure", *range(1, 6)),
}
ITEMS = [pytest.param(paper, item, id=f"{paper}-{item.name}") for paper, items in COVERAGE.items() for item in items]


@pytest.mark.parametrize("paper", NUMBERED)
def test_every_numbered_item_of_a_paper_has_one_line(paper):
    names = [item.name for item in COVERAGE[paper]]
    assert sorted(names) == sorted(NUMBERED[paper])


@pytest.mark.parametrize(("paper", "item"), ITEMS)
def test_its_command_and_its_findings_exist(paper, item):
    if item.command:
        _, verb, name, *_ = item.command.split()
        assert name in (STUDIES if verb == "study" else scenarios.names())
        make_parser(COMMANDS).parse_args(item.command.split()[1:])
    assert bool(item.command) == (item.state != "not")
    page = (ROOT / "docs" / "papers" / f"{paper}.md").read_text()
    for number in re.findall(r"\((\d\.\d)\)", item.what):
        assert f"### {number} " in page


def test_the_table_is_the_papers_page_and_the_commands_list():
    assert table() in (ROOT / "docs" / "papers" / "README.md").read_text()
    assert all(item.what in listing() for items in COVERAGE.values() for item in items)
