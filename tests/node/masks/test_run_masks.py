"""The keys and masks of a run: pads cancel among those who were told the same, one alone looks uniform,
none is used twice.
"""

from itertools import combinations

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from msgspec.structs import replace
from scipy import stats

from hushgrid.kernels.errors import Refused
from hushgrid.node.masks import run_masks
from hushgrid.node.masks.identity import made_up, statement
from hushgrid.node.masks.run_masks import RunMasks, SharedPairs, Side, extract, pair_key, question, stream
from hushgrid.node.privacy.ledger import Ledger
from tests.support.devices.ledgers import RUN, killed

NODES = ["n0", "n1", "n10", "n2"]
X = np.array([1.5, -2.0])  #: a point that devices are asked at
RARE = 1e-9  #: how often a right stream would fail
CERTIFICATES, TRUST = made_up(NODES)
#: Points of order 1, 2, 4 and 8: the secret would be the same whatever our key is (RFC 7748, section 6.1).
LOW_ORDER = [
    bytes(32),
    (1).to_bytes(32, "little"),
    (2**255 - 20).to_bytes(32, "little"),
    (2**255 - 19).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
]


@pytest.fixture
def ledger_of(tmp_path):
    opened = {}

    def ledger(node, run=RUN):
        if node not in opened:
            opened[node] = Ledger(tmp_path / f"{node}.ledger", node, durable=False)
        if opened[node].runs.find(run) is None:
            opened[node].join(run, b"plan")
        return opened[node]

    yield ledger
    for each in opened.values():
        each.close()


def device(ledger, run=RUN, trust=TRUST):
    return RunMasks(ledger.node, run, ledger, CERTIFICATES[ledger.node], trust)


@pytest.fixture
def met(ledger_of):
    """Four devices of one run that have met."""
    devices = {node: device(ledger_of(node)) for node in NODES}
    introductions = {node: masks.introduction() for node, masks in devices.items()}
    for masks in devices.values():
        masks.meet(introductions)
    return devices


# --- pads ---


def test_pads_cancel_exactly_over_any_members_that_were_told_the_same_and_over_no_others(met):
    for size in (2, 3, 4):
        for told in combinations(NODES, size):
            pads = {node: met[node].pad(3, 1, told, X, 7) for node in told}
            assert not np.sum(list(pads.values()), axis=0, dtype=np.uint64).any()
            for some in range(1, size):
                for part in combinations(told, some):
                    assert np.sum([pads[node] for node in part], axis=0, dtype=np.uint64).all()
    told_differently = [met["n0"].pad(3, 1, NODES, X, 7), met["n1"].pad(3, 1, NODES[:2], X, 7)]
    assert np.sum(told_differently, axis=0, dtype=np.uint64).all()


def test_devices_that_share_what_pairs_have_in_common_have_the_pads_they_would_have_alone(met, ledger_of):
    """In any order, and again after a restart of one of them."""
    pairs = SharedPairs()
    shared = {node: RunMasks(node, RUN, ledger_of(node), CERTIFICATES[node], TRUST, pairs=pairs) for node in NODES}
    introductions = {node: masks.introduction() for node, masks in shared.items()}
    for masks in shared.values():
        masks.meet(introductions)
    for node in (*NODES, *reversed(NODES), "n0", "n0", "n2", "n1"):
        assert (shared[node].pad(3, 1, NODES, X, 7) == met[node].pad(3, 1, NODES, X, 7)).all()


def test_answers_come_out_of_the_sum_and_nothing_out_of_one_message(met):
    answers = np.random.default_rng(1).integers(-(2**40), 2**40, (4, 5))
    sent = [y.view(np.uint64) + met[node].pad(1, 0, NODES, X, 5) for node, y in zip(NODES, answers, strict=True)]
    decoded = np.sum(sent, axis=0, dtype=np.uint64).view(np.int64)
    assert decoded.tolist() == answers.sum(axis=0).tolist()


def test_a_pad_is_another_one_for_another_round_attempt_pair_or_run(met, ledger_of):
    again = b"s" * 16
    devices = [device(ledger_of(node, again), again) for node in NODES[:2]]
    shown = {masks.node: masks.introduction() for masks in devices}
    devices[0].meet(shown)
    pads = [
        met["n0"].pad(k, a, NODES[:2], X, 4) for k, a in ((0, 0), (0, 1), (1, 0), (1 << 32, 0), (2**64 - 1, 2**32 - 1))
    ]
    pads += [met["n0"].pad(0, 0, ["n0", "n2"], X, 4), devices[0].pad(0, 0, NODES[:2], X, 4)]
    assert not any((one == other).any() for one, other in combinations(pads, 2))
    assert (pads[0] == met["n0"].pad(0, 0, ["n1", "n0", "n1"], X, 4)).all()  # the order and a repeat say nothing
    assert (pads[0][:2] == met["n0"].pad(0, 0, NODES[:2], X, 2)).all()


def test_devices_that_were_told_different_points_have_nothing_to_add_up(met):
    answers = np.arange(1, 5, dtype=np.int64)
    for other in (X + 1.0, np.nextafter(X, 9.0), -X, np.append(X, 0.0)):
        points = {node: other if node == "n2" else X for node in NODES}
        sent = [answers.view(np.uint64) + met[node].pad(1, 1, NODES, points[node], 4) for node in NODES]
        for size in range(1, 5):
            for some in combinations(sent, size):
                assert (np.abs(np.sum(some, axis=0, dtype=np.uint64).view(np.int64)) > 1000).all()


def test_a_device_that_is_set_back_within_a_run_gives_no_difference_of_two_answers_away(tmp_path):
    """An old copy of the ledger, its key among it, is put back after an answer;
    the same number is asked at another point.

    Named by round and attempt, the two messages had one pad, and their difference was y' - y exactly.
    """
    place, other = tmp_path / "n0.ledger", Ledger(tmp_path / "n1.ledger", "n1")
    ledger = Ledger(place, "n0")
    for each in (ledger, other):
        each.join(RUN, b"plan")
    shown = {each.node: device(each).introduction() for each in (ledger, other)}
    ledger.close()
    copy = place.read_bytes()
    y, messages = np.array([[5, 7], [9, -2]]), []
    for point, answer in zip((X, -X, X), (*y, y[0]), strict=True):
        place.write_bytes(copy)
        ledger = Ledger(place, "n0")
        masks = device(ledger)
        masks.meet(shown)
        messages.append(answer.view(np.uint64) + masks.pad(1, 1, shown, point, 2))
        ledger.close()
    other.close()
    assert not ((messages[1] - messages[0]).view(np.int64) == y[1] - y[0]).any()
    assert (messages[2] == messages[0]).all()  # the same question again: the same bytes


def test_one_pad_alone_looks_uniform(monkeypatch):
    keys = {"n1": bytes(range(32)), "n2": bytes(range(32, 64))}
    masks = RunMasks.__new__(RunMasks)  # with fixed keys, so that nothing is left to chance
    masks.node, masks._keys = "n0", keys
    seen = masks.pad(5, 0, ["n0", *keys], X, 1 << 15).view(np.uint8)
    for part in (seen, *seen.reshape(-1, 8).T):  # all bytes, and those of each place in a word
        counts = np.bincount(part, minlength=256)
        expected = len(part) / 256
        assert ((counts - expected) ** 2 / expected).sum() < stats.chi2.isf(RARE, 255)
    assert (
        masks.pad(5, 0, ["n0", "n1"], X, 3).tolist() == stream(keys["n1"], question(5, 0, ["n0", "n1"], X), 3).tolist()
    )


def test_the_derivation_is_the_recorded_one():
    """From fixed private keys to words. A change of any part is another protocol, which devices of before do not speak.

    The values were computed apart, too: HKDF with `hmac`, ChaCha20 by the steps of RFC 8439 in plain Python.
    """
    ends = [X25519PrivateKey.from_private_bytes(bytes(range(k, k + 32))) for k in (1, 33)]
    sides = [Side(mark * 64, end.public_key().public_bytes_raw()) for mark, end in zip("b1", ends, strict=True)]
    here, there = pair_key(ends[0], RUN, *sides), pair_key(ends[1], RUN, *reversed(sides))
    assert here == there
    assert here.hex() == "54460f3f505d9b9c11c0e60712f92fb77bbff78d1a09f7283313ce9722fe17b1"
    words = stream(extract(here), question(7, 2, ["n1", "n0", "n1"], X), 9).tolist()
    assert [words[0], words[1], words[8]] == [0xFAF92080068CA81C, 0x3C1F3EBAC1AA303D, 0xC1F8662EBE86E1E8]
    signed = b"\x1c\0\0\0hushgrid masked introduction\x10\0\0\0" + RUN + b"\x02\0\0\0n0\x03\0\0\0abc"
    assert statement(RUN, "n0", b"abc") == signed


def test_every_part_of_the_derivation_counts():
    a, b = (X25519PrivateKey.from_private_bytes(bytes([k]) * 32) for k in (1, 2))
    own, peer = (Side(m * 64, k.public_key().public_bytes_raw()) for m, k in (("a", a), ("b", b)))
    keys = [pair_key(a, RUN, own, peer), pair_key(a, b"s" * 16, own, peer)]
    keys += [
        pair_key(a, RUN, replace(own, fingerprint="c" * 64), peer),
        pair_key(a, RUN, own, replace(peer, key=own.key)),
    ]
    keys += [pair_key(b, RUN, own, peer)]
    assert len(set(keys)) == len(keys)


def test_numbers_without_a_nonce_of_their_own_and_strangers_are_refused(met):
    for numbers in ((-1, 0, 4), (1 << 64, 0, 4), (0, -1, 4), (0, 1 << 32, 4), (0, 0, 0), (0, 0, (1 << 35) + 1)):
        k, a, size = numbers
        with pytest.raises(Refused, match=f"found no mask for {size} entries of round {k}, attempt {a}"):
            met["n0"].pad(k, a, NODES, X, size)
    for among, who in ((["n0"], "nobody"), ([], "nobody"), (["n0", "n1", "n7"], "n7")):
        with pytest.raises(Refused, match=f"n0: found {who} to mask with, expected members it has met"):
            met["n0"].pad(0, 0, among, X, 4)


def test_before_they_have_met_there_is_no_mask(ledger_of):
    with pytest.raises(Refused, match="n1, n10, n2 to mask with"):
        device(ledger_of("n0")).pad(0, 0, NODES, X, 4)


# --- meeting ---


def forged(node, key, run=RUN):
    """What `node` itself would sign of another key."""
    identity = CERTIFICATES[node]
    return run_masks.Introduction(key, identity.certificate, identity.sign(statement(run, node, key)))


def test_one_wrong_introduction_and_nobody_is_met(ledger_of):
    devices = {node: device(ledger_of(node)) for node in NODES}
    shown = {node: masks.introduction() for node, masks in devices.items()}
    stranger = made_up(["n1"])[0]["n1"]
    unknown = replace(shown["n1"], certificate=stranger.certificate, signature=stranger.sign(statement(RUN, "n1", b"")))
    signature, key = "found a signature that is not", "found a key that is none of X25519's"
    wrong = {
        "n1 in another run": ({"n1": forged("n1", shown["n1"].key, b"s" * 16)}, f"n1: {signature}"),
        "two that changed places": ({"n1": shown["n2"], "n2": shown["n1"]}, "n1: found the certificate of n2"),
        "keys that changed places": ({"n1": replace(shown["n1"], key=shown["n2"].key)}, f"n1: {signature}"),
        "a swapped key": ({"n1": replace(shown["n1"], key=b"x" * 32)}, f"n1: {signature}"),
        "a swapped certificate": ({"n1": replace(shown["n1"], certificate=shown["n2"].certificate)}, "n1: .* of n2"),
        "a stranger": ({"n1": unknown}, "n1: found a certificate that this device's owner does not trust"),
        "a repeated key": ({"n1": forged("n1", shown["n10"].key)}, "n10: found the key of n1, expected its own"),
        "our key": ({"n2": forged("n2", shown["n0"].key)}, "n2: found the key of n0, expected its own"),
        "another of us": ({"n0": forged("n0", b"x" * 32)}, "n0: found another one than it has shown"),
    }
    wrong |= {f"low order {k}": ({"n1": forged("n1", point)}, f"n1: {key}") for k, point in enumerate(LOW_ORDER)}
    for what, (over, line) in wrong.items():
        with pytest.raises(Refused, match=f"the introduction of {line}") as caught:
            devices["n0"].meet(shown | over)
        assert "\n" not in str(caught.value), what
        with pytest.raises(Refused, match="to mask with"):
            devices["n0"].pad(0, 0, NODES, X, 4)
    with pytest.raises(Refused, match="n0: found another one than it has shown"):
        devices["n0"].meet({node: s for node, s in shown.items() if node != "n0"})
    devices["n0"].meet(shown)


# --- a device that starts again ---


def test_a_restart_shows_the_same_bytes_and_masks_with_the_same_pads_by_a_renewed_certificate_too(tmp_path):
    ledger, other = (Ledger(tmp_path / f"{node}.ledger", node) for node in ("n0", "n1"))
    for each in (ledger, other):
        each.join(RUN, b"plan")
    shown = {each.node: device(each).introduction() for each in (ledger, other)}
    masks = device(ledger)
    masks.meet(shown)
    pad = masks.pad(1, 0, shown, X, 4)
    killed(ledger)
    ledger = Ledger(tmp_path / "n0.ledger", "n0")
    again = RunMasks("n0", RUN, ledger, made_up(["n0"])[0]["n0"], TRUST)
    assert again.introduction() == shown["n0"]
    again.meet(shown)
    assert (again.pad(1, 0, shown, X, 4) == pad).all()
    for each in (ledger, other):
        each.close()


def test_a_lost_ledger_means_a_new_key_which_is_not_the_one_that_others_have_met(tmp_path):
    shown = []
    for place in "ab":
        ledger = Ledger(tmp_path / place / "n0.ledger", "n0", durable=False)
        ledger.join(RUN, b"plan")
        shown.append(device(ledger).introduction())
        if len(shown) == 2:
            with pytest.raises(Refused, match="n0: found another one than it has shown"):
                device(ledger).meet({"n0": shown[0]})
        ledger.close()
    assert shown[0].key != shown[1].key


def test_a_run_whose_key_is_erased_is_refused_before_it_is_gone_on_with(ledger_of):
    ledger = ledger_of("n0")
    device(ledger).introduction()
    ledger.commit(RUN, status="stopped")
    device(ledger)  # it could be resumed
    ledger.join(b"next" * 4, b"plan")
    with pytest.raises(Refused, match=f"n0: its key of run {RUN.hex()[:8]} is erased, expected a new run"):
        device(ledger)


def test_what_a_device_says_of_its_masks_holds_no_key(met):
    masks = met["n0"]
    secrets = [masks._own().private, *masks._keys.values()]
    with pytest.raises(Refused) as caught:
        masks.pad(0, 0, ["n0", "n7"], X, 4)
    said = f"{masks!r} {masks} {caught.value!r} {caught.traceback!r} {masks._own()!r}"
    assert not any(secret.hex() in said or repr(secret) in said for secret in secrets)
    assert len({*secrets}) == 4
