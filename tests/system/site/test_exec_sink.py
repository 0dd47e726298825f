"""The owner's program: it gets the document, its failure is a line, and it never holds the device up."""

import json
import time

import pytest

from hushgrid.node.site import exec_sink as module
from hushgrid.node.site.exec_sink import ExecSink


@pytest.fixture
def made(tmp_path):
    hooks = []

    def make(*words):
        said = []
        hooks.append(ExecSink(list(words), tmp_path, said.append))
        return hooks[-1], said

    yield make
    for hook in hooks:
        hook.close()


def ended(hook, seconds=10.0):
    until = time.monotonic() + seconds
    while hook._child is not None and time.monotonic() < until:
        hook.turn()
        time.sleep(0.01)
    assert hook._child is None


def test_it_gets_the_document_on_its_standard_input(made, tmp_path):
    hook, said = made("sh", "-c", "cat > got.json")
    document = {"setpoints": [{"bus": k, "mw": 1.5} for k in range(20000)]}
    hook(json.dumps(document).encode())
    ended(hook)
    assert json.loads((tmp_path / "got.json").read_text()) == document
    assert said == []


def test_of_what_comes_while_it_runs_the_latest_counts(made, tmp_path):
    hook, _ = made("sh", "-c", "cat >> got; sleep 0.3")
    for k in range(5):
        hook(b"%d" % k)
    ended(hook)
    assert (tmp_path / "got").read_bytes() == b"04"


@pytest.mark.parametrize(("words", "line"), [(["false"], "ended with 1"), (["/no/such"], "No such file")])
def test_a_failure_is_a_line_of_the_log(made, words, line):
    hook, said = made(*words)
    hook(b"{}")
    ended(hook)
    assert len(said) == 1
    assert line in said[0]


def test_it_has_a_time_limit_and_nothing_of_its_group_is_left(made, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LIMIT_S", 0.3)
    hook, said = made("sh", "-c", "(sleep 1; touch late) & sleep 60")
    began = time.monotonic()
    hook(b"{}")
    assert time.monotonic() - began < 0.25
    ended(hook)
    assert "ran for more than 0.3 s" in said[0]
    time.sleep(1.2)
    assert not (tmp_path / "late").exists()


def test_it_gets_no_secret(made, tmp_path, monkeypatch):
    monkeypatch.setenv("HUSHGRID_MQTT_PASSWORD", "xyzzy")
    hook, _ = made("sh", "-c", "env > env.txt")
    hook(b"{}")
    ended(hook)
    assert "xyzzy" not in (tmp_path / "env.txt").read_text()
