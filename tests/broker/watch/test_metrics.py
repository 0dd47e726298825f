"""The figures of a fleet in Prometheus' format, from what stands on its status topics."""

from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from hushgrid.broker.watch.metrics import text
from hushgrid.broker.watch.nodes import fleet
from hushgrid.broker.watch.rows import rows
from hushgrid.node import status
from hushgrid.node.status import Interval
from hushgrid.node.wire import COORDINATOR, Topics
from tests.support.status import PLAIN

TOPICS = Topics("demo")
COUNTS = {"answer": 90, "held": 4, "silent": 2, "refused": 1}


def families(*reports):
    seen = fleet(TOPICS, {TOPICS.status(report.node): status.encode(report) for report in reports})
    return {one.name: one for one in text_string_to_metric_families(text(rows("demo", seen)))}


def test_intervals_are_counters_by_how_they_ended():
    last = Interval(number=97, outcome="held", held={"z2": PLAIN.at}, absent=("z2", "z3"), at=PLAIN.at, counts=COUNTS)
    found = families(replace(PLAIN, node=COORDINATOR, interval=last))
    family = found["hushgrid_intervals"]
    assert family.type == "counter"
    counted = {(s.labels["outcome"], s.labels["cause"]): s.value for s in family.samples}
    assert counted == {("answer", ""): 90, ("held", ""): 4, ("missed", "silent"): 2, ("missed", "refused"): 1}
    each = {key: found[f"hushgrid_interval_{key}"].samples[0].value for key in ("held", "absent", "refused")}
    assert each == {"held": 1, "absent": 2, "refused": 0}


def test_a_device_says_its_whole_budget_the_age_of_its_data_and_when_it_refused():
    device = replace(PLAIN, epsilon=2.0, lifetime=40.0, data_age_s=180.0, refused="window", refused_at=PLAIN.at)
    found = families(device)
    names = ("hushgrid_epsilon", "hushgrid_epsilon_life", "hushgrid_data_age_seconds")
    assert [found[name].samples[0].value for name in names] == [2.0, 40.0, 180.0]
    assert found["hushgrid_refused_timestamp_seconds"].samples[0].value == 1795363200.0
    assert "hushgrid_intervals" not in found
