"""`hushgrid audit --ledger`: every answer on the wire stands in its device's ledger, at the plan's price,
or it is said.
"""

import json
import shutil
import sqlite3
from contextlib import closing

import pytest

from hushgrid.broker.simulation import run
from hushgrid.kernels.errors import InputError
from hushgrid.lab.audit.ledgers import compared
from tests.support import examples
from tests.support.scenarios.guarded_scenarios import CASES

pytestmark = pytest.mark.runs

KINDS = examples.few(CASES, ["ladmm", "ladmm, mode input", "fedavg", "recal", "dgd", "dgd, uneven", "dpp2", "radmm"])


def recorded(directory, raw):
    """A run directory's transcript and ledgers."""
    run(raw | {"run": {"record": "transcript"}, "seed": 3}, out=directory / "out")
    ledgers = sorted((directory / "out" / "ledger").glob("*.ledger"))
    return directory / "out" / "transcript.jsonl", [path for path in ledgers if path.stem != "coordinator"]


def without(ledger, where):
    """Spends taken out of a ledger's tables, as a device that does not pay would leave them."""
    with closing(sqlite3.connect(ledger)) as db:
        db.execute(f"DELETE FROM spend WHERE {where}")
        db.commit()


@pytest.mark.parametrize("case", KINDS)
def test_what_travelled_was_paid(tmp_path, case):
    transcript, ledgers = recorded(tmp_path, CASES[case])
    lines = compared(transcript, ledgers)
    assert {line.node for line in lines} == {path.stem for path in ledgers}
    assert [line.wrong for line in lines if line.wrong] == []
    assert sum(line.travelled for line in lines) >= len(ledgers) / 2
    assert all(line.paid - 1 <= line.travelled <= line.paid for line in lines), (
        "but for an answer after the last message"
    )
    assert all(line.epsilon is None or line.epsilon <= line.claimed * (1 + 1e-9) for line in lines)


def test_a_spend_that_is_missing_or_cheaper_is_said(tmp_path):
    transcript, (first, second, *rest) = recorded(tmp_path, CASES["dgd"])
    without(first, "answer <= 2")
    with closing(sqlite3.connect(second)) as db:
        db.execute("UPDATE spend SET value = value / 2 WHERE answer = 2")
        db.commit()
    by = {line.node: line.wrong for line in compared(transcript, [first, second, *rest])}
    assert any("answers travelled" in wrong for wrong in by[first.stem])
    assert any("an answer of the plan costs" in wrong for wrong in by[second.stem])
    assert not any(by[path.stem] for path in rest)


def test_a_ledger_that_is_not_given_is_said(tmp_path, hushgrid):
    transcript, (first, *rest) = recorded(tmp_path, CASES["dgd"])
    ended = hushgrid("audit", "--ledger", transcript, *rest, "--json")
    assert ended.code == 1
    lines = {line["node"]: line["wrong"] for line in json.loads(ended.out)["lines"]}
    assert lines.pop(first.stem) == ["no ledger of it was given"]
    assert not any(lines.values())
    assert hushgrid("audit", "--ledger", transcript, first, *rest).code == 0


def test_what_is_no_transcript_or_no_ledger_is_one_line(tmp_path, hushgrid):
    transcript, ledgers = recorded(tmp_path, CASES["dgd"])
    other = tmp_path / "n9.ledger"
    shutil.copyfile(transcript, other)
    with pytest.raises(InputError, match="found no SQLite file, expected a ledger"):
        compared(transcript, [other])
    with pytest.raises(InputError, match="expected a transcript"):
        compared(tmp_path / "none.jsonl", ledgers)
    assert "expected a transcript and the ledgers" in hushgrid("audit", "--ledger", transcript).err
