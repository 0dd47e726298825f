"""One rule names the pads of a run: a fleet of two versions is refused in one line, at its plan, before anything is
answered.
"""

import json

import msgspec
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from hushgrid.kernels.errors import InputError
from hushgrid.node.problems import masking
from hushgrid.node.problems.plan import decode_plan, encode_plan
from hushgrid.node.schema.sections import Section
from tests.support.scenarios.guarded_plans import sum_of


@pytest.fixture(scope="module")
def plan():
    return sum_of(4, 1, 1.0)


class Masking(Section, frozen=True, kw_only=True):
    """The section of a plan as the version before has it, which names pads by round and attempt."""

    corrupt: int
    contributors: int | None = None


def test_a_device_of_this_version_refuses_a_plan_of_a_coordinator_of_the_version_before(plan):
    older = replace(plan, privacy=replace(plan.privacy, masked=replace(plan.privacy.masked, pads=UNSET)))
    assert "pads" not in encode_plan(older).decode()
    older = decode_plan(encode_plan(older))  # a stored one is still read
    with pytest.raises(InputError) as caught:
        masking.member(older, "n2", None, None)
    line = "n2: found pads by round and attempt (its coordinator runs another version), expected them by question"
    assert str(caught.value) == line
    masking.member(plan, "n2", None, None)


def test_a_device_of_the_version_before_refuses_a_plan_of_this_one(plan):
    section = json.loads(encode_plan(plan))["privacy"]["masked"]
    assert section == {"corrupt": 1, "pads": "question"}
    with pytest.raises(msgspec.ValidationError, match="unknown field `pads`"):
        msgspec.convert(section, Masking)


def test_no_other_rule_is_a_plan_of_this_version(plan):
    raw = json.loads(encode_plan(plan))
    raw["privacy"]["masked"]["pads"] = "attempt"
    with pytest.raises(InputError, match="Invalid enum value 'attempt'"):
        decode_plan(json.dumps(raw).encode())
