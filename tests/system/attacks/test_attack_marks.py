"""The memory of what is spent: a liar's marks, a mark that is gone, a ledger that is copied without its log.

The promise: no mark and no copy gives budget back, and none makes a ledger unreadable.
"""

import shutil

import numpy as np
import pytest

from hushgrid.kernels.patterns.star import W, Z
from hushgrid.node.wire import Mark, Refuse
from tests.support.daemons.attacked_device import SCENARIO, Target, zone_config
from tests.support.daemons.lying_coordinator import Liar, honest_plan

EPSILON = 5.0  #: of one run, one answer; and of the whole budget


def answered(liar, **announced):
    """Whether z1 answers a new run of one answer of epsilon 5 (mode objective: nothing is repeated)."""
    run, unreadable = liar.announce(honest_plan(SCENARIO), **announced), len(liar.unreadable)
    if not liar.joined(run, "z1"):
        return False
    liar.say(run, "z1", W(np.zeros(liar.birth("z1").capabilities.dimension)), 1)
    said = liar.wait(
        lambda: (liar.replies(run, "z1", Refuse, Z) + liar.unreadable[unreadable:] or [None])[0], "word of z1"
    )
    if isinstance(said, Z):
        liar.farewell(run, "z1", "stopped")
    return isinstance(said, Z)


def device(tmp_path, url, stack, budget=EPSILON, mark=True):
    return Target(tmp_path / "z1", url, stack, "z1", zone_config(tmp_path / "z1", budget), mark=mark)


@pytest.fixture
def liar(url, stack):
    return stack.enter_context(Liar(url, ["z1"]))


def keep(target):
    """The state directory as a backup holds it, of a device that has ended."""
    backup = target.directory / "backup"
    shutil.copytree(target.state, backup)
    return backup


def restore(target, backup):
    shutil.rmtree(target.state)
    shutil.copytree(backup, target.state)


def comes_up(target, liar):
    """Start the device; whether it is ready, or has ended instead."""
    liar.births.clear()
    daemon = target.start(ready=False)
    liar.wait(lambda: True if "ready on" in daemon.said or daemon.child.poll() is not None else None, "start or end")
    if daemon.child.poll() is not None:
        return False
    liar.roll_call("z1")  # so that no birth of an earlier session is taken for this one's
    return True


def test_a_liars_mark_does_not_make_the_true_one_cheaper(tmp_path, url, stack, liar, show):
    """An old copy is put back. The mark file knows what was spent; the liar tells a higher number, at no price."""
    target = device(tmp_path, url, stack)
    target.start()
    target.daemon.end()
    backup = keep(target)  # before anything was spent
    comes_up(target, liar)
    got = [answered(liar)]
    target.daemon.end()
    restore(target, backup)
    comes_up(target, liar)
    ledger = liar.birth("z1").mark.ledger
    got.append(answered(liar, marks={"z1": Mark(ledger, 1000)}))
    target.daemon.end()
    accepted = target.ledger_command("accept")
    up = comes_up(target, liar)
    got.append(up and answered(liar))
    target.daemon.end()
    paid = target.account()
    show(
        f"answers of epsilon 5 under a budget of 5: {got}; accept: "
        f"{(accepted.stdout or accepted.stderr).strip()[-120:]}"
        f"\n    ledger: epsilon {paid.epsilon:g}"
    )
    assert got == [True, False, False]
    assert paid.epsilon >= EPSILON * (1 - 2**-9)  # on the grid a little less than was asked for


def test_a_mark_that_is_gone_is_missed(tmp_path, url, stack, liar, show):
    """An old copy is put back and the mark is deleted: the disk it was on may be the one that died."""
    target = device(tmp_path, url, stack, budget=2 * EPSILON)
    target.start()
    got = [answered(liar)]
    target.daemon.end()
    backup = keep(target)  # one of two answers is spent, and a mark was written
    comes_up(target, liar)
    got.append(answered(liar))
    target.daemon.end()
    restore(target, backup)
    assert target.mark is not None
    target.mark.unlink()
    up = comes_up(target, liar)
    got.append(up and answered(liar))
    if up:
        target.daemon.end()
    show(f"answers of epsilon 5 under a budget of 10: {got}; the last start says: {target.daemon.said.strip()[:200]!r}")
    assert got == [True, True, False]


@pytest.mark.parametrize("own", [True, False], ids=["its own ledger", "another ledger"])
def test_no_mark_makes_a_ledger_unreadable(tmp_path, url, stack, liar, show, own):
    target = device(tmp_path, url, stack, budget=3 * EPSILON)
    target.start()
    assert answered(liar)
    ledger = liar.birth("z1").mark.ledger if own else b"x" * 16
    answered(liar, marks={"z1": Mark(ledger, 1 << 48)})
    target.daemon.end()
    accepted = target.ledger_command("accept")
    said = []
    for _ in range(2):  # the first start may spend, and write the mark that the second cannot read
        if comes_up(target, liar):
            answered(liar)
            target.daemon.end()
        said.append((target.daemon.code(), target.daemon.said.strip().splitlines()[-1][-160:]))
    shown = target.ledger_command("show")
    show(
        f"accept ends with {accepted.returncode}; starts: {said}; ledger show: {shown.returncode} "
        f"{shown.stderr.strip()[-160:]}"
    )
    assert [code for code, _ in said] == [0, 0]
    assert shown.returncode == 0


@pytest.fixture
def copied(tmp_path, url, stack, liar):
    """A device without a mark, its whole budget spent, on a copy of its ledger's one file made while it ran.

    (the device, the identity of its ledger, whether it is up again)
    """
    target = device(tmp_path, url, stack, mark=False)
    target.start()
    assert answered(liar)
    identity = liar.birth("z1").mark.ledger
    copy = tmp_path / "copy.ledger"
    shutil.copy2(target.ledger, copy)
    target.daemon.end()
    shutil.rmtree(target.state)
    target.state.mkdir()
    shutil.copy2(copy, target.ledger)
    return target, identity, comes_up(target, liar)


def test_a_ledger_copied_without_its_log_is_not_taken_for_new(copied, liar, show):
    target, identity, up = copied
    same = up and liar.birth("z1").mark.ledger == identity
    show(
        f"the copy has {target.ledger.stat().st_size} bytes; the device is {'up' if up else 'not up'}, same ledger: "
        f"{same}"
    )
    assert same or not up


def test_a_ledger_copied_without_its_log_gives_no_budget_back(copied, liar, show):
    target, _, up = copied
    again = up and answered(liar)
    show(f"answers of epsilon 5 under a budget of 5: {[True, again]}; it says {target.daemon.said.strip()[-160:]!r}")
    assert not again
    liar.roll_call("z1")
    target.daemon.end()
    assert "without what was committed last: copied without its -wal" in target.daemon.said
    assert target.ledger_command("verify").returncode == 2
