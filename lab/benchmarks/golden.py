"""The golden record: digests of what seeded runs leave, to compare two states of the program on one machine.

    python lab/benchmarks/golden.py write FILE
    python lab/benchmarks/golden.py compare FILE FILE

`write`: of every scenario, and of every algorithm x variant x mechanism, seeded. `compare`: what differs, a line each;
exit code 1 if anything does.

A digest is of the arrays and their dtypes, not of files: archives hold times. `history` is of the columns that the
record's format promises to keep. `wire` is of every message of a short run, its plan among them, without the ids of
runs and ledgers, which are random; messages are taken apart without the program's own decoder.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hushgrid.broker.simulation import run
from hushgrid.kernels.algorithms.registry import ALGORITHMS
from hushgrid.kernels.errors import HushgridError
from hushgrid.kernels.types import Document
from hushgrid.lab.examples import examples
from hushgrid.node.problems.registry import KINDS
from hushgrid.scenarios import MADE

ROOT = Path(__file__).resolve().parents[2]
SEED = 7
#: Scenarios that are long are shortened; what has data that are not shipped is left out.
SHORT = {"case118.yaml": {"algorithm.rounds": 10}}
HISTORY = ("round", "objective", "consensus_residual", "max_violation", "noise_l1", "messages", "bytes")

RING = {"kind": "ring", "nodes": 4}
LOGISTIC: Document = {
    "kind": "logistic",
    "data": {"synthetic": {"rows": 10, "features": 3}, "normalize": "unit-rows"},
    "row_bound": 1.0,
    "l2": 0.1,
}
AROUND = LOGISTIC | {"data": {**LOGISTIC["data"], "nodes": 4}}
ZONES = {"kind": "zones", "case": "case5", "zones": 2}
ROUNDS = {"star": 5, "token": 20, "neighbours": 7}
LAPLACE = {"adjacency": {"replace-one-record": {"clip": 1.0}}, "epsilon": 140.0}
GAUSSIAN = LAPLACE | {"mechanism": "gaussian", "delta": 1e-5}


def runs() -> Iterator[tuple[str, Any, Document]]:
    """(name, scenario, overrides) of every run on record."""
    for path in sorted([*(ROOT / "scenarios").glob("*.yaml")]):
        if path.stem not in ("ijcnn1", *MADE):
            yield f"scenario {path.name}", str(path), {"seed": SEED, **SHORT.get(path.name, {})}
    for name in (name for kind in KINDS.values() if kind.records for name in kind.algorithms):
        declared = ALGORITHMS[name]
        known, published = examples(declared), declared.published
        variants: list[tuple[str, Any, Any]] = [("none", known["none"][0], None)]
        for noisy in (LAPLACE | {"mechanism": "laplace"}, GAUSSIAN):
            variants.append((f"guarded {noisy['mechanism']}", known["guarded"][0], noisy))
        honest = LAPLACE if published is None or "laplace" in published.mechanisms else GAUSSIAN
        for k, keys in enumerate(known.get("published", ())):
            unclaimed = published is not None and published.source == "scales"
            variants.append((f"published {k + 1}", keys, None if unclaimed else honest))
        for variant, keys, private in variants:
            section = {"name": name, "variant": variant.split()[0], "rounds": ROUNDS[declared.pattern]} | keys
            label = f"{name} of records {variant}" if len(declared.sharing) > 1 else f"{name} {variant}"
            problem, network = (LOGISTIC, RING) if declared.pattern != "star" else (AROUND, None)
            if "addends" in declared.sharing:
                problem = {"kind": "total", "data": AROUND["data"]}
            yield label, _scenario(problem, section, private, network), {}
    for mechanism in ("laplace", "gaussian"):
        base: Document = {"adjacency": {"bounded-change": 0.01}, "epsilon": 50.0, "mechanism": mechanism}
        base |= {"delta": 1e-5} if mechanism == "gaussian" else {}
        for mode, place, E in (
            ("input", "data", 1),
            ("objective", "data", 1),
            ("objective", "data", 2),
            ("objective", "gradient", 1),
        ):
            algorithm = {"name": "ladmm", "rounds": 5, "local_updates": E}
            privacy = base | {"mode": mode, "at": place}
            yield f"ladmm {mechanism} {mode} {place} E{E}", _scenario(ZONES, algorithm, privacy, None), {}
        for mode in ("objective", "output", "output-projected"):
            algorithm = {"name": "ladmm", "rounds": 5, "variant": "published"}
            yield f"ladmm published {mechanism} {mode}", _scenario(ZONES, algorithm, base | {"mode": mode}, None), {}
    yield "ladmm none", _scenario(ZONES, {"name": "ladmm", "rounds": 5, "variant": "none"}, None, None), {}


def _scenario(problem: object, algorithm: object, privacy: object, network: object) -> Document:
    raw = {"hushgrid": 1, "name": "golden", "seed": SEED, "problem": problem, "algorithm": algorithm}
    return raw | ({"privacy": privacy} if privacy else {}) | ({"network": network} if network else {})


def digest(arrays: Document) -> str:
    """Of arrays by name: their dtype, shape and bytes."""
    total = hashlib.sha256()
    for key in sorted(arrays):
        value = np.ascontiguousarray(arrays[key])
        total.update(f"{key} {value.dtype} {value.shape} ".encode() + value.tobytes())
    return total.hexdigest()[:24]


def transcript(lines: list[Document]) -> dict[str, np.ndarray]:
    """What travelled, in order, by edge: topics and messages without what is random in them."""
    edges: dict[str, list[bytes]] = {}
    for line in lines:
        message = msgspec.msgpack.decode(base64.b64decode(line["bytes"])) if line["bytes"] else None
        if isinstance(message, list):  # an envelope: run, epoch, seq, mark, body
            if isinstance(message[4], dict) and message[4]["type"] == "plan":
                message[4] = message[4]["plan"]
            message = [*message[1:3], _without_ids(message[4])]
        elif isinstance(message, dict):
            message = [*sorted(message), message["type"]]
        edges.setdefault(line["topic"], []).append(msgspec.msgpack.encode(message))
    return {topic: np.frombuffer(b"".join(parts), np.uint8) for topic, parts in edges.items()}


def _without_ids(message: object) -> object:
    """A message without the ids of ledgers: 16 random bytes at the head of each mark that a member has seen."""
    match message:
        case bytes() if len(message) == 16:
            return b""
        case list():
            return [_without_ids(item) for item in message]
        case dict():
            return {key: _without_ids(value) for key, value in message.items()}
    return message


def record() -> dict[str, dict[str, str]]:
    digests: dict[str, dict[str, str]] = {}
    for name, scenario, over in runs():
        try:
            result = run(scenario, set=over)
        except HushgridError as error:  # part of the record: it must go on being refused
            digests[name] = {"error": type(error).__name__}
            continue
        history = {k: np.array([repr(v) for v in result.history[k]]) for k in HISTORY}
        setpoints = {str(k): np.array([repr(v) for v in row]) for k, row in enumerate(result.setpoints)}
        digests[name] = {
            "solution": digest(result.solution),
            "history": digest(history),
            "setpoints": digest(setpoints),
        }
        if not name.startswith("scenario"):
            lines = run(scenario, set=over | {"run.record": "transcript"}).transcript
            digests[name]["wire"] = digest(transcript(lines or []))
    return digests


def compare(one: Document, other: Document) -> list[str]:
    """What differs of the runs of the first record, a line each; a run that it does not know is new, and no
    difference.
    """
    lines = []
    for name in sorted(one):
        a, b = one[name], other.get(name)
        if a != b:
            parts = "absent" if b is None else ", ".join(sorted(k for k in {*a, *b} if a.get(k) != b.get(k)))
            lines.append(f"{name}: {parts}")
    return lines


def main(argv: list[str]) -> int:
    match argv:
        case ["write", path]:
            Path(path).write_text(json.dumps(record(), indent=1, sort_keys=True) + "\n")
            return 0
        case ["compare", one, other]:
            wrong = compare(*(json.loads(Path(p).read_text()) for p in (one, other)))
            print("\n".join(wrong) or "the same")
            return int(bool(wrong))
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
