"""Everything of a run that anybody but a device's owner can see, with clock, identifiers and the gates' values held still.

A released value is replaced by a constant of its size. What is then left to tell two data sets apart is interference:
a second way, beside the gate's answers, from private data to the outside.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
import time
from contextlib import closing, contextmanager

import msgspec
import numpy as np

from hushgrid.broker.simulation import fleet as simulation
from hushgrid.kernels.errors import HushgridError
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.node import wire
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.problems.records.files import Shard
from tests.support.runs import background_run

NOW = 1_700_000_000.0


def constant(lattice, size):
    """What every answer of this size is: a public number a coordinate, on the grid."""
    return np.rint(0.1 * np.cos(np.arange(1.0, size + 1)) / lattice.g) * lattice.g


@contextmanager
def held_still(monkeypatch, release=None):
    """No clock, no chance, and answers that are constants. `release(lattice, v, n)`: other answers."""
    counter, entropy, honest = itertools.count(1), os.urandom, Lattice.release

    def urandom(size):  # 16 and 32 bytes: nonces, ledger numbers, keys; noise takes other amounts
        return next(counter).to_bytes(size, "big") if size in (16, 32) else entropy(size)

    def ignoring(lattice, v, n):
        honest(lattice, v, n)  # what it refuses is told
        return constant(lattice, v.size)

    with monkeypatch.context() as held:
        held.setattr(os, "urandom", urandom)
        held.setattr(time, "perf_counter", lambda: 0.0)
        held.setattr(time, "time", lambda: NOW)
        held.setattr(Ledger, "now", staticmethod(lambda: "2000-01-01T00:00:00Z"))
        held.setitem(Ledger.__init__.__kwdefaults__, "clock", lambda: 1.0)
        held.setattr(Lattice, "release", release or ignoring)
        yield held


# --- other data, of the same public shape ---


def other_rows(shards, bound, labels):
    """Other rows within the bound, and their labels one on."""
    dice, found = np.random.default_rng(1), []
    for s in shards:
        A = dice.normal(size=s.A.shape)
        A *= 0.9 * bound / np.linalg.norm(A, axis=1, keepdims=True)
        found.append(Shard(A, np.roll(s.b, 1)))
    return found


def far_rows(shards, bound, labels):
    """All rows far beyond the bound, on one line, all labels at the one end."""
    return [Shard(np.full_like(s.A, 1e6 * bound), np.full_like(s.b, labels[1])) for s in shards]


def no_rows(shards, bound, labels):
    """All rows zero, all labels at the other end."""
    return [Shard(np.zeros_like(s.A), np.full_like(s.b, labels[0])) for s in shards]


def one_row(shards, bound, labels):
    """One record replaced: at the bound, its label at the other end."""
    found = []
    for s in shards:
        A, b = s.A.copy(), s.b.copy()
        A[0], b[0] = -np.sign(A[0] + 0.5) * bound / A.shape[1] ** 0.5, labels[0] if b[0] == labels[1] else labels[1]
        found.append(Shard(A, b))
    return found


ROWS = {"other rows": other_rows, "far rows": far_rows, "no rows": no_rows, "one row": one_row}
LOADS = {
    "other loads": lambda d: 1.37 * d + 0.11,
    "no loads": lambda d: np.zeros_like(d),
    "no zero load": lambda d: np.where(d == 0, -0.01, d),
    "the largest loads": lambda d: np.where(np.arange(d.size) % 2, 1e4, -1e4),
}
LABELS = {"least-squares": (-1e6, 1e6), "logistic": (-1.0, 1.0)}


def with_data(setup, name):
    """A prepared scenario whose devices have other data, and which is otherwise the same."""
    if name in ROWS:
        shown = setup.shown
        labels = LABELS.get(shown.objective.kind, (0.0, shown.classes - 1.0))
        setup.shards = ROWS[name](setup.shards, shown.row_bound, labels)
    elif name in LOADS:
        own = setup.loads
        setup.loads = lambda zone: LOADS[name](own(zone))
    return setup


# --- what is seen ---


def tables(path):
    """Every table of a ledger."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return {f"{path.name} {name}": db.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in names}


def left_in(directory):
    """Every file: a ledger by its tables, anything else by its bytes."""
    found = {}
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        if path.suffix == ".ledger":
            found |= tables(path)
        elif not path.name.endswith(("-wal", "-shm", "-log")):
            found[str(path.relative_to(directory))] = path.read_bytes()
    return found


def seen(monkeypatch, directory, raw, *data, out=False, release=None):
    """{what: value} of a run in this process: transcript, logs, outcomes, files, ledgers, its end.

    Over its own data, or those of a name; over several after each other, each a run on the same ledgers.
    """
    transcript, logs, outcomes, crashes = [], [], [], []
    prepare, member, hub = simulation.prepare, simulation.Member, simulation.MemoryBroker

    class Heard(hub):
        def publish(self, publications):
            transcript.extend(tuple(p) for p in publications)
            super().publish(publications)

        def _deliver(self, delivery):
            before = self.crashes
            super()._deliver(delivery)
            crashes.extend([delivery.dst] * (self.crashes - before))

    def listened(*arguments, **options):
        name = arguments[1].name

        def kept(given, about):
            outcomes.append((name, wire.encode(given), about._replace(age=None)))

        return member(*arguments, **options, log=lambda text: logs.append((name, text)), outcome=kept)

    found = {}
    with held_still(monkeypatch, release) as held:
        held.setattr(simulation, "Member", listened)
        held.setattr(simulation, "MemoryBroker", Heard)
        for no, name in enumerate(data or ("",)):
            held.setattr(simulation, "prepare", lambda *given, name=name: with_data(prepare(*given), name))
            found |= {f"{what} {no}": value for what, value in _ended(directory, raw, out).items()}
    found |= {"transcript": transcript, "logs": logs, "outcomes": outcomes, "crashes": crashes}
    return found | left_in(directory)


def _ended(directory, raw, out):
    """How a run ends, and what it returns."""
    try:
        result = simulation.run(raw, state=directory / "state", out=directory / "out" if out else None)
    except HushgridError as error:
        return {"end": (error.exit_code, str(error).replace(str(directory), ""))}
    figures = {"result": msgspec.json.encode(result.summary), "history": repr(result.history)}
    return background_run.arrays(result) | figures | {"setpoints": repr(result.setpoints), "end": (0, "")}


def differing(one, other):
    """Names of what is not the same, or not in both."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
