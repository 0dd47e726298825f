"""A fleet in this process of which one node's disk or power fails at a chosen moment, and what its files then hold.

A boundary is a commit of SQLite, a sync, a rename, a write in place (a note of what is drawn, the log, a mark), or a
publication of the victim. Fails at one:

 - before, after: the process dies; its files are what they were at that instant.
 - no space, read-only: the disk takes nothing from there on, over two restarts, and then again.
 - renames lost, data lost: the power is cut after the boundary. What was not synced is gone: a rename whose folder was
   not, or (as other file systems have it) the content of a file that was not, under its new name.

Transactions of SQLite count as synced (the ledger checks synchronous=FULL at its start), the log in front of them as
far as it was. The note of what is drawn is not: a power cut takes it. Nor is a mark that is written in place.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from functools import partial
from math import inf
from pathlib import Path

from hushgrid.broker.coordinator.create import coordinator
from hushgrid.broker.simulation.memory import Delivery, MemoryBroker
from hushgrid.grid_cases.case import loads
from hushgrid.kernels.errors import HushgridError
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.node import wire
from hushgrid.node.config.device import load_device
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.noise_journal import NoiseJournal
from hushgrid.node.runtime.member import Member, Simulated
from hushgrid.node.wire import COORDINATOR, Publication
from tests.support.devices.asked_pair import rows_file, zone_file

CRASHES = ("before", "after")
FULL = {
    "no space": (errno.ENOSPC, sqlite3.SQLITE_FULL, "database or disk is full"),
    "read-only": (errno.EROFS, sqlite3.SQLITE_READONLY, "attempt to write a readonly database"),
}
CUTS = ("renames lost", "data lost")
KINDS = (*CRASHES, *FULL, *CUTS)
RESTARTS = 2  #: over which a disk takes nothing
SEED = 7


class Dead(BaseException):
    """The process is gone: nothing of it runs any more."""


class Disk:
    """The victim's files, and what happens at the k-th boundary. k = 0: nothing, they are counted."""

    def __init__(self, held, victim, roots, kind="", k=0):
        self.victim, self.roots, self.kind, self.k = victim, roots, kind, k
        self.current = ""  #: the node that runs
        self.crossed = []  #: boundaries so far
        self.full = 0  #: restarts for which the disk still takes nothing
        self.synced = {}  #: inode: its content when it was last synced
        self.names = {}  #: path: content, as of its folder's last sync
        self.committed = {}  #: path: content of SQLite's files at the last commit
        self.left = None  #: files as they are found at the next start
        for root in roots:
            root.mkdir(parents=True, exist_ok=True)
        disk, replace, rename, pwrite = self, os.replace, os.rename, os.pwrite
        fsync, fdatasync = os.fsync, os.fdatasync

        class Connection(sqlite3.Connection):
            def execute(self, sql, *values):
                act = partial(super().execute, sql, *values)
                return disk.cross("commit", act) if sql == "COMMIT" else disk.write(act, sql.startswith("BEGIN"))

        held.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Connection))
        held.setattr(
            os, "replace", lambda a, b, **o: disk.cross("rename", lambda: disk.moved(a, b, lambda: replace(a, b, **o)))
        )
        held.setattr(
            os, "rename", lambda a, b, **o: disk.cross("rename", lambda: disk.moved(a, b, lambda: rename(a, b, **o)))
        )
        held.setattr(os, "fsync", lambda fd: disk.cross("sync", lambda: disk.sync(fd, fsync)))
        held.setattr(os, "fdatasync", lambda fd: disk.cross("sync", lambda: disk.sync(fd, fdatasync)))
        held.setattr(os, "pwrite", lambda *given: disk.cross(disk.written(given[0]), lambda: pwrite(*given)))

    # --- boundaries ---

    def cross(self, what, act):
        """Do `act` at a boundary, or what happens there instead."""
        if self.current != self.victim:
            return act()
        if self.left is not None:  # what handles an error is dead too
            raise Dead
        if self.full and what != "publish":
            raise self._error(what)
        self.crossed.append(what)
        now = len(self.crossed) == self.k
        if now and self.kind == "before":
            self._die(self._files())
        if now and self.kind in FULL and what != "publish":
            self.full = RESTARTS + 1
            raise self._error(what)
        result = act()
        if what == "commit":
            ledgers = [p for p in self._present() if ".ledger" in p.name and not p.name.endswith("-log")]
            self.committed = {p: p.read_bytes() for p in ledgers if p.suffix != ".new"}
            self.synced |= {p.stat().st_ino: p.read_bytes() for p in ledgers if p.suffix == ".new"}
        if now and self.kind == "after":
            self._die(self._files())
        if now and self.kind in CUTS:
            self._die(self._durable())
        return result

    def write(self, act, begins):
        """The begin of a transaction, which a disk that takes nothing refuses."""
        if begins and self.current == self.victim:
            if self.left is not None:
                raise Dead
            if self.full:
                raise self._error("commit")
        return act()

    @staticmethod
    def written(fd):
        """What a write in place is to: the note of what is drawn, the log, or a mark."""
        name = os.readlink(f"/proc/self/fd/{fd}")
        return "note" if name.endswith(".drawn") else "log" if name.endswith("-log") else "mark"

    def moved(self, source, target, act):
        target = Path(target)
        if target.exists():
            self.synced.pop(target.stat().st_ino, None)
        return act()

    def sync(self, fd, fsync):
        fsync(fd)
        if self.current != self.victim:
            return
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if path.is_dir():
            self.names = {p: c for p, c in self.names.items() if p.parent != path}
            self.names |= {p: self.synced.get(p.stat().st_ino, b"") for p in path.iterdir() if p.is_file()}
        else:
            self.synced[path.stat().st_ino] = path.read_bytes()
            if path in self.names:
                self.names[path] = self.synced[path.stat().st_ino]

    def _error(self, what):
        number, code, text = FULL[self.kind]
        if what != "commit":
            return OSError(number, os.strerror(number))
        error = sqlite3.OperationalError(text)
        error.sqlite_errorcode = code
        return error

    def _die(self, files):
        self.left = files
        raise Dead

    # --- files ---

    def _present(self):
        return [p for root in self.roots for p in root.rglob("*") if p.is_file() and not p.name.endswith("-shm")]

    def _files(self):
        return {p: p.read_bytes() for p in self._present()}

    def _durable(self):
        """What a power cut leaves."""
        if self.kind == "renames lost":
            found = dict(self.names)
        else:
            found = {p: self.synced.get(p.stat().st_ino, b"") for p in self._present()}
        return {p: c for p, c in found.items() if p not in self.committed} | self.committed

    def restart(self):
        """The files as a new process finds them."""
        self.full = max(self.full - 1, 0)
        if self.left is not None:
            for root in self.roots:
                shutil.rmtree(root)
                root.mkdir(parents=True)
            for path, content in self.left.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                self.synced[path.stat().st_ino] = content
            self.names, self.left = dict(self.left), None


class Fleet(MemoryBroker):
    """Devices as their daemons make them, on seeded noise, and a coordinator; the victim is started again when it
    ends.
    """

    def __init__(self, held, directory, setup, victim, kind="", k=0):
        self.directory, self.setup, self.held = directory, setup, held
        self.files = {n: self._file(n) for n in setup.plan.nodes}
        self.disk = Disk(held, victim, [directory / victim / "state", directory / victim / "mark"], kind, k)
        self.ledgers, self.notes = {}, {}
        self.exits, self.said = [], 0  # `said`: the highest mark that has left the victim
        self.met = set()  #: (data, noise) of the victim's answers: a repeated one is the same
        self.unpaid = 0  #: of them, the most that the ledger lacked when the victim had started again
        release = Lattice.release

        def released(lattice, v, n):
            if self.disk.current == victim:
                self.met.add((v.tobytes(), n.tobytes()))
            return release(lattice, v, n)

        held.setattr(Lattice, "release", released)
        super().__init__([], self.start)
        for name in (*setup.plan.nodes, COORDINATOR):
            self.endpoints[name] = self.start(name)
            self._follow(name)

    # --- what a machine runs ---

    def _file(self, name):
        own = self.directory / name
        mark = {"mark": f"mark/{name}.mark"}
        if hasattr(self.setup, "shards"):
            shown, (A, b) = self.setup.public, self.setup.device(name).shard
            of = getattr(shown, "objective", None)  # a sum has none
            labels = {"softmax": shown.classes, "logistic": 2}.get(of.kind, (-10.0, 10.0)) if of else (-10.0, 10.0)
            return rows_file(own, A, b, {"replace-one-record": {"clip": 1.0}}, labels, name, **mark)
        buses = tuple(sorted(self.setup.plan.problem.zones[name]))
        case = self.setup.case
        return zone_file(own, self.setup.problem.case, buses, loads(case, buses), case.base_mva, name, **mark)

    def start(self, name):
        """A new process of a node, which may fail again; the victim's is tried until it stands."""
        for _ in range(10):
            self._end(name)
            if name == self.disk.victim:
                self.disk.restart()
            ok, end = self._guarded(name, lambda: self._build(name))
            if ok:
                if name == self.disk.victim:
                    self.unpaid = max(self.unpaid, len(self.met) - end.ledger.spends.no)
                return end
        raise AssertionError(f"{name} does not start again: {self.exits}")

    def _end(self, name):
        """What the end of a process does to its open files."""
        if name in self.ledgers:
            self.ledgers.pop(name).close()
        if name in self.notes:
            os.close(self.notes.pop(name)._file)

    def _build(self, name):
        place = self.directory / name
        if name == COORDINATOR:
            ledger = self.ledgers[name] = Ledger(place / "state" / f"{name}.ledger", name)
            scenario = self.setup.scenario
            source = scenario.kind.source(scenario.problem)
            return coordinator("pair", self.setup.plan, source, ledger, wait_s=inf, silent_s=inf)
        config = load_device(self.files[name])
        device = config.kind.device(config, str(self.files[name]))
        ledger = Ledger(Path(config.state) / f"{name}.ledger", name, Path(config.mark))
        self.ledgers[name] = ledger
        journal = self.notes[name] = NoiseJournal(place / "state" / f"{name}.drawn", ledger)
        return Member(
            config.fleet, device, ledger, config.budget, config.allow, Simulated(SEED),
            outcome=config.kind.outcome(device, Path(config.state)), journal=journal,
        )  # fmt: skip

    def _guarded(self, name, act):
        """(True, what it returns), or (False, None): the process has ended."""
        self.disk.current = name
        try:
            return True, act()
        except Dead:
            pass
        except HushgridError as error:
            self.exits.append((error.exit_code, str(error)))
        except Exception as error:
            self.exits.append((1, f"{type(error).__name__} {error}"))
        finally:
            self.disk.current = ""
        return False, None

    # --- the broker ---

    def run(self, until, interrupted=lambda: False):
        for name in list(self.endpoints):
            self._do(name, lambda e: [e.on_tick(self.now), None][1] or [])
            self._connect(name)
        while not until():
            if self.queue:
                self._deliver(self._next())
            else:
                self.tick()

    def tick(self):
        self.now += 1.0
        assert self.now < 3000, f"nothing happens any more: {self.exits}"
        for name in list(self.endpoints):
            self._do(name, lambda e: e.on_tick(self.now))
            self._do(name, lambda e: e.idle())

    def _connect(self, name):
        self._follow(name)
        for topic in self.endpoints[name].subscriptions:
            if topic in self.retained:
                self.queue.append(Delivery(name, topic, self.retained[topic]))
        self._do(name, lambda e: e.connected())

    def _deliver(self, delivery):
        if self._do(delivery.dst, lambda e: e.on_message(delivery.topic, delivery.payload)):
            self._follow(delivery.dst)
            self._do(delivery.dst, lambda e: e.idle())

    def _do(self, name, act):
        """One call of an endpoint and the publication of what it returns; it starts again where it ends amid."""
        end = self.endpoints[name]
        ok, out = self._guarded(name, lambda: act(end))
        for publication in out or ():
            ok = (
                ok
                and self._guarded(name, lambda p=publication: self.disk.cross("publish", lambda: self._hear(name, p)))[
                    0
                ]
            )
        if not ok:
            self.queue = [d for d in self.queue if d.dst != name]
            topic, payload = end.will
            self.endpoints[name] = self.start(name)
            self.publish([Publication(topic, payload, True)])
            self._connect(name)
        return ok

    def _hear(self, name, publication):
        if name == self.disk.victim and name != COORDINATOR and "/state/" not in publication.topic:
            mark = wire.decode_envelope(publication.payload, 1 << 22).mark
            self.said = max(self.said, mark.no if mark else 0)
        self.publish([publication])

    # --- a run, and what it leaves ---

    def to_the_end(self):
        """{what: value} of the run's end: the error, outcome files, spends of every device."""
        centre = lambda: self.endpoints[COORDINATOR]  # noqa: E731
        self.run(lambda: centre().finished)
        centre().conclude()
        found = {"error": centre().error and str(centre().error)}
        for name in self.setup.plan.nodes:
            ledger = self.endpoints[name].ledger
            found[f"spends {name}"] = [(s.answer, s.kind, s.value) for s in ledger.spends.rows()]
            found[f"status {name}"] = ledger.runs.last().status
            found |= {f"outcome {name}": content_of(p) for p in outcome_files(self.directory / name / "state")}
            found[f"wrong {name}"] = ledger.verify()
        for name in list(self.ledgers):
            self._end(name)
        return found


def outcome_files(state):
    return [p for p in state.iterdir() if p.suffixes[-2:] in ([".model", ".npz"], [".setpoints", ".csv"])]


def content_of(path):
    """An outcome that opens: an archive's arrays as bytes, or the text of a table."""
    if path.suffix != ".npz":
        return path.read_text()
    import numpy as np

    with np.load(path, allow_pickle=False) as archive:
        return {key: archive[key].tobytes() for key in archive.files}
