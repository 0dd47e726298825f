"""The figures of a fleet in Prometheus' text format, for `/metrics` or node_exporter's textfile collector."""

from __future__ import annotations

from collections.abc import Sequence

from hushgrid.broker.watch.rows import seconds
from hushgrid.kernels.types import Document

#: (metric, key of a row, what it is).
GAUGES = (
    ("hushgrid_session", "session", "Starts of the node so far."),
    ("hushgrid_round", "round", "Round of the run under way, or of the last one."),
    ("hushgrid_rounds", "rounds", "Rounds of that run at most."),
    ("hushgrid_late_seconds", "late_s", "By how much the run is late, or for how long the node has been waited for."),
    ("hushgrid_epsilon", "epsilon", "The whole epsilon of the window; without a window, of the budget."),
    ("hushgrid_epsilon_life", "lifetime", "The whole epsilon of the life of the ledger."),
    ("hushgrid_data_age_seconds", "data_age_s", "Running time since the version of the node's data was declared."),
    ("hushgrid_epsilon_left", "epsilon_left", "Epsilon left in the window; without a window, in the budget."),
    ("hushgrid_epsilon_left_life", "epsilon_left_life", "Epsilon left in the life of the ledger."),
    ("hushgrid_window_seconds", "window_s", "Length of the window in running time."),
    ("hushgrid_certificate_days", "certificate_days", "Days until the node's certificate ends."),
)
MOMENTS = (
    ("hushgrid_runs_out_timestamp_seconds", "runs_out", "When the budget of the life is spent, at the pace of now."),
    ("hushgrid_due_timestamp_seconds", "due", "When the next run is due."),
    ("hushgrid_refused_timestamp_seconds", "refused_at", "When the node has refused last."),
    ("hushgrid_said_timestamp_seconds", "at", "When the node has last said how it is."),
)

#: Of the fleet, as `watch` sees it: (metric, key of the facts, what it is).
FLEET = (
    ("hushgrid_broker_up", "broker_up", "Whether the broker is there."),
    ("hushgrid_setpoints_age_seconds", "setpoints_age_s", "Time since the run of the set-points in force ended."),
    ("hushgrid_setpoints_timestamp_seconds", "setpoints_at", "When the run of the set-points in force ended."),
    ("hushgrid_setpoints_valid_until_timestamp_seconds", "setpoints_until", "When they count as old."),
)


def text(facts: Document) -> str:
    """The metrics of all rows of `hushgrid status`; a figure that nobody has said is left out.

    Of `watch` also whether the broker is there, and since when and until when the last answer is in force.
    """
    fleet, nodes = facts["fleet"], facts["nodes"]

    def labels(row: Document, **more: str) -> str:
        return ",".join(
            f'{key}="{_escaped(value)}"' for key, value in {"fleet": fleet, "node": row["node"], **more}.items()
        )

    out: list[str] = []

    def family(name: str, description: str, samples: Sequence[tuple[str, float]], kind: str = "gauge") -> None:
        if samples:
            out.extend((f"# HELP {name} {description}", f"# TYPE {name} {kind}"))
            out.extend(f"{name}{{{label}}} {value!r}" for label, value in samples)

    family("hushgrid_up", "Whether the node is connected.", [(labels(row), int(row["there"])) for row in nodes])
    family(
        "hushgrid_running", "Whether the node is in a run.", [(labels(r), int(r["state"] == "running")) for r in nodes]
    )
    for name, key, description in GAUGES:
        family(name, description, [(labels(row), row[key]) for row in nodes if row[key] is not None])
    for name, key, description in MOMENTS:
        family(name, description, [(labels(row), int(seconds(row[key]))) for row in nodes if row[key] is not None])
    for name, key, description in (
        ("hushgrid_version_info", "version", "Version of the program that runs."),
        ("hushgrid_last_run_info", "last", "How the last run has ended on the node."),
        ("hushgrid_refused_info", "refused", "Why the node has refused last, as a code."),
    ):
        family(name, description, [(labels(row, **{key: row[key]}), 1) for row in nodes if row[key] is not None])
    intervals = [(row, row["interval"]) for row in nodes if row["interval"] is not None]
    counts = [
        (labels(row, **_ended(key)), total) for row, last in intervals for key, total in sorted(last["counts"].items())
    ]
    family("hushgrid_intervals_total", "Intervals of the fleet by how they ended.", counts, "counter")
    for name, key, description in (
        ("hushgrid_interval_held", "held", "Zones that counted as they were last in the last interval."),
        ("hushgrid_interval_absent", "absent", "Members that took no part in the last interval."),
        ("hushgrid_interval_refused", "refused", "Members that refused in the last interval."),
    ):
        family(name, description, [(labels(row), len(last[key])) for row, last in intervals])
    ends = [(labels(row), int(seconds(last["at"]))) for row, last in intervals]
    family("hushgrid_interval_timestamp_seconds", "When the last interval ended.", ends)
    fleet_alone = f'fleet="{_escaped(fleet)}"'
    for name, key, description in FLEET:
        if facts.get(key) is not None:
            family(name, description, [(fleet_alone, facts[key])])
    return "".join(f"{line}\n" for line in out)


def _ended(key: str) -> dict[str, str]:
    """The labels of a count of `Interval.counts`: an outcome, or what an interval was missed for."""
    return {"outcome": key, "cause": ""} if key in ("answer", "held") else {"outcome": "missed", "cause": key}


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
