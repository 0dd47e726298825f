"""Two devices from their files that are asked the same, with equal noise: what they say is compared, what they spend is
counted.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import time
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from hushgrid.kernels.machine import Malformed
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.node import wire
from hushgrid.node.config.device import load_device
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_log import Tables
from hushgrid.node.privacy.noise_journal import NoiseJournal
from hushgrid.node.runtime.member import Member
from hushgrid.node.wire import COORDINATOR, Envelope, Join, Plan
from tests.support.runs.background_run import NOW, constant

ROOM = 3 << 29  #: bytes more than now that a question may take: what asks for more is a MemoryError
HANG_S = 4.0  #: of processor time, after which a question is given up
SLOW_S = 1.0  #: of processor time, that no question may take
LARGEST = 2.0**40  #: of an iterate that is sent
EPSILON = 1e6  #: of a device: its budget is not what is tried here


class Hung(BaseException):
    """A question was not answered in time. No handler of errors takes it for one of its own."""


class Stream:
    """Bytes that two devices get alike."""

    def __init__(self, seed):
        self.random = np.random.Generator(np.random.Philox(key=seed))

    def __call__(self, size):
        return self.random.bytes(size)


@dataclass
class Half:
    """One of the two devices."""

    member: Member
    stream: Stream
    released: int = 0  #: answers that have left its gate
    outcomes: list = field(default_factory=list)

    @property
    def spent(self):
        return self.member.ledger.spends.no


def declared(labels):
    """How a device file declares its labels."""
    return {"classes": labels} if isinstance(labels, int) else dict(zip(("low", "high"), labels, strict=True))


def rows_file(directory, A, b, adjacency, labels, name="n0", **more):
    """A device file over rows, and the rows."""
    directory.mkdir(parents=True, exist_ok=True)
    np.savez(directory / "rows.npz", A=np.asarray(A, float), b=np.asarray(b, float))
    return _file(directory, name, "rows.npz", adjacency, labels=declared(labels), **more)


def zone_file(directory, case, buses, d, base_mva, name="z1", **more):
    """A device file over a zone, and its loads d (p.u., p of each bus, then q)."""
    directory.mkdir(parents=True, exist_ok=True)
    p, q = np.split(np.asarray(d) * base_mva, 2)
    table = ["bus,p_mw,q_mvar", *(f"{b},{x!r},{y!r}" for b, x, y in zip(buses, p.tolist(), q.tolist(), strict=True))]
    (directory / "loads.csv").write_text("\n".join(table) + "\n")
    data = {"case": case, "zone": list(buses), "loads": "loads.csv"}
    return _file(directory, name, data, {"bounded-change": 0.01}, **more)


def _file(directory, name, data, adjacency, **more):
    budget = {"epsilon": EPSILON, "delta": 1e-5, "adjacency": adjacency}
    node = {
        "node": name,
        "fleet": "pair",
        "broker": "mqtt://127.0.0.1:1883",
        "state": "state",
        "data": data,
        "budget": budget,
    }
    path = directory / "device.yaml"
    path.write_text(json.dumps({"node": node | more}))
    return path


class Pair:
    """Two devices from their files. `values`: honest | constant (answers ignore data) | bare (no noise)."""

    def __init__(self, monkeypatch, files, values="honest", seed=1):
        self.now, self.failures, self.slow, self.asked, self.joined, self.slowest = None, [], [], 0, 0, 0.0
        self._hold(monkeypatch, values)
        self.halves = []
        for path in files:
            self.now = half = Half(None, Stream(seed))
            config = load_device(path)
            device = config.kind.device(config, str(path))
            ledger = Ledger(path.parent / "state" / f"{config.node}.ledger", config.node)
            half.member = Member(
                config.fleet,
                device,
                ledger,
                config.budget,
                config.allow,
                outcome=lambda found, about, half=half: half.outcomes.append(found),
                journal=NoiseJournal(ledger.path.with_suffix(".drawn"), ledger),
            )
            half.member.connected()
            self.halves.append(half)
        self.now = None
        self.name, self.topics = config.node, self.member.topics
        self.begin("")

    @property
    def member(self):
        return self.halves[0].member

    def _hold(self, held, values):
        sample, release, entropy = Lattice.sample, Lattice.release, os.urandom

        def drawn(lattice, size, entropy=None):
            n = sample(lattice, size, self.now.stream)
            return n if values != "bare" else np.zeros_like(n)

        def released(lattice, v, n):
            value = release(lattice, v, n)
            self.now.released += 1
            return value if values != "constant" else constant(lattice, v.size)

        held.setattr(os, "urandom", lambda size: self.now.stream(size) if self.now else entropy(size))
        held.setattr(time, "time", lambda: NOW)
        held.setattr(Tables, "now", staticmethod(lambda: "2000-01-01T00:00:00Z"))
        held.setattr(Lattice, "sample", drawn)
        held.setattr(Lattice, "release", released)
        self.strict = values == "constant"

    def close(self):
        for half in self.halves:
            half.member.journal.close()
            half.member.ledger.close()

    # --- asking ---

    def begin(self, case):
        """A new case: what was said before explains nothing from here on."""
        self.case, self.begins = case, tuple(h.spent for h in self.halves)
        self.parted = False

    def ask(self, topic, payload, what=""):
        """The same message to both; what they said. Failures are kept under the case's name."""
        self.asked += 1
        said = [self._asked(half, topic, payload, what) for half in self.halves]
        where = f"{self.case}: {what}"
        spent = [h.spent for h in self.halves]
        for half in self.halves:
            if half.released > half.spent:
                self.failures.append(f"{where}: {half.released} answers released, {half.spent} in the ledger")
                half.released = half.spent  # told once
        if said[0] != said[1] or len(self.halves[0].outcomes) != len(self.halves[1].outcomes):
            paid = all(now > then for now, then in zip(spent, self.begins, strict=True))
            if self.strict or not paid:
                self.failures.append(f"{where}: told apart, {spent} spent since {self.begins}: {shown(said)}")
        if self.strict and spent[0] != spent[1]:
            self.failures.append(f"{where}: spent {spent}")
        return said

    def _asked(self, half, topic, payload, what):
        self.now = half
        began = time.process_time()
        try:
            with bounded(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # as on a device: they are no answer
                said = half.member.on_message(topic, payload)
                half.member.idle()
        except (Hung, Exception) as error:  # an endpoint raises nothing, whatever it is sent
            self.failures.append(f"{self.case}: {what}: {type(error).__name__} {str(error)[:150]}")
            said = [("raised", type(error).__name__, str(error))]
        finally:
            self.now = None
        for publication in said:
            if wrong := unfit(publication):
                self.failures.append(f"{self.case}: {what}: {wrong}")
        self.slowest = max(self.slowest, took := time.process_time() - began)
        if took > SLOW_S:
            self.slow.append(f"{self.case}: {what}: {took:.1f} s")
        return [tuple(publication) for publication in said]

    def plan(self, raw, what="plan", nonce=b"n" * 16):
        """A plan, as its mapping or its bytes, to both. Whether both joined."""
        blob = raw if isinstance(raw, bytes) else json.dumps(raw).encode()
        members = {self.name: self.member.session, "other": 1}
        self.run = wire.run_id(blob, nonce, members)
        message = wire.encode(Envelope(self.run, 0, 0, None, Plan(blob, nonce, members, {})))
        if b'"mode":"input"' in blob.replace(b" ", b"") and self.halves[0].spent:
            self.begins = (-1, -1)  # an answer of an earlier case may be repeated: it is paid for
        said = self.ask(self.topics.all(COORDINATOR), message, what)
        joined = all(isinstance(body_of(s), Join) for s in said)
        self.joined += joined
        return joined

    def tell(self, src, seq, body, *, everybody=False, epoch=None, run=None):
        """A message of the run to both, on an edge or as a broadcast."""
        topic = self.topics.all(src) if everybody else self.topics.edge(src, self.name)
        epoch = getattr(body, "epoch", 0) if epoch is None else epoch
        return self.ask(topic, encoded(run or self.run, epoch, seq, body), f"{type(body).__name__} {seq} of {src}")


def unfit(publication):
    """Why nobody could take this message of a device; None where it is fit to be sent."""
    if publication[0] == "raised" or "/state/" in publication[0]:
        return None
    try:
        body = wire.decode_envelope(publication[1], 1 << 24).body
    except Malformed as error:
        return f"sent a message that is malformed: {error}"
    vectors = [v for v in (getattr(body, key) for key in body.__struct_fields__) if isinstance(v, np.ndarray)]
    vectors += getattr(body, "vectors", ())
    largest = max((float(np.max(np.abs(v), initial=0.0)) for v in vectors), default=0.0)
    return f"sent an entry of {largest:.3g}" if largest > LARGEST else None


def encoded(run, epoch, seq, body):
    return wire.encode(Envelope(run, epoch, seq, None, body))


def body_of(said):
    """The first message's body; None where nothing readable was said."""
    try:
        return wire.decode_envelope(said[0][1], 1 << 22).body
    except Exception:
        return None


def shown(said):
    return " | ".join(str(getattr(b, "reason", b))[:160] for b in map(body_of, said))


@contextmanager
def bounded():
    """Time and memory are bounded, whatever is asked."""

    def hung(*_):
        raise Hung(f"no answer in {HANG_S} s")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    before = signal.signal(signal.SIGPROF, hung)
    resource.setrlimit(resource.RLIMIT_AS, (now + ROOM, hard))
    signal.setitimer(signal.ITIMER_PROF, HANG_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGPROF, before)
