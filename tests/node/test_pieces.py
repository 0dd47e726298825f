"""An encoding in pieces is the encoding itself, its wide vectors where they are."""

from typing import cast

import numpy as np
import pytest

from hushgrid.node import wire
from hushgrid.node.pieces import _MARKER, in_pieces
from hushgrid.node.privacy.ledger import Ledger
from hushgrid.node.runtime.driver import Stored

RUN = b"r" * 16


def state_of(d: int) -> dict[str, object]:
    return {"t": 3, "w": np.arange(float(d)), "z": {"n0": np.ones(d), "n1": np.full(d, 0.5)}, "done": None}


@pytest.mark.parametrize("d", [0, 1, 31, 32, 511, 512, 8191, 8192, 70_000])  # each length of a header, and beyond
def test_the_pieces_are_the_encoding(d):
    state = state_of(d)
    machine = in_pieces(state)
    assert machine.joined() == wire.encode(state)
    assert len(machine) == len(machine.joined())
    stored = Stored(cast(bytes, machine), b"gate", {"n0 z": (0, 2, b"d" * 16)}, (1, 2), (3, 4))
    whole = Stored(machine.joined(), *(getattr(stored, name) for name in stored.__struct_fields__[1:]))
    assert in_pieces(stored).joined() == wire.encode(whole)


def test_a_value_in_which_the_marker_stands_is_encoded_as_a_whole():
    state = state_of(8192) | {"name": _MARKER}
    assert [in_pieces(state).joined(), len(in_pieces(state).parts)] == [wire.encode(state), 1]
    assert in_pieces({"machine": in_pieces(state_of(8192)), "name": _MARKER}).joined() == wire.encode(
        {"machine": wire.encode(state_of(8192)), "name": _MARKER}
    )


def test_a_wide_vector_is_not_copied():
    vector = np.zeros(8192)
    views = [part for part in in_pieces({"w": vector}).parts if isinstance(part, memoryview)]
    vector[:] = 1.0
    assert [np.frombuffer(view).tolist() for view in views] == [vector.tolist()]


@pytest.mark.parametrize("buffered", [False, True])
def test_a_ledger_has_of_pieces_what_it_has_of_bytes(tmp_path, buffered):
    ledger = Ledger(tmp_path / "a.ledger", "n0", durable=not buffered, buffered=buffered)
    ledger.join(RUN, b"plan")
    for d in (140_000, 150_000, 3):  # wider, and narrow again
        pieces = in_pieces(state_of(d))
        ledger.commit(RUN, state=lambda pieces=pieces: pieces, status="running", last=b"last")
        stored = ledger.runs.find(RUN)
        assert (stored.state, stored.status, stored.last) == (wire.encode(state_of(d)), "running", b"last")
    ledger.close()


def test_a_step_whose_pieces_fail_leaves_the_state_before(tmp_path):
    ledger = Ledger(tmp_path / "a.ledger", "n0")
    ledger.join(RUN, b"plan")
    ledger.commit(RUN, state=in_pieces(state_of(140_000)).joined(), status="running")
    torn = in_pieces(state_of(150_000))
    torn.parts.append(b"more than there is room for")
    with pytest.raises(ValueError, match="longer than blob"):
        ledger.commit(RUN, state=lambda: torn, status="done")
    stored = ledger.runs.find(RUN)
    assert (stored.state, stored.status) == (wire.encode(state_of(140_000)), "running")
    ledger.close()
