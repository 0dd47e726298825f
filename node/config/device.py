"""The file of a device: what its owner declares and consents to, and what contradicts itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from hushgrid.kernels.algorithms.registry import plug
from hushgrid.kernels.errors import InputError
from hushgrid.kernels.ranges import Count, Keepalive, Name
from hushgrid.node.config.brokers import check_brokers, with_servers
from hushgrid.node.config.files import near_tls, unwrapped
from hushgrid.node.config.site import check_site, near_sink, near_source
from hushgrid.node.config.trust import near_trust
from hushgrid.node.privacy.run_table import KEEP
from hushgrid.node.problems.kind import Kind
from hushgrid.node.problems.power_flow.kind import KIND as POWER_FLOW
from hushgrid.node.problems.power_flow.section import ZoneData
from hushgrid.node.problems.questions import check_list
from hushgrid.node.problems.records.kind import KIND as RECORDS
from hushgrid.node.problems.records.section import DeclaredProblem, Labels
from hushgrid.node.schema.durations import Length, in_words, seconds
from hushgrid.node.schema.sections import Allow, Budget, Section, Tls
from hushgrid.node.schema.site import RULES, Sink, Source
from hushgrid.node.schema.trust import Trusted
from hushgrid.node.schema.yaml_file import convert, read_yaml

#: Keys that hold for as long as the process runs.
FIXED = ("node", "fleet", "broker", "tls", "trust", "state", "mark", "plugins", "keepalive")


class DeviceConfig(Section, frozen=True, kw_only=True):
    """`hushgrid node CONFIG`."""

    node: Name  #: its name: n0, n1, ... or z1, z2, ...
    fleet: Name  #: the fleet's name, a part of every topic
    broker: str  #: mqtt://host:port or mqtts://host:port; a list of the servers of a cluster is tried in turn
    tls: Tls | None = None  #: required of mqtts
    #: its owner knows that a broker of this file is reached without encryption over a network (mqtt:// to another
    #: machine)
    broker_in_clear: bool = False
    #: whose messages count, of the coordinator and neighbours [whatever the broker delivers]
    trust: Trusted | None = None
    keepalive: Keepalive = 60  #: without a word for 1.5 times as long, the broker takes it for dead
    state: str  #: a directory of its own: ledger and outcome
    keep: Count = KEEP  #: ended runs whose plan, spends and rounds the ledger keeps row by row; older ones as sums
    mark: str | None = None  #: a file on another disk that remembers how far the ledger has come
    #: of a data problem: a NumPy archive of A (m, q) and b (m,), or a CSV file, the label last; of a zone: a section
    data: str | ZoneData
    labels: Labels | None = None  #: the public range of its labels; required of a data problem
    #: of a data problem; required under bounded-change: a plan that differs, or asks for anything else, is refused
    problem: DeclaredProblem | None = None
    budget: Budget  #: over the life of the ledger, or in any window, whatever a coordinator asks
    #: required of a `source` without a rule beside `budget.window`, and less than that:
    #: no reading counts in an answer so long after it was read first, in running time;
    #: then a load is the one that `data.loads` names, a row the zero row. Of a file without a source,
    #: where nothing expires, from data of how long each answer is computed.
    #: What is hidden is an event of at most the window less this [answers look at the moment]
    retention: Length | None = None
    allow: Allow = Allow()  #: what the owner consents to in one run
    #: modules from outside whose algorithms may run here, importable where this program runs; no other is imported
    plugins: tuple[str, ...] = ()
    source: Source | None = None  #: where its data come from, run after run [the file that `data` names]
    #: zones, mode input: answers a window; the stored answer is repeated in between at no cost [one a run]
    fresh: Count | None = None
    sink: Sink | None = None  #: who is told the outcome of a run, beside the state directory [nobody]

    @property
    def kind(self) -> Kind:
        """Of the problems that it takes part in: its data say it."""
        return POWER_FLOW if isinstance(self.data, ZoneData) else RECORDS

    @property
    def file(self) -> Path:
        """Of its private data."""
        return Path((self.data.profiles or self.data.loads or "") if isinstance(self.data, ZoneData) else self.data)

    @property
    def expiring(self) -> bool:
        """Whether each reading counts for less than a window: that of a source does, a file that stands still never."""
        return self.source is not None and self.retention is not None

    @property
    def mean(self) -> int:
        """Of how many days of readings its data are the mean; 0: they are no mean."""
        return RULES[self.source.rule] if self.source and self.source.rule else 0

    @property
    def pause(self) -> float:
        """Seconds of running time that pass between two versions of its data at the least: w/K; 0 without `fresh`."""
        return self.budget.span / self.fresh if self.fresh and self.budget.span else 0.0


def load_device(path: Path) -> DeviceConfig:
    """A node's configuration; its relative paths are relative to the file.

    Raises InputError if a key is wrong, contradicts another, or belongs to a simulation.
    """
    raw = with_servers(unwrapped(read_yaml(path), "node", path))
    for key in ("seed", "variant", "published", "none", "truth", "simulated"):
        if key in raw:
            raise InputError(
                f"{path}: {key}: found in a device's configuration, expected in simulation only (hushgrid run)"
            )
    if isinstance(raw.get("budget"), dict) and "period" in raw["budget"]:
        raise InputError(
            f"{path}: budget.period: found a period of the calendar, expected window: a sliding one of running time "
            "(a period lets twice epsilon pass across its end)"
        )
    config = convert(raw, DeviceConfig, str(path))
    _check_owner(config, path)
    check_list(config, config.kind.name, str(path))
    check_site(config.source, config.sink, config.kind.records, path)
    check_brokers(config.broker, config.broker_in_clear, config.source, config.sink, path)
    if config.fresh and (config.kind.records or config.budget.window is None):
        expected = "none (a device with rows)" if config.kind.records else "one beside budget.window"
        raise InputError(f"{path}: fresh: found {config.fresh}, expected {expected}")
    rule = config.source.rule if config.source else None
    if config.source and not rule and config.budget.span is not None and config.retention is None:
        least = f"less than its window of {in_words(config.budget.span)} (a source beside budget.window)"
        raise InputError(f"{path}: retention: missing, expected {least}")
    config = _located(config, path)
    plug(config.plugins, str(path))

    def absolute(p: str) -> str:
        return str((path.parent / p).resolve())

    data = config.data
    if isinstance(data, str):
        data = absolute(data)
    else:
        data = msgspec.structs.replace(
            data,
            loads=absolute(data.loads) if data.loads else None,
            profiles=absolute(data.profiles) if data.profiles else None,
            model=absolute(data.model) if data.model else None,
            case=absolute(data.case) if os.path.isfile(path.parent / data.case) else data.case,
        )
    allow = config.allow
    if allow.masked and allow.masked.ca:
        crl = absolute(allow.masked.crl) if allow.masked.crl else None
        masked = msgspec.structs.replace(allow.masked, ca=absolute(allow.masked.ca), crl=crl)
        allow = msgspec.structs.replace(allow, masked=masked)
    return msgspec.structs.replace(
        config,
        state=absolute(config.state),
        allow=allow,
        tls=near_tls(config.tls, path),
        trust=near_trust(config.trust, path),
        mark=absolute(config.mark) if config.mark else None,
        data=data,
        source=near_source(config.source, path),
        sink=near_sink(config.sink, path),
    )


def _located(config: DeviceConfig, path: Path) -> DeviceConfig:
    """With the files that its adjacencies name."""
    limits_with_files = {}
    for key, limits in (("budget", config.budget), ("allow", config.allow)):
        if limits.adjacency is not None:
            adjacency = config.kind.adjacency(limits.adjacency, path.parent)
            limits_with_files[key] = msgspec.structs.replace(limits, adjacency=adjacency)
    return msgspec.structs.replace(config, **limits_with_files)


def _check_owner(config: DeviceConfig, path: Path) -> None:
    """Raises InputError unless the owner's limits are complete, of one meaning,
    and about the kind of data the device has.
    """

    def wrong(key: str, actual: str, expected: str) -> InputError:
        return InputError(f"{path}: {key}: {actual}, expected {expected}")

    records, labels, problem = config.kind.records, config.labels, config.problem
    adjacencies = {"budget": config.budget.adjacency, "allow": config.allow.adjacency}
    if adjacencies["budget"] is None:
        raise wrong("budget.adjacency", "missing", "e.g. {bounded-change: 0.01}")
    for key, a in adjacencies.items():
        change, replaced = (a.of_loads or a.bounded_change, a.replace_one_record) if a else (1.0, None)
        if (change is None) == (replaced is None) or (not records and change is None):
            expected = "bounded-change (a zone)" if not records else "one of bounded-change and replace-one-record"
            raise wrong(f"{key}.adjacency", f"found {'both' if change and replaced else str(a) or '{}'}", expected)
        if a and a.day and a.bounded_change:
            raise wrong(f"{key}.adjacency", "found two adjacencies", "one")
        if records and a and a.of_loads:
            raise wrong(
                f"{key}.adjacency.{'day' if a.day else 'bounded-change'}",
                "found a change of loads",
                "a number (a device with rows)",
            )
    if config.allow.masked and not (config.tls and config.tls.cert and config.tls.key):
        raise wrong("allow.masked", "found no certificate of this device", "tls.cert and tls.key beside it")
    if config.retention is not None:
        span = config.budget.span
        if span is None or seconds(config.retention) >= span:
            expected = "a budget with a window" if span is None else f"less than its window of {in_words(span)}"
            raise wrong("retention", f"found {config.retention}", expected)
    if not records:
        rule = config.source.rule if config.source else None
        if isinstance(config.data, ZoneData) and config.data.hours and not config.data.profiles:
            raise wrong("data.hours", f"found {config.data.hours:g}", "data.profiles beside it")
        if rule:
            _check_rule(config, rule, wrong)
        elif isinstance(config.data, ZoneData) and config.data.profiles and (config.data.loads or config.source):
            other = "a source" if config.source else "data.loads"
            raise wrong("data.profiles", f"found a file beside {other}", "one of them")
        for key, section in (("labels", labels), ("problem", problem)):
            if section is not None:
                raise wrong(key, "found a section", "none (a zone has loads, no rows)")
        return
    if labels is None:
        raise wrong("labels", "missing", "{classes: C} or {low: ..., high: ...} (a device with rows)")
    if problem is None:
        if any(a and a.bounded_change for a in adjacencies.values()):
            raise wrong("problem", "missing", "{kind: ..., scale: ..., row_bound: ...} (adjacency bounded-change)")
    elif not labels.fit(problem.kind, labels.classes or 1):
        raise wrong("problem.kind", f"found {problem.kind}", f"one for labels of {labels}")


def _check_rule(config: DeviceConfig, rule: str, wrong: Callable[[str, str, str], InputError]) -> None:
    """Raises InputError unless a forecast by a rule has its unit, and public loads for readings that are missing."""
    adjacency = config.budget.adjacency
    assert isinstance(config.data, ZoneData)
    assert adjacency is not None
    if not adjacency.day:
        raise wrong(
            "source.rule", f"found {rule} under {adjacency}", "budget.adjacency {day: {...}} (a day's readings)"
        )
    if config.data.loads or config.data.profiles is None:
        expected = "a public day, for readings that are missing (source.rule)"
        actual = "found data.loads" if config.data.loads else "missing"
        raise wrong("data.profiles", actual, expected)
    if config.retention is not None:
        days = f"{RULES[rule]} day{'s' * (RULES[rule] > 1)}"
        raise wrong("retention", f"found {config.retention}", f"none (source.rule: a reading counts for {days})")
