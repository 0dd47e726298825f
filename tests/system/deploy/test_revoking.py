"""A member is put out: its live connection ends at once, the others stay up, and what was revoked opens nothing."""

import os
import re
import shutil
import signal
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from hushgrid.broker.enrolment import authority as authorities
from hushgrid.broker.enrolment.authority import request
from hushgrid.cli.main import main
from hushgrid.node.wire import Topics
from tests.support.daemons.deployed_fleet import PATIENCE, ZONES
from tests.support.daemons.enrolled_fleet import Enrolled, enrolled

TOPICS = Topics("demo")


@pytest.fixture
def fleet(tmp_path, mosquitto_program, stack) -> Enrolled:
    return enrolled(tmp_path, mosquitto_program, stack)


def ends(link) -> float:
    """s until the connection has ended."""
    began = time.monotonic()
    while link.connected:
        assert time.monotonic() < began + PATIENCE
        link.poll(0.01)
    return time.monotonic() - began


def test_a_revoked_members_live_connection_ends_and_it_cannot_come_back_while_the_others_stay(fleet, capsys):
    boxes = {z: fleet.connection(z) for z in ZONES}
    watch = fleet.connection("watch", TOPICS.state("+"))
    boxes["z3"].publish(TOPICS.state("z3"), b"there", retain=True)
    began = time.monotonic()
    fleet.operator("revoke", fleet.path, "z3", "--apply", fleet.reload)
    took = time.monotonic() - began + ends(boxes["z3"])
    print(f"cut {took:.3f} s after the command began")
    assert "z3: its connection has ended" in capsys.readouterr().out
    for z in ("z1", "z2"):
        boxes[z].publish(TOPICS.state(z), b"still there")
        boxes[z].poll(0.2)
        assert boxes[z].connected
        assert boxes[z].disconnects == 0
    fleet.refuses("z3")
    late = fleet.connection("watch", TOPICS.state("+"))
    assert [m.topic for m in late.poll(1.0) if m.retained] == []  # its last word is cleared
    assert watch.disconnects == 0
    assert "user z3" not in (fleet.path / "broker" / "hushgrid.acl").read_text()


def test_without_a_command_it_says_what_to_run_and_cut_then_ends_the_connection(fleet, capsys):
    box = fleet.connection("z3")
    fleet.operator("revoke", fleet.path, "z3")
    said = capsys.readouterr().out
    assert f"systemctl reload mosquitto; hushgrid fleet cut {fleet.path} z3" in said
    box.poll(0.2)
    assert box.connected
    fleet.broker.send_signal(1)
    fleet.operator("cut", fleet.path)
    ends(box)
    fleet.refuses("z3")


def test_a_broker_that_is_not_there_is_one_line_and_the_list_stands(fleet, capsys):
    fleet.broker.kill()
    fleet.broker.wait()
    assert main(["fleet", "revoke", str(fleet.path), "z3", "--apply", "true"]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert "the list stands, its live connection may still be up" in line
    assert fleet.authority.is_out("z3")
    assert "user z3" not in (fleet.path / "broker" / "hushgrid.acl").read_text()


def short(fleet, name, seconds):
    """A box whose certificate lasts for so long."""
    folder = fleet.directory / f"short-{name}"
    made = request(name, folder)
    directory = fleet.authority
    directory._put(name, directory.authority().sign(name, made.key, timedelta(seconds=seconds)))
    directory.hand_over(name, folder)
    return folder


def test_a_connection_whose_certificate_has_ended_stays_up_until_it_is_cut(fleet, capsys):
    box, other = fleet.connection("z1", certs=short(fleet, "z1", 3)), fleet.connection("z2")
    ended = fleet.authority.identity("z1").newest.ends
    while authorities.now() <= ended:
        box.poll(0.1)
    box.poll(0.5)
    assert box.connected
    fleet.operator("list", fleet.path)
    assert re.search("z1 .*ended", capsys.readouterr().out)
    fleet.operator("cut", fleet.path)
    ends(box)
    other.poll(0.2)
    assert other.disconnects == 0


def test_an_older_certificate_is_revoked_once_the_new_one_is_seen_in_use(fleet, capsys):
    node = fleet.node("z1")
    old = shutil.copytree(fleet.certs, fleet.directory / "old")
    fleet.operator("request", "z1", "--out", fleet.directory / "new")
    fleet.operator("renew", fleet.path, "z1", "--request", fleet.directory / "new" / "z1.csr")
    capsys.readouterr()
    fleet.operator("retire", fleet.path, "--apply", fleet.reload)
    assert "its new certificate has not been seen yet" in capsys.readouterr().out
    fleet.authority.hand_over("z1", fleet.certs)
    shutil.copyfile(fleet.directory / "new" / "z1.key", fleet.certs / "z1.key")
    node.child.send_signal(signal.SIGHUP)
    node.wait_for("its certificate has been renewed: it connects again")
    deadline = time.monotonic() + PATIENCE
    while "1 older revoked" not in capsys.readouterr().out:
        assert time.monotonic() < deadline
        fleet.operator("retire", fleet.path, "--apply", fleet.reload)
    fleet.refuses("z1", certs=old)
    assert node.said.count("\n") == 2, node.said  # ready; renewed
    assert "away" not in node.said


@pytest.mark.skipif(os.geteuid() != 0, reason="missing: root's rights")
def test_a_broker_that_root_has_started_gives_roots_rights_up_and_reads_its_lists_again(mosquitto_program, stack):
    place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))  # where every user may pass
    place.chmod(0o755)
    fleet = enrolled(place, mosquitto_program, stack)
    assert "\nuser mosquitto\n" in (fleet.path / "broker" / "mosquitto.conf").read_text()
    assert psutil.Process(fleet.broker.pid).username() == "mosquitto"
    box, other = fleet.connection("z3"), fleet.connection("z1")
    fleet.operator("revoke", fleet.path, "z3", "--apply", fleet.reload)
    ends(box)
    fleet.refuses("z3")
    assert other.disconnects == 0
