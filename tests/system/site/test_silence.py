"""Two devices whose sources part: one gives values, the other none. Nobody but their owners can tell them apart."""

import json

import pytest

from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import loads
from hushgrid.node import wire
from hushgrid.node.config.device import load_device
from hushgrid.node.site.data_source import data_source_of
from hushgrid.node.wire import COORDINATOR, Envelope, Plan
from tests.support.devices.asked_pair import Pair, zone_file
from tests.support.devices.hostile_questions import honest_round, setup, zone_plans

#: What becomes of the second device's source, run after run; the first one's gives a new value each time.
SILENT = {
    "gone": lambda file, text: file.unlink(missing_ok=True),
    "half written": lambda file, text: file.write_text(text[: len(text) // 2]),
    "never changed": lambda file, text: None,
    "far beyond its bounds": lambda file, text: file.write_text(text.replace(",0.0", ",1e300")),
}


@pytest.mark.parametrize("mode", ["input data", "objective data"])
@pytest.mark.parametrize("how", SILENT)
def test_a_source_that_gives_nothing_is_told_to_nobody_and_paid_like_any(tmp_path, monkeypatch, how, mode):
    case = load("case5")
    buses = tuple(sorted(setup().plan.problem.zones["z1"]))
    d = loads(case, buses)
    source = {"command": ["cat", "meter.csv"], "within": 0.5}
    files = [zone_file(tmp_path / name, "case5", buses, d, case.base_mva, source=source) for name in "ab"]
    first = (files[0].parent / "loads.csv").read_text()
    for file in files:
        (file.parent / "meter.csv").write_text(first)
    pair = Pair(monkeypatch, files, "constant")
    said = {}
    for half, file in zip(pair.halves, files, strict=True):
        pair.now, said[file] = half, []
        data_source = data_source_of(load_device(file), str(file), half.member.ledger, said[file].append)
        half.member.renew, half.member.device = data_source, data_source.device
    pair.now = None
    for number in range(3):
        (files[0].parent / "meter.csv").write_text(first.replace(",0.0", f",{number}.0"))
        SILENT[how](files[1].parent / "meter.csv", first)
        pair.begin(f"run {number}")
        assert planned(pair, zone_plans()[f"ladmm {mode}"], bytes([number]) * 16)
        honest_round(pair)
        honest_round(pair)
    versions = {half.member.ledger.data_version for half in pair.halves}
    spent = {half.spent for half in pair.halves}
    pair.close()
    assert pair.failures == []
    assert versions == {5}  # one at the start, one a run
    assert spent == ({3} if mode == "input data" else {6})
    assert not said[files[0]]
    assert bool(said[files[1]]) == (how in ("gone", "half written"))


def planned(pair, raw, nonce):
    """A plan with a schedule to both devices. Whether both joined."""
    blob = json.dumps(raw).encode()
    members = {pair.name: pair.member.session, "other": 1}
    pair.run = wire.run_id(blob, nonce, members)
    body = Plan(blob, nonce, members, {}, every=900.0)
    said = pair.ask(pair.topics.all(COORDINATOR), wire.encode(Envelope(pair.run, 0, 0, None, body)), "plan")
    return all(isinstance(wire.decode_envelope(one[0][1], 1 << 22).body, wire.Join) for one in said)
