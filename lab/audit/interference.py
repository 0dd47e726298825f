"""Non-interference: beside the gates' answers nothing leads from private data to the outside.

A run is made over a scenario's own data, and again over others of the same public shape, with everything held still
that is no function of the data: clock, identifiers, and the values that gates release, each a constant of its size.
What a released value says is what its spend pays for; whatever still differs, a message, a length, a log line, a
ledger's row, a refusal, has come from the data by a second way. In this process, over the memory transport, by the
devices' own members.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec
import numpy as np
from numpy.typing import NDArray

from hushgrid.broker.report.result import Result
from hushgrid.broker.simulation import fleet
from hushgrid.broker.simulation.front import run
from hushgrid.broker.simulation.memory import Delivery
from hushgrid.kernels.errors import HushgridError
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.kernels.privacy.shares import Share
from hushgrid.kernels.types import Document, DocumentView, Index, Vector
from hushgrid.node import wire
from hushgrid.node.config.scenario import scenario_from
from hushgrid.node.privacy.gate import Gate
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.privacy.ledger_log import Tables
from hushgrid.node.problems.kind import RunFacts
from hushgrid.node.problems.records.files import Shard
from hushgrid.node.wire import Publication

NOW = 1_700_000_000.0
Release = Callable[[Lattice, Vector, Index], Vector]
Seen = Document


def constant(lattice: Lattice, size: int) -> Vector:
    """What every answer of this size is: a public number a coordinate, on the grid."""
    noise: Vector = np.rint(0.1 * np.cos(np.arange(1.0, size + 1)) / lattice.g) * lattice.g
    return noise


# --- holding still ---


class Held:
    """Attributes of modules and classes, replaced until the end."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack

    def setattr(self, target: object, name: str, value: object) -> None:
        self.stack.enter_context(patch.object(target, name, value))

    def setitem(self, target: object, key: str, value: object) -> None:
        self.stack.enter_context(patch.dict(target, {key: value}))


@contextmanager
def held_still(release: Release | None = None, masked: bool = False) -> Iterator[Held]:
    """No clock, no chance, and answers that are constants. `release`: other answers. `masked`: in a run with masks."""
    counter, entropy, honest = itertools.count(1), os.urandom, Lattice.release

    def urandom(size: int) -> bytes:  # 16 and 32 bytes: nonces, ledger numbers, keys; noise takes other amounts
        return next(counter).to_bytes(size, "big") if size in (16, 32) else entropy(size)

    def ignoring(lattice: Lattice, v: Vector, n: Index) -> Vector:
        honest(lattice, v, n)  # what it refuses is told
        return constant(lattice, v.size)

    with ExitStack() as stack:
        held = Held(stack)
        held.setattr(os, "urandom", urandom)
        held.setattr(time, "perf_counter", lambda: 0.0)
        held.setattr(time, "time", lambda: NOW)
        held.setattr(Tables, "now", staticmethod(lambda: "2000-01-01T00:00:00Z"))
        held.setitem(Ledger.__init__.__kwdefaults__, "clock", lambda: 1.0)
        held.setattr(Lattice, "release", release or ignoring)
        if masked:
            _hold_masks(held, release is None)
        yield held


@cache
def _identities(make: Callable[[tuple[str, ...]], object], nodes: tuple[str, ...]) -> object:
    """The same for every run that is compared."""
    return make(nodes)


def _hold_masks(held: Held, answers: bool) -> None:
    """Keys by `os.urandom`, which is held; with `answers` the shares too, each a constant."""
    from hushgrid.node.masks import identity, run_masks

    make, honest, keys = identity.made_up, Gate._masked_share, vars(run_masks)["X25519PrivateKey"]

    def masked_share(gate: Gate, share: Share | None, question: bytes, compute: Callable[[], Index]) -> Index:
        honest(gate, share, question, compute)  # what it refuses is told
        assert gate.lattice is not None
        multiples: Index = np.rint(constant(gate.lattice, gate.width) / gate.lattice.g).astype(np.int64)
        return multiples

    held.setattr(identity, "made_up", lambda nodes: _identities(make, tuple(nodes)))
    held.setattr(keys, "generate", lambda: keys.from_private_bytes(os.urandom(32)))
    if answers:
        held.setattr(Gate, "_masked_share", masked_share)


# --- other data, of the same public shape ---


def other_rows(shards: Sequence[Shard], bound: float, labels: tuple[float, float]) -> list[Shard]:
    """Other rows within the bound, and their labels one on."""
    dice, others = np.random.default_rng(1), []
    for s in shards:
        A = dice.normal(size=s.A.shape)
        A *= 0.9 * bound / np.linalg.norm(A, axis=1, keepdims=True)
        others.append(Shard(A, np.roll(s.b, 1)))
    return others


def far_rows(shards: Sequence[Shard], bound: float, labels: tuple[float, float]) -> list[Shard]:
    """All rows far beyond the bound, on one line, all labels at the one end."""
    return [Shard(np.full_like(s.A, 1e6 * bound), np.full_like(s.b, labels[1])) for s in shards]


def no_rows(shards: Sequence[Shard], bound: float, labels: tuple[float, float]) -> list[Shard]:
    """All rows zero, all labels at the other end."""
    return [Shard(np.zeros_like(s.A), np.full_like(s.b, labels[0])) for s in shards]


def one_row(shards: Sequence[Shard], bound: float, labels: tuple[float, float]) -> list[Shard]:
    """One record replaced: at the bound, its label at the other end."""
    others = []
    for s in shards:
        A, b = s.A.copy(), s.b.copy()
        A[0], b[0] = -np.sign(A[0] + 0.5) * bound / A.shape[1] ** 0.5, labels[0] if b[0] == labels[1] else labels[1]
        others.append(Shard(A, b))
    return others


ROWS = {"other rows": other_rows, "far rows": far_rows, "no rows": no_rows, "one row": one_row}
LOADS: dict[str, Callable[[Vector], Vector]] = {
    "other loads": lambda d: 1.37 * d + 0.11,
    "no loads": lambda d: np.zeros_like(d),
    "no zero load": lambda d: np.where(d == 0, -0.01, d),
    "the largest loads": lambda d: np.where(np.arange(d.size) % 2, 1e4, -1e4),
}
LABELS = {"least-squares": (-1e6, 1e6), "logistic": (-1.0, 1.0)}


def others(raw: DocumentView) -> DocumentView:
    """The other data that a scenario's are compared with."""
    return LOADS if raw["problem"]["kind"] == "zones" else ROWS


def with_data(setup: Any, name: str) -> object:
    """A prepared scenario whose devices have other data, and which is otherwise the same."""
    if name in ROWS:
        public = setup.public
        objective = getattr(public, "objective", None)  # a sum has none, and takes any number
        labels = LABELS.get(objective.kind, (0.0, public.classes - 1.0)) if objective else LABELS["least-squares"]
        setup.shards = ROWS[name](setup.shards, public.row_bound if objective else 1.0, labels)
    elif name in LOADS:
        loads = setup.loads
        setup.loads = lambda zone: np.where(loaded(setup, zone), LOADS[name](loads(zone)), loads(zone))
    return setup


def loaded(setup: Any, zone: str) -> bool | NDArray[np.bool_]:
    """Which of a zone's loads may be other than zero: that others are not is said to their owner alone."""
    from hushgrid.node.problems.power_flow.device import mask_of

    mask = mask_of(setup.plan.problem, setup.models[zone].buses)
    return True if mask is None else mask


# --- what is seen ---


def tables(path: Path) -> Seen:
    """Every table of a ledger."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return {f"{path.name} {name}": db.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in names}


def left_in(directory: Path) -> Seen:
    """Every file: a ledger by its tables, anything else by its bytes."""
    contents: Seen = {}
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        if path.suffix == ".ledger":
            contents |= tables(path)
        elif not path.name.endswith(("-wal", "-shm", "-log")):
            contents[str(path.relative_to(directory))] = path.read_bytes()
    return contents


def seen(
    directory: Path,
    raw: DocumentView,
    *data: str,
    out: bool = False,
    release: Release | None = None,
    base: Path | None = None,
) -> Seen:
    """{what: value} of a run in this process: transcript, logs, outcomes, files, ledgers, its end.

    Over its own data, or those of a name; over several after each other, each a run on the same ledgers.
    """
    transcript: list[tuple[object, ...]] = []
    logs: list[tuple[str, str]] = []
    outcomes: list[tuple[object, ...]] = []
    crashes: list[str] = []
    parts: Any = fleet
    prepare, member, hub = parts.prepare, parts.Member, parts.MemoryBroker

    class Transcript(hub):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options | {"encoded": True})  # what is compared are bytes

        def publish(self, publications: Sequence[Publication]) -> None:
            transcript.extend(tuple(p) for p in publications)
            super().publish(publications)

        def _deliver(self, delivery: Delivery) -> None:
            before = self.crashes
            super()._deliver(delivery)
            crashes.extend([delivery.dst] * (self.crashes - before))

    def listened(*arguments: Any, **options: object) -> object:
        name = arguments[1].name

        def record(outcome: dict[str, Vector], facts: RunFacts) -> None:
            outcomes.append((name, wire.encode(outcome), facts._replace(age=None)))

        return member(*arguments, **options, log=lambda text: logs.append((name, text)), outcome=record)

    observed: Seen = {}
    with held_still(release, bool((raw.get("privacy") or {}).get("masked"))) as held:
        held.setattr(fleet, "Member", listened)
        held.setattr(fleet, "MemoryBroker", Transcript)
        for no, name in enumerate(data or ("",)):
            held.setattr(fleet, "prepare", lambda *arguments, name=name: with_data(prepare(*arguments), name))
            observed |= {f"{what} {no}": value for what, value in _ended(directory, raw, out, base).items()}
    observed |= {"transcript": transcript, "logs": logs, "outcomes": outcomes, "crashes": crashes}
    return observed | left_in(directory)


def _ended(directory: Path, raw: DocumentView, out: bool, base: Path | None) -> Seen:
    """How a run ends, and what it returns."""
    scenario = raw if base is None else scenario_from(dict(raw), "scenario", base)
    try:
        result = run(scenario, state=directory / "state", out=directory / "out" if out else None)
    except HushgridError as error:
        return {"end": (error.exit_code, str(error).replace(str(directory), ""))}
    figures = {"result": msgspec.json.encode(result.summary), "history": repr(result.history)}
    return arrays(result) | figures | {"setpoints": repr(result.setpoints), "end": (0, "")}


def arrays(result: Result) -> dict[str, bytes]:
    """Every array that a run promises, as its bytes."""
    arrays_by_name = {f"solution {k}": v for k, v in result.solution.items()}
    arrays_by_name |= {f"trajectory {k}": v for k, v in (result.trajectory or {}).items()}
    return {k: str(v.dtype).encode() + np.ascontiguousarray(v).tobytes() for k, v in arrays_by_name.items()}


def differing(one: Seen, other: Seen) -> list[str]:
    """Names of what is not the same, or not in both."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


# --- the test, for a scenario of one's own ---


class Compared(NamedTuple):
    """A run over other data, beside the run over the scenario's own."""

    data: str
    differs: list[str]  #: what of it is not the same


class Interference(NamedTuple):
    name: str
    messages: int
    compared: list[Compared]
    control: list[str]  #: what differs where the gates' own answers are released: the comparison can fail


def interference(
    raw: DocumentView, base: Path | None = None, say: Callable[[str], None] = lambda text: None
) -> Interference:
    """The standing test on a scenario. Raises InputError; whatever else ends a run is compared as well."""
    plain = {**raw, "run": {**raw.get("run", {}), "record": "summary"}}
    plain.pop("seed", None)
    with tempfile.TemporaryDirectory(prefix="hushgrid-audit-") as scratch:
        place = Path(scratch)
        observed = seen(place / "own", plain, base=base)
        kinds = []
        for name in others(raw):
            say(f"a run over {name}")
            kinds.append(Compared(name, differing(observed, seen(place / name, plain, name, base=base))))
        honest = Lattice.release
        seeded = plain | {"seed": 3}
        first = seen(place / "seeded", seeded, release=honest, base=base)
        second = seen(place / "seeded other", seeded, next(iter(others(raw))), release=honest, base=base)
    return Interference(str(raw.get("name", "")), len(observed["transcript"]), kinds, differing(first, second))
