"""A refusal that is computed from raw labels: the liar asks for fewer and fewer classes, and never for an answer.

The promise: a plan is refused by public numbers and the owner's declaration alone.
"""

import re

import numpy as np
import pytest

from hushgrid.kernels.patterns.star import W, Z
from hushgrid.node.wire import Join, Refuse
from tests.support.daemons.attacked_device import SCENARIO, Target, rows_config, zone_config
from tests.support.daemons.lying_coordinator import Liar, altered, honest_plan

M, DECLARED, MOST = 20, 1000, 1024
NAMES = {"first": "n0", "second": "n1"}  #: by fleet; a broker knows one client of a name
LARGEST = 612  #: the largest label of the device under attack; the other device's is 407


def labels(largest):
    b = np.random.default_rng(3).integers(0, 400, M).astype(float)
    b[7] = largest
    return b


@pytest.fixture
def devices(tmp_path, url, stack):
    """Two devices whose owners declare the same, in fleets of their own; their labels differ."""
    A = np.random.default_rng(4).normal(size=(M, 2))
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    replaced = {"replace-one-record": {"clip": 1.0}}
    made = {}
    for (fleet, name), largest in zip(NAMES.items(), (LARGEST, 407), strict=True):
        place = tmp_path / fleet
        config = rows_config(
            place, A, labels(largest), replaced, 20.0, 1.0, labels={"classes": DECLARED}, algorithms=["recal"]
        )
        made[fleet] = Target(place, url, stack, name, config, fleet=fleet)
        made[fleet].start()
    return made


def test_the_largest_label_is_not_found_by_plans_that_are_refused(devices, url, stack, show):
    plan = honest_plan(
        {
            "hushgrid": 1, "name": "labels",
            "problem": {
                "kind": "softmax", "data": {"devices": {"features": 2, "rows": M}}, "row_bound": 1.0, "classes": MOST,
            },
            "network": {"kind": "path", "nodes": 2},
            "algorithm": {"name": "recal", "rounds": 2, "walk": "random"},
            "privacy": {"adjacency": {"replace-one-record": {"clip": 1.0}}, "epsilon": 5.0},  # its owner allows 1
        }
    )  # fmt: skip
    liars = {fleet: stack.enter_context(Liar(url, [NAMES[fleet]], fleet)) for fleet in devices}

    def reply(fleet, classes):
        """What a device says of a plan for so many classes, without its figures: those of the plan are the liar's
        own.
        """
        liar, name = liars[fleet], NAMES[fleet]
        others = set(NAMES.values()) - {name}
        run = liar.announce(altered(plan, {"problem.classes": classes}), others=others)
        said = liar.reply(run, name, Join, Refuse)
        return re.sub(r"\d+", "#", said.reason) if isinstance(said, Refuse) else "joined"

    asked = [MOST, 2]
    fits, not_all = reply("first", MOST), reply("first", 2)
    low, high = 2, MOST  # `low` classes do not hold the labels, `high` do
    while fits != not_all and high - low > 1:
        asked.append(middle := (low + high) // 2)
        low, high = (low, middle) if reply("first", middle) == fits else (middle, high)
    found = high - 1 if fits != not_all else None
    differ = [classes for classes in asked if reply("first", classes) != reply("second", classes)]
    for device in devices.values():
        device.daemon.end()
    paid = devices["first"].account()
    show(
        f"largest label: {found} (true {LARGEST}) from {len(asked)} refused plans; ledger: {paid.answers} answers"
        f"\n    two devices that declare the same answer differently at {len(differ)} of {len(asked)} plans"
    )
    assert differ == []
    assert found != LARGEST


# --- What an answer that is repeated tells: in mode `input` a repetition costs nothing, and says that nothing has c ---

#: MW of bus 3.
DAY_A, DAY_B = 94.2, 51.7


def seen(url, target):
    """What an eavesdropper sees of one run of mode input: z of its first round, a function of the noisy loads alone."""
    target.start()
    with Liar(url, ["z1"]) as liar:
        run = liar.announce(altered(honest_plan(SCENARIO), {"privacy.mode": "input"}))
        assert liar.joined(run, "z1")
        liar.say(run, "z1", W(np.zeros(liar.birth("z1").capabilities.dimension)), 1)
        z = liar.reply(run, "z1", Z, Refuse)
        assert isinstance(z, Z), z
        liar.farewell(run, "z1", "stopped")
    target.daemon.end()
    return z.z.tobytes()


def days(place, url, stack, loads, budget=20.0):
    """The number of each day's answer, equal ones counted once; and the ledger's. Every day its loads come as a new
    file.
    """
    found, numbers = [], []
    target = Target(place, url, stack, "z1", zone_config(place, budget))
    for p3 in loads:
        zone_config(place, p3=p3)
        answer = seen(url, target)
        found += [answer] if answer not in found else []
        numbers.append(found.index(answer) + 1)
    return numbers, target.account()


def test_days_with_the_same_loads_are_not_known_by_their_answers(tmp_path, url, stack, show):
    numbers, paid = days(tmp_path / "z1", url, stack, [DAY_A, DAY_B, DAY_A, DAY_B])
    show(f"days A, B, A, B give answers {numbers}; ledger: {paid.answers} answers")
    assert numbers == [1, 2, 3, 4]
    assert paid.answers == 4


def test_a_change_of_100_w_is_not_seen_at_a_bounded_change_of_1_mw(tmp_path, url, stack, show):
    """Two owners replace the file each day; the second one's load has moved by a ten-thousandth of what the noise
    hides.
    """
    same, paid = days(tmp_path / "same", url, stack, [DAY_A, DAY_A])
    moved, paid_too = days(tmp_path / "moved", url, stack, [DAY_A, DAY_A + 1e-4])
    show(
        f"the same loads give answers {same}, 100 W more {moved}; ledgers: {paid.answers} and {paid_too.answers} "
        "answers"
    )
    assert same == moved
    assert paid == paid_too
