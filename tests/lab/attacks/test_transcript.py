"""A transcript is what anybody could write: what it says is dropped, refused in one line, or true."""

import base64
import json
import os
import random
from pathlib import Path

import numpy as np
import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.patterns.neighbours import Iterate
from hushgrid.kernels.patterns.star import W, Z
from hushgrid.kernels.patterns.token import Token
from hushgrid.lab.attacks.attack import attack
from hushgrid.lab.attacks.transcript import read
from hushgrid.lab.audit.ledgers import travelled
from hushgrid.node import wire
from tests.support.runs.attacked_runs import attacked

RUNS = {
    "star": {"name": "fedavg", "step_size": 1.0},
    "token": {},
    "neighbours": {"name": "dpp2", "alpha": 1.0, "beta": 0.5, "rho": 0.5, "ring": True},
}


@pytest.fixture(scope="module", params=RUNS)
def recorded(request, tmp_path_factory):
    """(the lines of a run's transcript, what an attack on it finds)."""
    run = attacked(tmp_path_factory.mktemp(request.param), nodes=3, visits=4, **RUNS[request.param])
    lines = [json.loads(line) for line in (run / "transcript.jsonl").read_text().splitlines()]
    return lines, attack(run)


def found(lines, place: Path):
    (place / "result.json").write_text("{}")
    (place / "transcript.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return attack(place)


def of_type(lines, kind: type) -> list[int]:
    """The places of the lines that carry such a message from a node or the coordinator, on an edge or to all."""

    def is_one(line):
        payload = base64.b64decode(line["bytes"])
        told = line["topic"].split("/")[3] in ("edge", "all") and payload
        return told and isinstance(wire.decode_envelope(payload, 1 << 20).body, kind)

    return [k for k, line in enumerate(lines) if is_one(line)]


def carried(lines) -> list[int]:
    """Of the lines that carry a node's iterate."""
    return [k for k in of_type(lines, wire.Iterate) if lines[k]["src"] != wire.COORDINATOR]


def rewritten(line, sender=None, factor=1):
    """The same message from another sender, or with vectors `factor` times as long."""
    envelope = wire.decode_envelope(base64.b64decode(line["bytes"]), 1 << 20)
    body = envelope.body
    longer = lambda v: np.tile(v, factor)  # noqa: E731
    if isinstance(body, Iterate):
        body = Iterate(longer(body.vector))
    elif isinstance(body, Token):
        body = type(body)(
            **{f: getattr(body, f) for f in body.__struct_fields__} | {"vectors": tuple(map(longer, body.vectors))}
        )
    elif isinstance(body, (W, Z)):
        body = type(body)(longer(getattr(body, body.__struct_fields__[0])))
    parts = line["topic"].split("/")
    parts[4] = sender or parts[4]
    fields = {f: getattr(envelope, f) for f in envelope.__struct_fields__} | {"body": body}
    payload = wire.encode(wire.Envelope(**fields))
    return line | {"topic": "/".join(parts), "src": parts[4], "bytes": base64.b64encode(payload).decode()}


def same(first, other) -> bool:
    keys = ("gradients", "rows", "states", "messages")
    return json.dumps({k: first[k] for k in keys}) == json.dumps({k: other[k] for k in keys})


@pytest.mark.runs
def test_what_a_stranger_writes_is_dropped(recorded, tmp_path):
    lines, honest = recorded
    k = carried(lines)[1]
    assert same(found([*lines[: k + 1], rewritten(lines[k], sender="mallory"), *lines[k + 1 :]], tmp_path), honest)


@pytest.mark.runs
def test_a_members_message_of_another_size_is_dropped(recorded, tmp_path):
    lines, honest = recorded
    k = carried(lines)[1]
    again = found([*lines[: k + 1], rewritten(lines[k], factor=2), *lines[k + 1 :]], tmp_path)
    assert again["gradients"] == honest["gradients"]


@pytest.mark.runs
def test_what_was_heard_twice_counts_once(recorded, tmp_path):
    lines, honest = recorded
    assert same(found(lines + lines, tmp_path), honest)


def test_any_order_is_read(recorded, tmp_path):
    lines, _ = recorded
    mixed = random.Random(0).sample(lines, len(lines))
    assert found(mixed, tmp_path)["name"] == recorded[1]["name"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bytes", "!!!"),
        ("bytes", base64.b64encode(os.urandom(300)).decode()),
        ("bytes", 7),
        ("topic", "a/b"),
        ("topic", None),
    ],
)
def test_a_line_that_no_run_has_recorded_is_named(recorded, tmp_path, key, value):
    lines = [dict(line) for line in recorded[0]]
    k = carried(lines)[0]
    lines[k][key] = value
    with pytest.raises(InputError, match=rf"transcript\.jsonl:{k + 1}: found .*, expected a message as `hushgrid run`"):
        found(lines, tmp_path)
    with pytest.raises(InputError, match=rf"t:{k + 1}: found "):
        list(travelled(lines, "t"))


def test_a_line_that_is_no_object_and_a_file_that_is_no_json_are_named(recorded, tmp_path):
    with pytest.raises(InputError, match=r"transcript\.jsonl:1: found .*, expected a message"):
        found([[1, 2], *recorded[0]], tmp_path)
    (tmp_path / "transcript.jsonl").write_bytes(b'{"topic": "a"}\n\xff\xfe\n')
    with pytest.raises(InputError, match=r"transcript\.jsonl:2: found no JSON, expected a JSON object a line"):
        read(tmp_path)


def test_without_its_plan_a_run_is_not_read(recorded, tmp_path):
    plans = of_type(recorded[0], wire.Plan)
    with pytest.raises(InputError, match="found no plan, expected the transcript of a run"):
        found([line for k, line in enumerate(recorded[0]) if k not in plans], tmp_path)
