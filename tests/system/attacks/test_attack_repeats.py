"""What an answer that is repeated tells: in mode `input` a repetition costs nothing, and says that nothing has changed.

The promise: repeats are decided by a declared data version, which every replaced file raises, never by comparing data.
"""

import numpy as np

from hushgrid.kernels.patterns.star import W, Z
from hushgrid.node.wire import Refuse
from tests.support.daemons.attacked_device import SCENARIO, Target, zone_config
from tests.support.daemons.lying_coordinator import Liar, altered, honest_plan

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
    """The number of each day's answer, equal ones counted once; and the ledger's. Every day its loads come as a new file."""
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
    """Two owners replace the file each day; the second one's load has moved by a ten-thousandth of what the noise hides."""
    same, paid = days(tmp_path / "same", url, stack, [DAY_A, DAY_A])
    moved, paid_too = days(tmp_path / "moved", url, stack, [DAY_A, DAY_A + 1e-4])
    show(
        f"the same loads give answers {same}, 100 W more {moved}; ledgers: {paid.answers} and {paid_too.answers} answers"
    )
    assert same == moved
    assert paid == paid_too
