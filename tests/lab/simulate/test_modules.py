"""The simulated stack is the production code: each module of node/ and broker/coordinator, and whether it runs there.

A module runs if a simulated daemon enters one of its functions. Modules without a function are in neither list.
"""

from __future__ import annotations

import ast
import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import msgspec
import pytest

from hushgrid.kernels.types import Document
from hushgrid.lab.simulate import world
from hushgrid.lab.simulate.fleet import Fleet, fleet
from hushgrid.lab.simulate.manner import Manner
from hushgrid.lab.simulate.search import life_of, live
from hushgrid.node.schema.yaml_file import read_yaml
from tests.support.paths import ROOT
from tests.support.scenarios import simulated_lives

#: What the daemons of each fleet run, beside what those above run: {fleet: {folder: modules}}.
RUN: dict[str, dict[str, str]] = {
    "star": {
        "broker/coordinator": "base create daemon interval_log intervals membership pattern run_history run_records "
        "schedule star status warm_start",
        "node": "durable log peer_marks pieces status system views wire",
        "node/config": "brokers coordinator device files planning scenario site trust",
        "node/privacy": "budget gate ledger ledger_file ledger_log ledger_marks ledger_rows ledger_schema marks "
        "noise_journal noise_source renewal run_table spend_table terms",
        "node/problems": "feed kind machines masking on_graph plan questions registry",
        "node/problems/records": "centre data device feed files gate kind section",
        "node/runtime": "capabilities daemon driver endpoint event_loop member outcomes renewed reporter signals "
        "systemd wakeup warm_start withheld witness",
        "node/schema": "durations sections site yaml_file",
        "node/site": "data_source forked intake_log publisher sources standing value_store",
        "node/transport": "certificate connect schemes",
    },
    "token": {"broker/coordinator": "token"},
    "neighbours": {"broker/coordinator": "neighbours"},
    "zones": {
        "node/problems/power_flow": "centre conclusion costs device feed files gate horizon kind question section",
    },
    "masked sums": {
        "node/masks": "identity run_masks",
        "node/problems/statistics": "centre gate kind public section",
    },
    "a day ahead": {"node/problems": "rolling", "node/problems/power_flow": "day rolling"},
}
NOT_RUN = {
    "node/columns.py": "commands print by it",
    "node/config/consent.py": "commands and pages say by it what an owner consents to",
    "node/config/watch.py": "is of the identity that only watches",
    "node/problems/masking_words.py": "reports and commands say it",
    "node/problems/power_flow/capacity.py": "no fleet here has a file of contracted capacities",
    "node/problems/power_flow/own_check.py": "an owner asks for it, and no run",
    "node/problems/records/held_out.py": "public rows to test a model on are taken out of a scenario that is simulated",
    "node/problems/records/images.py": "reads collections of images, and devices here have tables",
    "node/site/exec_sink.py": "starts a program of the owner",
    "node/site/home_assistant.py": "needs the broker of a site, which is not simulated",
    "node/site/local_link.py": "is a connection to that broker",
    "node/site/subscriber.py": "is a source on that broker",
    "node/transport/attempts.py": "is of MQTT: in its place a link is simulated, whose broker loses and doubles",
    "node/transport/buffered_socket.py": "is of MQTT: its bytes, and TLS below it",
    "node/transport/link.py": "declares what a link is, and does nothing",
    "node/transport/lookup.py": "is of MQTT: names are looked up by a child process",
    "node/transport/mqtt.py": "is of MQTT: the real connection",
    "node/transport/mqtt_session.py": "is of MQTT: its session",
    "node/transport/packets.py": "is of MQTT: its packets",
    "node/frames.py": "no fleet here has `trust:`",
    "node/schema/trust.py": "the same",
    "node/trust/files.py": "the same",
    "node/trust/guard.py": "the same",
    "node/trust/guarded.py": "the same",
    "node/trust/keys.py": "the same",
    "node/trust/stated.py": "the same",
    "node/served.py": "declares what a loop drives, and does nothing",
    "node/versions.py": "runs once, as the program is loaded",
}


def _listed(modules: dict[str, str]) -> set[str]:
    return {f"{folder}/{name}.py" for folder, names in modules.items() for name in names.split()}


def _has_functions(path: Path) -> bool:
    return any(isinstance(node, ast.FunctionDef) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def test_every_module_is_in_one_of_the_lists():
    modules = {
        path.relative_to(ROOT).as_posix()
        for room in ("node", "broker/coordinator")
        for path in (ROOT / room).rglob("*.py")
        if _has_functions(path)
    }
    run = [_listed(modules) for modules in RUN.values()]
    assert set.union(*run) | NOT_RUN.keys() == modules
    assert sum(map(len, run)) + len(NOT_RUN) == len(modules)  # and in no two


def _shipped(name: str, rounds: int | None = None) -> tuple[Document, Fleet]:
    path = ROOT / "scenarios" / f"{name}.yaml"
    raw = read_yaml(path)
    if rounds is not None:
        raw["algorithm"]["rounds"], raw["problem"]["ac"] = rounds, "none"  # the AC step is a process of its own
    return raw, fleet(copy.deepcopy(raw), str(path), path.parent)


def _made(kind: str) -> tuple[Document, Fleet, Manner]:
    if kind == "a day ahead":
        return *_shipped("day14", rounds=2), Manner(fed=True)
    raw, made = _shipped("hourly-energy") if kind == "masked sums" else _small(kind)
    return raw, made, Manner(room=6.5, source=True, fed=True, quorum=len(made.nodes) - 1)


def _small(kind: str) -> tuple[Document, Fleet]:
    return simulated_lives.SCENARIOS[kind], simulated_lives.made(kind)


@contextmanager
def _entered(until: set[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """The files whose functions simulated processes enter, as long as some of `until` are not among them."""
    names, entered = {str((ROOT / path).resolve()): path for path in [*until, *NOT_RUN]}, set[str]()
    whole, resolved = world.Process._whole, dict[str, str]()

    def enters(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if code.co_name != "<module>" and (file := code.co_filename) not in resolved:
            resolved[file] = names.get(str(Path(file).resolve()), "")
            entered.add(resolved[file])
            if until <= entered:
                sys.settrace(None)

    def traced(process: world.Process, main: Callable[[], int]) -> Callable[[], None]:
        def watched() -> int:
            sys.settrace(None if until <= entered else enters)
            try:
                return main()
            finally:
                sys.settrace(before)

        return whole(process, watched)

    before = sys.gettrace()
    monkeypatch.setattr(world.Process, "_whole", traced)
    yield entered


@pytest.mark.runs
@pytest.mark.parametrize("kind", RUN)
def test_what_is_listed_as_run_is_entered_by_daemons_of_a_simulated_fleet(kind, monkeypatch):
    raw, made, manner = _made(kind)
    life = msgspec.structs.replace(life_of(raw, made, 1, 4), manner=manner)
    with _entered(_listed(RUN[kind]), monkeypatch) as entered:
        live(made, life, {})
    assert _listed(RUN[kind]) - entered == set()
    assert entered & NOT_RUN.keys() == set()
