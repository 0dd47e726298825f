"""What a coordinator's file says of runs that begin by themselves."""

import re

import pytest
import yaml

from hushgrid.kernels.errors import InputError
from hushgrid.node.config.coordinator import load_coordinator
from tests.support.paths import ROOT

PLAIN = {"fleet": "demo", "broker": "mqtt://localhost", "scenario": "scenario.yaml", "state": "state"}


def loaded(directory, **more):
    path = directory / "coordinator.yaml"
    path.write_text(yaml.safe_dump(PLAIN | more))
    return load_coordinator(path)


def test_the_example_of_the_page_is_a_file(tmp_path):
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "docs" / "continuous.md").read_text(), re.M | re.S)
    config = loaded(tmp_path, **yaml.safe_load(block))
    assert config.run.every_s == 900
    assert (config.run.warm_start, config.run.keep, config.quorum, config.hold) == (True, 960, 2, "1h")


def test_without_a_schedule_nothing_begins_by_itself(tmp_path):
    assert loaded(tmp_path).run is None


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"run": {"every": 900}}, r"run.every: found 900, expected str"),
        ({"run": {"every": "15 min"}}, r"run.every: found '15 min', expected"),
        ({"run": {"every": "0.5s"}}, "run.every: found 0.5s, expected at least 1s"),
        ({"run": {"every": "10s", "jitter": "10s"}}, "run.jitter: found 10s, expected less than run.every, 10s"),
        (
            {"run": {"every": "1min"}, "quorum": 2},
            r"wait_s: found 60, expected less than run.every, 1min: the next run",
        ),
        (
            {"run": {"every": "1min", "jitter": "5s"}, "wait_s": 56, "quorum": 2},
            r"wait_s: found 56, expected less than run.every, 1min less run.jitter, 5s: ",
        ),
        ({"run": {}}, "run.every: missing"),
        ({"run": {"every": "1h", "catch_up": True}}, "run.catch_up: unknown key"),
        ({"quorum": 0}, "quorum: found 0"),
    ],
)
def test_what_is_wrong_is_one_line_with_file_key_and_both_values(tmp_path, more, said):
    with pytest.raises(InputError, match=said) as error:
        loaded(tmp_path, **more)
    assert str(error.value).startswith(str(tmp_path / "coordinator.yaml"))
    assert "\n" not in str(error.value)


def test_a_wait_that_a_quorum_can_end_is_taken_and_so_is_a_longer_one_without_a_quorum(tmp_path):
    assert loaded(tmp_path, run={"every": "1min", "jitter": "5s"}, wait_s=54, quorum=2).quorum == 2
    assert loaded(tmp_path, run={"every": "30s"}).quorum is None
