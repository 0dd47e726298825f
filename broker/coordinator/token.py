"""The coordinator of a walking token: it sees where the token is and since when, and issues it again where it is lost.

No iterate passes through it. It judges by presence and by leases: a token that has stood still for `silent_s` is feared
lost, by `kernels/patterns/token_monitor.py`'s rules, which are safe whatever is feared; a node away for so long is
walked around, and walked to again when it is back. If all members know how to (`Capabilities.recounts`), each such
change begins a recount.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

from hushgrid.broker.coordinator.base import Coordinator
from hushgrid.kernels.errors import HushgridError, Stopped, Suspended
from hushgrid.kernels.patterns.token_monitor import TokenMonitor
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.plan import RunPlan
from hushgrid.node.wire import SMALL, Publication


class TokenCoordinator(Coordinator):
    """A walk of a token over the nodes of a network."""

    def __init__(self, fleet: str, plan: RunPlan, source: str, ledger: Ledger, **options: Any) -> None:
        self.problem = plan.problem
        self._news: tuple[object, ...] = ()  #: what was last heard of the token
        self._since = 0.0  #: when
        self._stood = 0.0  #: when the token last moved
        self._away: dict[str, float] = {}  #: member: since when it is known to be gone
        self._around: list[str] = []  #: the members that it was last said the walk goes around
        super().__init__(fleet, plan, ledger, **options)

    @property
    def monitor(self) -> TokenMonitor:
        assert self.driver is not None
        return cast(TokenMonitor, self.driver.machine)

    # --- the pattern ---

    def machine(self) -> TokenMonitor:
        nodes, adjacent = self.problem.nodes, self.problem.graph.neighbours
        neighbours = {nodes[i]: [nodes[j] for j in js] for i, js in enumerate(adjacent)}
        route, rounds = self.problem.way(self.plan.algorithm, self.run), self.plan.algorithm.rounds
        able = all(
            m in self.membership.births and self.membership.births[m].capabilities.recounts for m in self.members
        )
        return TokenMonitor(neighbours, route, rounds, recounts=able)

    def witnessed(self, member: str) -> Collection[str]:
        nodes, neighbours = self.problem.nodes, self.problem.graph.neighbours
        return [nodes[j] for j in neighbours[nodes.index(member)]]

    def reached(self, member: str, seen: Mapping[str, tuple[int, int, bytes]]) -> int:
        return min(super().reached(member, seen), 1)  # a superseded step is undone, so a node may stand before it

    def dimension(self, member: str) -> int:
        entries: int = self.problem.dimension
        return entries

    @property
    def limit(self) -> int:
        return SMALL + 80 * len(self.members)

    def complete(self, state: Any) -> tuple[int, float | None] | None:
        blocks = state.held[1] // len(self.members)
        return (blocks, None) if blocks else None

    def progress_of(self, state: Any) -> tuple[int, float | None] | None:
        return (state.held[1], None) if state.held[1] else None

    @property
    def lost(self) -> list[str]:
        return list(self.monitor.state.notice.without) if self.driver else []

    @property
    def holder(self) -> str | None:
        state = self.monitor.state if self.driver else None
        return (state.to or state.by or None) if state else None

    @property
    def held_since(self) -> float:
        return self._stood

    @property
    def solved(self) -> list[str]:
        """The nodes that are in the token's sums: those whose problem it is about."""
        missing = self.monitor.state.missing if self.driver else ()
        return [m for m in self.members if m not in missing]

    def owing(self) -> list[str]:
        return [send.dst for send in self.monitor.tick().send]

    def overdue(self, waiting: list[str]) -> list[Publication]:
        monitor, s, now = self.monitor, self.monitor.state, self.silence.now
        if self.lost != self._around:
            self._around = self.lost
            self.log(f"the walk goes around {', '.join(self._around) or 'nobody'}")
        token = s.held, s.by, s.to
        news = token, s.no, len(s.answers) if s.suspect else 0
        if news != self._news:
            self._stood = now if news[:1] != self._news[:1] else self._stood
            self._news, self._since = news, now
        self._away = {m: self._away.get(m, now) for m in self.members if m in self.membership.absent}
        lost = {m for m, since in self._away.items() if now - max(since, self.silence.fresh) > self.silent_s}
        still = now - max(self._since, self.silence.fresh) > self.silent_s
        try:
            if now - max(self._stood, self.silence.fresh) > self.silent_s + self.wait_s:
                raise Suspended(self._stands())
            if s.suspect:
                other = s.by if s.suspect == s.to else s.to
                # the one suspected is there: it is the other end of the hop that says nothing
                return self._suspect(other) if still and s.suspect in s.answers and other in monitor.missing() else []
            if still:
                return self._suspect(next((m for m in (s.to, s.by) if m in self.membership.absent), s.to or s.by))
            before = set(s.notice.without)
            without = lost | {m for m in before if m in self.membership.absent or m not in s.answers}
            if without != before and not {s.by, s.to} & (lost - before):
                return self._act(monitor.around(without))
        except Stopped as error:
            return self._finish(error)
        return []

    # --- inside ---

    def _finish(self, error: HushgridError | None) -> list[Publication]:
        out = super()._finish(error)
        if self.driver:  # the farewell of who is lost is not waited for
            lost = dict.fromkeys(self.monitor.state.notice.without, "")
            self.membership.absent = lost | self.membership.absent
        return out

    def _suspect(self, who: str) -> list[Publication]:
        hop = self.monitor.state.held[1]
        self.log(f"token {hop} stands still since {self.silence.now - self._stood:.0f} s: {who} is feared lost")
        return self._act(self.monitor.suspect(who))

    def _act(self, step: Any) -> list[Publication]:
        assert self.driver is not None
        return self._publish(self.driver.act(step))

    def _stands(self) -> str:
        """Who has the token, since when, and who says nothing."""
        s = self.monitor.state
        since = self.silence.moment(self.silence.now - self._stood)
        silent = [m for m in self.members if m not in s.answers]
        who = f"{', '.join(silent)} silent" if silent else "nobody silent"
        return (
            f"token {s.held[1]} stands still between {s.by or s.to} and {s.to} since {since}, {who}, expected an answer"
        )


COORDINATOR = TokenCoordinator
