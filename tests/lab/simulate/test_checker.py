"""Each promise of the checker: a history that keeps it, and one that breaks it."""

import ast
import sys
from pathlib import Path

import pytest

from hushgrid.lab.simulate import checker
from hushgrid.lab.simulate.checker import check


def event(kind, t, who="n0", **more):
    return {"t": float(t), "e": kind, "who": who} | more


def opened(t, no=0, ledger="aa", behind=False):
    return event("ledger", t, id=ledger, no=no, behind=behind)


def drawn(t, digest="d1"):
    return event("drawn", t, digest=digest)


def spent(t, no, ledger="aa", **more):
    return event("spent", t, id=ledger, no=no, value=1.0, ran=float(t), run="r1", **more)


def send(t, no, mark=None, ledger="aa", **more):
    facts = {"body": "Z", "no": no, "unsynced": False, "mark": [ledger, no if mark is None else mark], "iterate": None}
    return event("send", t, **facts | {"run": "r1", "epoch": 0, "seq": 1, "dst": "coordinator"} | more)


def ends(t, outcome="answer", absent=()):
    return event("ends", t, "coordinator", interval=1, outcome=outcome, cause="silent", absent=list(absent))


def values(t, **more):
    return event("values", t, **{"id": "aa", "version": 1, "file": 1, "read": 0.0, "longest": 10.0} | more)


KEPT = event("owner", 0, epsilon=1.0, delta=0.0, window_s=20.0, retention=10.0, run=["laplace", 0.1, 1])
BEGINS = event("begins", 1000, "coordinator", interval=1)
LOSS = event("fault", 1000, "", fault="weather", how="loss", amount=0.02, seconds=60.0)
CARD = event("card", 4, how="put back", mark=None)
BACK = event("card", 1, "coordinator", how="put back")
JOINED = [opened(0), send(1, 0, body="Join", stands=0), event("cut", 1)]
ACCEPTED = event("accepted", 6, id="aa", no=2, counted={"aa": 2})
ANSWER = [opened(1), drawn(2), spent(2, 1), send(3, 1)]
FREE = [send(4, 0, body="Join", stands=0), send(4, 0, iterate="x")]  #: in a run that has cost nothing yet
OTHER = [send(5, 0, body="Join", stands=0, run="r2")]

#: (promise, what keeps it, what breaks it)
HISTORIES = [
    ("heard", ANSWER, [opened(1), drawn(2), spent(2, 1), send(3, 1, mark=2)]),
    ("heard", ANSWER, [opened(1), drawn(2), spent(2, 1), send(3, 1, unsynced=True)]),
    ("paid", [opened(1), drawn(2), event("kill", 3), opened(4, 1), send(5, 1)],
     [opened(1), drawn(2), event("kill", 3), opened(4), send(5, 0)]),
    ("paid", [*ANSWER, drawn(4, "d2"), spent(4, 2)], [*ANSWER, drawn(4, "d2"), spent(4, 3)]),
    ("once", [*ANSWER, send(4, 1, iterate="x"), send(5, 1, iterate="x")],
     [*ANSWER, send(4, 1, iterate="x"), send(5, 1, iterate="y")]),
    ("resumed", [*ANSWER, send(4, 1, iterate="x"), event("kill", 5), opened(6, 1), send(7, 1, body="Join", stands=1)],
     [*ANSWER, send(4, 1, iterate="x"), event("kill", 5), opened(6, 1), send(7, 1, body="Join", stands=0)]),
    ("resumed", [*ANSWER, send(4, 1, iterate="x"), CARD, opened(5, 1), ACCEPTED, send(7, 2, body="Join", stands=0)],
     [*ANSWER, send(4, 1, iterate="x", seq=3), opened(5, 1), send(7, 1, body="Join", stands=2)]),
    ("resumed", [*FREE, *OTHER, send(6, 0, body="Join", stands=0)], [*FREE, send(6, 0, body="Join", stands=0)]),
    ("resumed", [*ANSWER, *FREE], [*ANSWER, *FREE[1:], *OTHER, send(6, 1, body="Join", stands=0)]),
    ("budget", [spent(k, k) for k in (1, 2, 3)], [spent(k, k) | {"ran": 1.06 * k} for k in (1, 2, 3)]),
    ("marks", [*ANSWER, event("kill", 4), opened(5, 1)], [*ANSWER, event("kill", 4), opened(5, 0)]),
    ("marks", [*ANSWER, CARD, opened(5, 0), ACCEPTED, drawn(7, "d2"), spent(7, 3)],
     [*ANSWER, CARD, opened(5, 0), drawn(7, "d2"), spent(7, 1)]),
    ("marks", [*ANSWER, event("card", 4, "coordinator", how="replaced"), CARD, opened(5, 0), spent(7, 1)],
     [*ANSWER, event("card", 4, "coordinator", how="replaced"), CARD | {"mark": ["aa", 1]}, opened(5, 0), spent(7, 1)]),
    ("marks", [*ANSWER, CARD, opened(5, 0, behind=True)], [*ANSWER, opened(5, 1, behind=True)]),
    ("marks", [*ANSWER, CARD | {"mark": ["aa", 1]}, opened(5, 0, behind=True)],
     [*ANSWER, CARD | {"mark": ["aa", 1]}, opened(5, 0)]),
    ("marks", [*ANSWER, CARD | {"mark": ["aa", 1]}, opened(5, 1)], [*ANSWER, CARD | {"mark": ["bb", 1]}, opened(5, 1)]),
    ("paid", [spent(2, 1, answer=1), spent(3, 2, answer=2)], [spent(2, 1, answer=1), spent(3, 2, answer=1)]),
    ("paid", [opened(1), spent(2, 1, answer=1, version=1), drawn(3), spent(3, 2, answer=1, version=2)],
     [opened(1), spent(2, 1, answer=1, version=1), drawn(3), spent(3, 2, answer=1, version=1)]),
    ("paid", [spent(2, 1, answer=1, version=1)],
     [drawn(1), spent(2, 1, answer=1, version=1), drawn(3), spent(3, 2, answer=1, version=2)]),
    ("readings", [KEPT, values(1), values(2)], [KEPT, values(1), values(2, read=1.0)]),
    ("readings", [KEPT, values(1), values(2, file=2, version=2)], [KEPT, values(1), values(2, version=2)]),
    ("readings", [KEPT, values(1, longest=9.0)], [KEPT, values(1, longest=11.0)]),
    ("record", ANSWER, [*ANSWER, event("unrecorded", 9, "coordinator", text="interval 2 has no line")]),
    ("answered", ANSWER, [*ANSWER, event("unanswered", 9, "coordinator", text="the last interval: missed")]),
    ("answered", [BEGINS, LOSS, ends(1050)], [BEGINS, LOSS, ends(1050, "missed")]),
    ("answered", [event("kill", 1000), BEGINS, ends(1050, absent=["n0"])], [BEGINS, ends(1050, absent=["n0"])]),
    ("answered", [BACK | {"t": 900.0}, BEGINS, ends(1050, "missed")], [BACK, ends(500), BEGINS, ends(1050, "missed")]),
    ("paid", [*JOINED, opened(2), spent(2, 1), *OTHER, send(6, 1, body="Join", stands=0), drawn(7), send(8, 1)],
     [*JOINED, opened(2), *OTHER, send(6, 0, body="Join", stands=0), drawn(7), send(8, 0)]),
    ("outcome", [event("ended", 1, run="r1"), event("kill", 2), event("outcome", 3, run="r1")],
     [event("ended", 1, run="r1"), event("kill", 2)]),
    ("outcome", ANSWER, [event("unpaid", 9, text="owed")]),
    ("whole", ANSWER, [event("not whole", 9, text="the sums of its spends are not those of its rows")]),
    ("bits", ANSWER, [event("other bits", 9, text="n0.model.npz is not that of the quiet run")]),
    ("defect", ANSWER, [event("defect", 9, trace="Traceback\nKeyError: 1")]),
]  # fmt: skip


@pytest.mark.parametrize(("promise", "keeps", "breaks"), HISTORIES)
def test_a_promise_is_kept_or_broken(promise, keeps, breaks):
    assert check(keeps) == []
    assert {finding.promise for finding in check(breaks)} == {promise}


def test_a_budget_holds_in_each_of_its_windows():
    budgets = {"n0": {"epsilon": 2.0, "window_s": 10.0}}
    assert check([spent(0, 1), spent(5, 2), spent(11, 3)], budgets) == []
    findings = check([spent(0, 1), spent(5, 2), spent(9, 3)], budgets)  # by running time, and by the world's
    assert {(finding.promise, finding.number) for finding in findings} == {("budget", 2)}


def test_what_nobody_remembers_any_more_counts_no_longer():
    """A device's card is replaced, and then the coordinator's, before the owner accepts what it knew."""
    before = [event("owner", 0, epsilon=1.0, delta=0.0, window_s=20.0), spent(1, 1)]
    replaced = event("card", 2, how="replaced", mark=None, known={"aa": 1})
    forgotten = event("card", 3, "coordinator", how="replaced", mark=None, known={})
    after = [event("ledger", 4, id="bb", no=0, behind=False), spent(5, 1, ledger="bb")]
    assert check([*before, replaced, forgotten, *after]) == []
    assert "budget" in {finding.promise for finding in check([*before, replaced, *after])}


def test_shares_of_a_sum_may_be_refused_without_one_who_may_refuse():
    missed = ends(1050, "missed", absent=["n0", "n1"]) | {"refused": ["n0", "n1"]}
    shares = [spent(2, 1, honest=2) | {"who": "n1"}]
    refuses = [spent(2, 1), event("accepted", 6, id="aa", no=2, counted={"aa": 2})]
    assert check([*shares, *refuses, BEGINS, missed]) == []
    assert [finding.promise for finding in check([*shares, spent(2, 1), BEGINS, missed])] == ["answered"]
    assert [finding.promise for finding in check([*refuses, BEGINS, missed])] == ["answered"]


def test_it_imports_nothing_of_the_program():
    tree = ast.walk(ast.parse(Path(checker.__file__).read_text(encoding="utf-8")))
    names = {node.module or "" for node in tree if isinstance(node, ast.ImportFrom)}
    tree = ast.walk(ast.parse(Path(checker.__file__).read_text(encoding="utf-8")))
    names |= {alias.name for node in tree if isinstance(node, ast.Import) for alias in node.names}
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names


def test_it_judges_a_file(tmp_path, capsys):
    path = tmp_path / "history"
    path.write_text('{"t": 1.0, "e": "unpaid", "who": "n0", "text": "owed"}\n')
    assert checker.main(str(path)) == 1
    assert capsys.readouterr().out == "outcome: event 0, n0: owed\n1 events, 1 findings\n"
