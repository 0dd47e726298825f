"""What a fleet's topics say, kept up to date: the model behind the page, the live table and the figures.

It reads no socket and no clock but the one that it is given. Whoever takes messages and whoever looks hold `changed`.
A view names the version that it shows; the next one holds only what has changed since.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Condition

import msgspec

from hushgrid.broker.watch.display import displayed, share
from hushgrid.broker.watch.history import History
from hushgrid.broker.watch.nodes import Reports
from hushgrid.broker.watch.rows import rows, seconds
from hushgrid.kernels.errors import printable
from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.types import Document
from hushgrid.node import views
from hushgrid.node.transport.link import Message
from hushgrid.node.views import AnswerView, RunView
from hushgrid.node.wire import COORDINATOR, ROOT, Birth, Topics

NODES = 4096  #: that are shown at most, whoever publishes
STRANGERS = 8  #: names that no node may have, shown at most
POINTS = 2000  #: residuals of one run that are kept
SILENT_S = 90.0  #: a node in a run speaks every 30 s: silent after three times as long
CONFIRM_S = 3.0  #: after the broker is back, in which what stands on it comes
FRESH_S = 2.0  #: rows are made again after so long, as silence grows without a message
ACTIVE = ("gathering", "joining", "running")


class Model:
    """A fleet as it is now, and the last runs."""

    def __init__(self, fleet: str, broker: str, clock: Callable[[], float] = time.time) -> None:
        self.fleet, self.broker, self.clock = fleet, broker, clock
        self.topics = Topics(fleet)
        self.changed = Condition()
        self.version = 1  #: rises with all that is shown
        self.connected, self.why, self.since = False, "not connected yet", clock()
        self.reports, self.history = Reports(), History()
        self.run: RunView | None = None
        self.answer: AnswerView | None = None
        self.strangers: list[str] = []
        self.unreadable = 0  #: messages that no node of this fleet can have written
        self.refused: list[str] = []  #: topics that the broker keeps from us
        self._unconfirmed: set[str] = set()  # nodes that have not been seen since the broker came back
        self._points: list[tuple[int, tuple[int, float]]] = []  # (version, (round, residual)) of the run
        self._received: dict[str, float] = {}  # when a node has last said something while we listened
        self._parts = dict.fromkeys(("broker", "runs", "run", "answer", "series"), 1)  # their versions
        self._rows: dict[str, tuple[int, Document]] = {}  # by node: since which version the row is this one
        self._removed: dict[str, int] = {}
        self._made, self._made_at = 0, 0.0

    # -- what comes in

    def take(self, message: Message) -> None:
        """A message of a topic that the identity `watch` reads."""
        self.version += 1
        try:
            kind, name, _ = self.topics.parse(message.topic)
            self._take(kind, name, message)
        except Malformed:
            self._unreadable(message.topic)

    def link(self, connected: bool, why: str = "", refused: Sequence[str] = ()) -> None:
        """Whether the broker is there now; if not, why. refused: topics that it keeps from us."""
        if len(refused) != len(self.refused):
            self.refused = [printable(topic, 100) for topic in refused]
            self._touch("broker")
        if (connected, why) != (self.connected, self.why):
            if connected != self.connected:
                self.since = self.clock()
            if not connected:  # another broker may take its place, and nodes may go
                self._unconfirmed = {*self.reports.presences, *self.reports.statuses}
            self.connected, self.why = connected, why
            self._touch("broker")

    def _take(self, kind: str, name: str, message: Message) -> None:
        if kind in ("state", "status"):
            presences, statuses = self.reports.presences, self.reports.statuses
            if name not in presences and name not in statuses and max(len(presences), len(statuses)) >= NODES:
                raise Malformed("more nodes than are shown")
            self.reports.take(kind, name, message.payload, retained=message.retained)
            self._unconfirmed.discard(name)
            if (
                not message.retained
                and message.payload
                and (kind == "status" or isinstance(presences.get(name), Birth))
            ):
                self._received[name] = self.clock()
            report = statuses.get(name)
            if kind == "status" and report and self.history.take(report):
                self._touch("runs")
        elif name == COORDINATOR and kind == "run":
            self._take_run(views.decode(RunView, message.payload) if message.payload else None)
        elif name == COORDINATOR and kind == "answer":
            self.answer = views.decode(AnswerView, message.payload) if message.payload else None
            self._touch("answer")

    def _take_run(self, view: RunView | None) -> None:
        if view is None or self.run is None or view.run != self.run.run:
            self._points = []
            self._touch("series")
        self.run = view
        self._touch("run")
        if view is not None and view.residual is not None:
            if self._points and self._points[-1][1][0] == view.round:
                self._points.pop()
            self._points.append((self.version, (view.round, view.residual)))
            if len(self._points) > POINTS:
                self._points = self._points[::2]
                self._touch("series")

    def _unreadable(self, topic: str) -> None:
        self.unreadable += 1
        parts = topic.split("/", 4)
        name = printable(parts[4], 64) if topic.startswith(f"{ROOT}/{self.fleet}/") and len(parts) == 5 else ""
        if name and not self._is_node(topic) and name not in self.strangers and len(self.strangers) < STRANGERS:
            self.strangers.append(name)
        self._touch("broker")

    def _is_node(self, topic: str) -> bool:
        try:
            self.topics.parse(topic)
        except Malformed:
            return False
        return True

    def _touch(self, part: str) -> None:
        self.version += 1
        self._parts[part] = self.version

    # -- what goes out

    def wanted(self) -> list[str]:
        """Topics to ask for by name: of nodes that somebody names and nobody has seen.

        RabbitMQ hands over what is retained to whoever names the topic, not to a wildcard.
        """
        centre = self.reports.statuses.get(COORDINATOR)
        named = {*(centre.waits_for if centre else ()), *(centre.entries if centre else ())}
        named |= {name for edge in (self.run.edges if self.run else ()) for name in edge}
        unseen = sorted(named - self.reports.presences.keys() - self.reports.statuses.keys())[:NODES]
        return [topic for name in unseen for topic in (self.topics.state(name), self.topics.status(name))]

    def rows(self) -> list[Document]:
        """A row a node: those of `hushgrid status`, with when it last spoke, its budget's share and its last runs."""
        self._make()
        return [row for _, row in self._rows.values()]

    def facts(self) -> Document:
        """The rows and what else the figures show."""
        answer = self.answer
        return {
            "fleet": self.fleet,
            "nodes": self.rows(),
            "broker_up": int(self.connected),
            "setpoints_age_s": round(max(self.clock() - seconds(answer.at), 0.0), 1) if answer else None,
            "setpoints_at": round(seconds(answer.at)) if answer else None,
            "setpoints_until": round(seconds(answer.valid_until)) if answer and answer.valid_until else None,
        }

    def fleet_view(self, since: int = 0) -> Document:
        """The page of the fleet: what has changed since a version; all of it since 0."""
        self._make()
        view = self._head(since)
        view["rows"] = [displayed(row) for version, row in self._rows.values() if version > since]
        view["removed"] = [name for name, version in self._removed.items() if version > since] if since else []
        if self._parts["runs"] > since:
            view["runs"] = self.history.facts()
        return view

    def run_view(self, since: int = 0) -> Document:
        """The page of the run, likewise. `points`: (round, residual); all of the run's if it has `begun`."""
        self._make()
        view = self._head(since)
        view["gone"] = [row["node"] for _, row in self._rows.values() if not row["there"]]
        if max(self._parts["run"], self._parts["series"]) > since:
            view["run"] = msgspec.to_builtins(self.run) if self.run else None
            begun = self._parts["series"] > since
            view["points"] = [point for version, point in self._points if begun or version > since]
            view["begun"] = begun
        if self._parts["answer"] > since:
            view["answer"] = msgspec.to_builtins(self.answer, str_keys=True) if self.answer else None
        if "run" in view or "answer" in view:
            view["edges"] = self._edges()
        return view

    def _edges(self) -> list[tuple[str, str]]:
        """Of the plan's graph; without one those that have flows; else of the star around the coordinator."""
        if self.run is not None and self.run.edges:
            return list(self.run.edges)
        names = [name for name in self._rows if name != COORDINATOR]
        ties = self.answer.tie_flows if self.answer else {}
        splits = ((tie[:no], tie[no + 1 :]) for tie in ties for no, letter in enumerate(tie) if letter == "-")
        flows = [(a, b) for a, b in splits if a in self._rows and b in self._rows]
        return flows or [(COORDINATOR, name) for name in names]

    def _head(self, since: int) -> Document:
        view: Document = {"version": self.version, "now": round(self.clock(), 1), "whole": since == 0}
        if not since:
            view["fleet"] = self.fleet
        if self._parts["broker"] > since:
            view["broker"] = {
                "url": self.broker,
                "connected": self.connected,
                "why": printable(self.why, 200),
                "since": round(self.since, 1),
                "strangers": self.strangers,
                "unreadable": self.unreadable,
                "refused": self.refused,
            }
        return view

    def _make(self) -> None:
        """Rows are made once a version, and again as time passes."""
        now = self.clock()
        if self._made == self.version and now - self._made_at < FRESH_S:
            return
        made = {row["node"]: self._row(row, now) for row in rows(self.fleet, self.reports.nodes())["nodes"]}
        other = {name for name, row in made.items() if name not in self._rows or self._rows[name][1] != row}
        removed = self._rows.keys() - made.keys()
        if (other or removed) and self._made == self.version:
            self.version += 1
        for name in removed:
            self._removed[name] = self.version
        for name in other:
            self._removed.pop(name, None)
        self._rows = {name: (self.version, row) if name in other else self._rows[name] for name, row in made.items()}
        self._made, self._made_at = self.version, now

    def _row(self, row: Document, now: float) -> Document:
        if row["node"] in self._unconfirmed and self.connected and now - self.since > CONFIRM_S:
            row = row | {"there": False, "state": "off", "since": None}
        spoke = max(seconds(row["at"]), self._received.get(row["node"], 0.0))
        silent = row["there"] and row["state"] in ACTIVE and 0 < spoke < now - SILENT_S
        return row | {
            "spoke": round(spoke) or None,
            "silent": silent,
            "share": share(row),
            "strip": self.history.strip(row["node"]),
        }
