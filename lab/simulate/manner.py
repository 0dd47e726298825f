"""How the owners of one life have set their devices, and somebody its coordinator: drawn, as what goes wrong is."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hushgrid.kernels.privacy.accounting import gdp_epsilon
from hushgrid.kernels.types import Document
from hushgrid.lab.simulate.fleet import Fleet
from hushgrid.node.wire import COORDINATOR

WINDOW, WINDOW_S = "6h", 6 * 3600.0
RETENTION, RETENTION_S = "5h", 5 * 3600.0
PLENTY = 20.0  #: runs in a window: more than there are
ROOM = 1 + 1e-9  #: of a budget for so many runs: a sum of decimals is rounded
LIVE = "live.csv"  #: the file of a source
OWN = ("rows.csv", "loads.csv", "profiles.csv")  #: names of a device's data


class Manner(Struct, frozen=True):
    """What differs from a fleet in which all must answer, cold, from a file that stands still, without end."""

    quorum: int = 0  #: members that are enough; 0: all of them
    warm: bool = False  #: each run begins where the last one has ended
    room: float = 0.0  #: runs that a device's budget has room for within its window; 0: no end
    source: bool = False  #: data come from a source
    fed: bool = False  #: data files are replaced once an interval, by the same content
    liars: bool = False  #: somebody sends messages in the names of others
    owned: bool = False  #: owners change what they allow, and their data

    @property
    def same(self) -> bool:
        """Whether a run leaves what a quiet one leaves."""
        return not (self.warm or self.liars)

    @property
    def without(self) -> set[str]:
        """Kinds of faults that such a life has none of."""
        return {kind for kind, has in (("forge", self.liars), ("owner", self.owned), ("source", self.owned)) if not has}


USUAL = Manner()


class Limit(Struct, frozen=True):
    """A budget as a checker judges it."""

    epsilon: float
    delta: float
    window_s: float | None
    retention_s: float | None


def drawn(chance: np.random.Generator, fleet: Fleet) -> Manner:
    """One of a life: half of them differ in nothing."""
    if chance.random() < 0.5:
        return USUAL
    n, day = len(fleet.nodes), ahead(fleet)
    quorum = max(n - 1, 1) if chance.random() < 0.5 and not day else 0
    room = float(chance.integers(2, 8)) + 0.5 if windowed(fleet) and chance.random() < 0.6 else 0.0
    source = not day and chance.random() < 0.5
    warm, liars, owned = (bool(chance.random() < share) for share in (0.3, 0.35, 0.5))
    return Manner(quorum, warm, room, source, bool(room or source or chance.random() < 0.2), liars, owned)


def plain(chance: np.random.Generator, fleet: Fleet) -> Manner:
    """One in which all must answer: data stand still, or come from a source."""
    source = windowed(fleet) and not ahead(fleet) and chance.random() < 0.5
    return Manner(room=PLENTY, source=True, fed=True) if source else USUAL


def windowed(fleet: Fleet) -> bool:
    """Whether budgets may have a window."""
    return all(t.accountant != "pure-optimal" for t in fleet.terms.values())


def ahead(fleet: Fleet) -> bool:
    """Whether its devices have profiles of a day."""
    return "profiles.csv" in fleet.data[fleet.nodes[0]]


def dressed(fleet: Fleet, manner: Manner) -> Fleet:
    """The fleet in this manner."""
    configs, data = dict(fleet.configs), dict(fleet.data)
    coordinator = configs[COORDINATOR]
    configs[COORDINATOR] = coordinator | {"run": coordinator["run"] | {"warm_start": manner.warm}}
    if manner.quorum:
        configs[COORDINATOR] |= {"quorum": manner.quorum}
    for name in fleet.nodes:
        if manner.room:
            configs[name] = configs[name] | {"budget": budget(fleet, name, manner.room)}
        if manner.source:
            configs[name] = configs[name] | {"source": {"file": LIVE}}
            if manner.room:
                configs[name] |= {"retention": RETENTION}
            data[name] = data[name] | {LIVE: data[name][own_file(fleet, name)]}
    return fleet._replace(configs=configs, data=data)


def budget(fleet: Fleet, name: str, runs: float) -> Document:
    """The section of a device whose window has room for so many runs."""
    before: Document = fleet.configs[name]["budget"]
    return before | {"epsilon": cost(fleet, name, runs) * ROOM, "window": WINDOW}


def cost(fleet: Fleet, name: str, runs: float = 1.0) -> float:
    """Epsilon of so many whole runs, at the delta of the device's budget."""
    t = fleet.terms[name]
    answers = round(runs * t.answers)
    return float(t.cost(answers)) if t.mechanism == "laplace" else _gaussian(t.per_answer, answers)


def _gaussian(mu: float, answers: int) -> float:
    return float(gdp_epsilon(mu * answers**0.5, 1e-5))


def limit(config: Document) -> Limit:
    """That of a device's file."""
    section = config["budget"]
    window, retention = WINDOW_S if "window" in section else None, RETENTION_S if "retention" in config else None
    return Limit(section["epsilon"], section.get("delta") or 0.0, window, retention)


def own_file(fleet: Fleet, name: str) -> str:
    """The name of the file with a device's data."""
    return next(file for file in OWN if file in fleet.data[name])
