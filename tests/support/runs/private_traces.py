"""What of private data could stand in a file, searched for in every encoding; and a run's files with its chance held
still.
"""

import base64
import itertools
import json
import os
import struct
import time
import zipfile

import numpy as np

from hushgrid.broker.simulation import run
from hushgrid.broker.simulation.problems import records as rows
from hushgrid.kernels.privacy.noise import Lattice
from hushgrid.node.privacy.ledger_log import Tables
from hushgrid.node.problems.records.data import load, unit_rows
from hushgrid.node.problems.records.files import Shard
from tests.support.runs import background_run


def traces(d, base_mva):
    """Every way a load might stand in a file."""
    needles = []
    for value in np.concatenate([d, d * base_mva]):
        needles += [struct.pack(order + "d", sign * value) for order in "<>" for sign in (1, -1)]
        digits = f"{abs(value):.8e}".replace(".", "").split("e")[0][:8]  # significant ones: no chance repeats eight
        point = int(np.floor(np.log10(abs(value)))) + 1
        needles += [f"{digits[:1]}.{digits[1:]}".encode()]
        needles += [(f"{digits[:point]}.{digits[point:]}" if point > 0 else f"0.{'0' * -point}{digits}").encode()]
    return needles


def haystack(directory):
    """{name: bytes} of every file, archives and base64 opened."""
    found = {}
    for path in directory.rglob("*"):
        if path.is_file():
            found[path.name] = path.read_bytes()
            if path.suffix == ".npz":
                with zipfile.ZipFile(path) as archive:
                    found |= {f"{path.name}:{n}": archive.read(n) for n in archive.namelist()}
            if path.suffix == ".jsonl":
                lines = [json.loads(line) for line in path.read_text().splitlines()]
                found[f"{path.name}, decoded"] = b"\n".join(base64.b64decode(line["bytes"]) for line in lines)
    return found


def found_in(directory, needles):
    return sorted({name for name, text in haystack(directory).items() for needle in needles if needle in text})


def other_rows(*arguments):
    """Other rows and labels, as many and as wide, within the bound."""
    dice = np.random.default_rng(1)
    found = load(*arguments)
    others = [Shard(0.9 * unit_rows(dice.normal(size=s.A.shape)), np.roll(s.b, 1)) for s in found.shards]
    return found._replace(shards=others)


def left_with(monkeypatch, out, raw, rows_of, release):
    """The files of a run over rows_of(...), with clock, identifiers and gate answers held still."""
    counter, entropy = itertools.count(1), os.urandom

    def urandom(size):  # 16 and 32 bytes: nonces, ledger numbers, keys; noise takes other amounts
        return next(counter).to_bytes(size, "big") if size in (16, 32) else entropy(size)

    with monkeypatch.context() as held:
        held.setattr(os, "urandom", urandom)
        held.setattr(time, "perf_counter", lambda: 0.0)
        held.setattr(Tables, "now", staticmethod(lambda: "2000-01-01T00:00:00Z"))
        held.setattr(rows, "load", rows_of)
        held.setattr(Lattice, "release", release)
        run(raw, out=out)
    return {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}


MODES = ["objective", "input"]
EPSILON = 1.0  # on a bounded change of 0.01 p.u.


def private(mode="objective", rounds=5, **over):
    return background_run.scenario(
        {"privacy.mode": mode, "privacy.epsilon": EPSILON, "algorithm.rounds": rounds}, **over
    )
