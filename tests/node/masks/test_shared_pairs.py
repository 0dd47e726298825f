"""What one end of a pair has computed serves the other end in the same process, and is what it would compute."""

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from hushgrid.node.masks import run_masks
from hushgrid.node.masks.run_masks import NUMBERS, Pairs, SharedPairs, Side, extract, pair_key

RUN = b"r" * 16


@pytest.fixture
def exchanges(monkeypatch):
    made = []
    monkeypatch.setattr(run_masks, "pair_key", lambda *ends: made.append(ends) or pair_key(*ends))
    return made


@pytest.mark.parametrize(("pairs", "times"), [(Pairs(), 4), (SharedPairs(), 2)])
def test_both_ends_have_the_key_that_each_computes_by_itself(exchanges, pairs, times):
    ends = [X25519PrivateKey.from_private_bytes(bytes(range(k, k + 32))) for k in (1, 33)]
    a, b = (Side(mark * 64, end.public_key().public_bytes_raw()) for mark, end in zip("b1", ends, strict=True))
    for run in (RUN, b"s" * 16):
        alone = extract(pair_key(ends[0], run, a, b))
        assert pairs.key(ends[0], run, a, b) == pairs.key(ends[1], run, b, a) == alone
    assert len(exchanges) == times


def test_both_ends_have_the_words_of_their_question_and_no_other():
    pairs, shared = Pairs(), SharedPairs()
    asked = [(key * 32, info, size) for key in (b"a", b"b") for info in (b"1", b"2") for size in (3, 9)]
    for _ in range(3):  # the first end, the other, and one that asks again
        assert [shared.stream(*one).tolist() for one in asked] == [pairs.stream(*one).tolist() for one in asked]


def test_words_that_nobody_asks_for_take_no_more_room_than_there_is():
    shared, size = SharedPairs(), NUMBERS // 4
    first = [shared.stream(bytes((k,)) * 32, b"1", size) for k in range(6)]
    assert len(shared._streams) == 4
    again = [shared.stream(bytes((k,)) * 32, b"1", size) for k in range(6)]
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
