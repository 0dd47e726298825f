"""What a coordinator does now, or waits for, and what it has found: in words for systemd, and for whoever watches the
fleet as a status and as the two views of `node/views.py`.

The views are made from the plan and from messages that the coordinator has had, and from the clock. They are extra: a
broker that refuses their topics costs a line of the journal, and the run goes on without them.

What has happened, and what is due, is kept by running time, and said by the clock of the moment: somebody may set that
clock meanwhile, and nothing may seem to have begun after it has ended, or to be late by an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite
from typing import Any

from hushgrid.broker.coordinator.base import Coordinator
from hushgrid.kernels.errors import printable
from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.types import Document
from hushgrid.node import status, system, views
from hushgrid.node.config.coordinator import CoordinatorConfig, SiteConfig
from hushgrid.node.log import Warned
from hushgrid.node.problems.kind import Tests
from hushgrid.node.schema.durations import seconds
from hushgrid.node.status import NAMED, Status
from hushgrid.node.transport.certificate import OwnCertificate, days_of
from hushgrid.node.transport.link import Link
from hushgrid.node.versions import RUNNING
from hushgrid.node.views import ASKED, EDGES, PRICES, AnswerView, RunView
from hushgrid.node.wire import COORDINATOR, WIRE

OFTEN_S, SELDOM_S = 2.0, 30.0  #: between two statuses: if somebody else is waited for, and of a run that goes on
ALIVE_S = 5.0  #: between two statuses if another coordinator stands by, at most; else a quarter of its patience
STATES: dict[str, status.State] = {"finishing": "over", "over": "idle"}  #: of a phase; else the phase itself


def activity(coordinator: Coordinator) -> str:
    """What a coordinator does, or waits for."""
    run = coordinator.run.hex()[:8]
    match coordinator.phase:
        case "gathering":
            return f"waits for {', '.join(coordinator.waiting)}"
        case "joining":
            return f"run {run}: waits for {', '.join(coordinator.waiting)} to join"
        case "running":
            return f"in run {run}"
        case _:
            return f"run {run} is over: waits for {', '.join(coordinator.waiting)} to hear it"


class Reporter:
    """Publishes the status of a fleet's coordinator, run after run."""

    def __init__(self, config: CoordinatorConfig | SiteConfig) -> None:
        self.config = config
        self.since = system.boottime()  #: s of running time, as all times here
        self.due: float | None = None  #: when the next run is due, if there is a schedule
        self.refuses: tuple[str, ...] = ()  #: the members that have refused in this interval, or the last one
        self.certificate = OwnCertificate(config.tls)  #: of its connection
        self.interval: status.Interval | None = None  #: the last one, if there is a schedule
        self._plan: dict[str, Any] = {}  #: what a device can compare itself with
        self._gone: dict[str, float] = {}
        self._waits: tuple[str, ...] = ()
        self._waited = 0.0  #: since when, of time.monotonic()
        self._said: tuple[object, ...] = ()
        self._at = -SELDOM_S

    @property
    def again_s(self) -> float | None:
        """Seconds until it is said again, whatever happens; None: nobody stands by."""
        standby = self.config.standby if isinstance(self.config, CoordinatorConfig) else None  # a site has none
        return None if standby is None else min(ALIVE_S, seconds(standby) / 4)

    def __call__(self, coordinator: Coordinator, link: Link, now: float | None = None) -> None:
        """At every turn of the loop: says it again if something is another now, or has been for long."""
        now = system.machine.monotonic() if now is None else now
        if (now - self._at < OFTEN_S and coordinator.phase == "running") or not link.connected:
            return
        waits = tuple(coordinator.waiting) if coordinator.phase != "over" else ()
        if waits != self._waits:
            self._waits, self._waited = waits, now
        self._notice(coordinator)
        missing = waits if coordinator.phase != "running" else ()
        news = (link.connects, coordinator.phase, coordinator.run, missing, tuple(self._gone), self.due, self.refuses)
        again = SELDOM_S if coordinator.phase == "running" else inf
        if news == self._said and now - self._at < min(again, self.again_s or inf):
            return
        if link.connects != (self._said or (0,))[0]:
            self.certificate.take(system.machine.wall())
        self._said, self._at = news, now
        self.publish(coordinator, link, waits_s=now - self._waited if waits else None)

    def plans(self, coordinator: Coordinator) -> None:
        """The plan in force is this one's, of all members: a run without some of them says nothing of those."""
        plan, entries = coordinator.plan, {m: coordinator.dimension(m) for m in coordinator.members[:NAMED]}
        self._plan = {"problem": plan.kind.devices, "digest": plan.problem.digest[:12], "entries": entries}

    def anew(self, left: float | None = None) -> None:
        """What it has said is not true any more: a run has ended, and the next one is due in so many seconds."""
        self._said, self.due = (), None if left is None else system.boottime() + left

    def publish(
        self, coordinator: Coordinator, link: Link, state: status.State | None = None, waits_s: float | None = None
    ) -> None:
        """Says it now. `state`: another than that of its phase."""
        payload = status.encode(self.status(coordinator, state, waits_s))
        link.send([(coordinator.topics.status(COORDINATOR), payload, True)])

    def status(self, coordinator: Coordinator, state: status.State | None, waits_s: float | None) -> Status:
        """What is public of the coordinator."""
        stored = coordinator.ledger.runs.last(state=False)
        now, running = system.machine.wall(), system.boottime()
        begun = coordinator.phase in ("running", "finishing")
        zero = now - running  # when running time was 0, by the clock of now
        done = coordinator.complete(coordinator.driver.machine.state) if coordinator.driver else None
        algorithm = coordinator.plan.algorithm
        return Status(
            node=COORDINATOR,
            version=RUNNING,
            wire=WIRE,
            session=coordinator.session,
            since=status.moment(zero + self.since),
            at=status.moment(now),
            state=state or STATES.get(coordinator.phase) or coordinator.phase,
            run=stored.id.hex() if stored else "",
            last=stored.status if stored else "",
            round=done[0] if done else None,
            rounds=algorithm.rounds,
            waits_for=self._waits[:NAMED],
            waits_s=None if waits_s is None else round(waits_s, 1),
            late_s=None if self.due is None or begun else round(max(running - self.due, 0.0), 1),
            due=None if self.due is None else status.moment(zero + self.due),
            gone={name: status.moment(zero + since) for name, since in list(self._gone.items())[:NAMED]},
            refuses=self.refuses[:NAMED],
            **self._plan,
            interval=self.interval,
            certificate_days=days_of(self.config.tls),
            certificate=self.certificate.number,
            again_s=self.again_s,
            forged=coordinator.forgeries if self.config.trust else None,
        )

    def _notice(self, coordinator: Coordinator) -> None:
        """Since when somebody has been gone: a last will says no time."""
        for name in coordinator.membership.absent:
            self._gone.setdefault(name, system.boottime())
        for name in coordinator.membership.births:
            self._gone.pop(name, None)


# --- the views of a run and of an answer ---

EVERY_S = 1.0  #: between two views of a run that goes on
LARGEST = 1e15  #: a figure that is larger is none
WORDS, CELL = 200, 64  #: characters of a text, and of a cell of a table


class Views:
    """Publishes both views of a fleet's coordinator, run after run: one a second, and each run's last state at once."""

    def __init__(self, log: Callable[[str], None], wall: Callable[[], float] = system.wall) -> None:
        self.log, self.wall = log, wall
        self._next = -inf  #: when the run may be looked at again, of time.monotonic()
        self._ended = b""  #: the run whose last state was published
        self._last: RunView | None = None  #: what was published, but for its time
        self._answer = b""  #: the view of the last answer
        self._owes = False  #: the answer is to be published
        self._connection = (0, 0)  #: which link, and which of its connections
        self._refused: set[str] = set()  #: topics that the broker does not let it publish on

    def __call__(self, coordinator: Coordinator, link: Link, now: float | None = None) -> None:
        """At every turn of the loop: publishes what is another now."""
        if not link.connected:
            return
        self._notice(coordinator, link)
        now = system.machine.monotonic() if now is None else now
        if self._owes:
            self._owes = False
            self._send(link, coordinator.topics.answer(), self._answer)
        ends = coordinator.ending and coordinator.run not in (b"", self._ended)
        if not coordinator.run or (now < self._next and not ends):
            return
        self._next = now + EVERY_S
        self._ended = coordinator.run if coordinator.ending else b""
        view = run_view(coordinator, self.wall())
        if self._last is None or _timeless(view) != _timeless(self._last):
            self._last = view
            self._send(link, coordinator.topics.run(), self._encoded(view))

    def answered(self, coordinator: Coordinator, tests: Tests | None, known: Document | None = None) -> None:
        """A run has ended: what it has found, if it has found something, is published next. `known`: more fields."""
        if coordinator.error is None and coordinator.run and coordinator.ending:
            self._answer = self._encoded(answer_view(coordinator, tests, self.wall(), known))
            self._owes = True

    def retry(self) -> None:
        """The broker's access list may be another now."""
        self._refused.clear()

    # --- inside ---

    def _notice(self, coordinator: Coordinator, link: Link) -> None:
        """A broker that was away may have lost what it retained; one that refuses a topic is not asked again."""
        connection = id(link), link.connects
        if connection != self._connection:
            self._connection = connection
            if link.connects > 1:
                self._last, self._owes = None, bool(self._answer)
        if link.refused:
            self._refused |= {topic for topic, _ in link.refused}

    def _send(self, link: Link, topic: str, payload: bytes) -> None:
        if payload and topic not in self._refused:
            link.send([(topic, payload, True)])

    def _encoded(self, view: RunView | AnswerView) -> bytes:
        try:
            return views.encode(view)
        except Malformed as error:
            self.log(Warned(f"nothing is shown of run {view.run[:8]}: {error}"))
            return b""


def run_view(coordinator: Coordinator, wall: float) -> RunView:
    """How the run stands, at this time of the wall clock, s since 1970."""
    plan, phase, driver = coordinator.plan, coordinator.phase, coordinator.driver
    algorithm, names = plan.algorithm, coordinator.members
    done = coordinator.complete(driver.machine.state) if driver else None
    going = not coordinator.ending
    asked = coordinator.waiting if going else []
    state = phase if going else "stopped" if coordinator.error else "done"
    edges = [(plan.nodes[i], plan.nodes[j]) for i, j in plan.problem.edges] if plan.kind.records else []
    token = algorithm.pattern == "token"
    holder = coordinator.holder if going else None
    since = coordinator.held_since if holder else coordinator.silence.since(asked)
    made = coordinator.progress_of(driver.machine.state) if driver and token else None
    return RunView(
        run=coordinator.run.hex(),
        at=status.moment(wall),
        algorithm=algorithm.name,
        pattern=algorithm.pattern,
        state="joining" if state == "gathering" else state,
        round=done[0] if done else 0,
        rounds=-(-algorithm.rounds // len(names)) if token else algorithm.rounds,
        activation=(made[0] if made else 0) if token else None,
        residual=_figure(done[1]) if done else None,
        holder=holder,
        asked=tuple(asked[:ASKED]),
        asked_in_all=len(asked),
        since=status.moment(wall - (coordinator.silence.now - since)) if holder or asked else None,
        lost=tuple(coordinator.lost[:ASKED]),
        nodes=len(names),
        edges=tuple(edges[:EDGES]),
        edges_in_all=len(edges),
    )


def answer_view(
    coordinator: Coordinator, tests: Tests | None, wall: float, known: Document | None = None
) -> AnswerView:
    """What a run that is done has found. `known`: fields of the view that no message says."""
    driver, fields = coordinator.driver, coordinator.view(tests)
    done = coordinator.complete(driver.machine.state) if driver else None
    more: Document = {"outcome": "answer", **(known or {}), **_limited(fields)}
    return AnswerView(
        run=coordinator.run.hex(),
        at=status.moment(wall),
        kind=coordinator.plan.kind.name,
        rounds=done[0] if done else 0,
        residual=_figure(done[1]) if done else None,
        **more,
    )


def _timeless(view: RunView) -> tuple[object, ...]:
    """A view without the time at which it was made."""
    return tuple(getattr(view, key) for key in view.__struct_fields__ if key != "at")


def _limited(fields: Document) -> Document:
    """The same within the limits of a view: long fields are cut, and `cut` says so; no figure is infinite."""
    out, cut = Document(), dict[str, int]()
    for key, value in fields.items():
        most = PRICES if key == "prices" else EDGES
        if isinstance(value, Mapping):
            known = {name: figure for name, one in value.items() if (figure := _figure(one)) is not None}
            out[key] = dict(list(known.items())[:most])
        elif key == "table":
            out[key] = tuple(tuple(map(_cell, row)) for row in value[:most])
        else:
            out[key] = _figure(value) if isinstance(value, float) else value
        if isinstance(value, Mapping | Sequence) and not isinstance(value, str) and len(value) > most:
            cut[key] = len(value)
    if "ac" in out:
        out["ac"] = printable(out["ac"], WORDS)
    return out | ({"cut": cut} if cut else {})


def _cell(value: str | float | None) -> str | float | None:
    return printable(value, CELL) if isinstance(value, str) else _figure(value)


def _figure(value: float | None) -> float | None:
    return float(value) if value is not None and isfinite(value) and abs(value) <= LARGEST else None
