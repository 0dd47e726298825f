"""docs/reference/ is what the program declares today, and the JSON Schemas take what the program takes."""

import copy
import importlib.util
import json
from functools import cache

import jsonschema
import msgspec
import pytest

from hushgrid.kernels.algorithms.registry import ALGORITHMS
from hushgrid.kernels.errors import InputError
from hushgrid.node.config.coordinator import CoordinatorConfig
from hushgrid.node.config.device import DeviceConfig
from hushgrid.node.config.scenario import Scenario, scenario_from
from hushgrid.node.schema.yaml_file import convert, read_yaml
from tests.support.paths import ROOT

SPEC = importlib.util.spec_from_file_location("generate", ROOT / "docs/generate.py")
generate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(generate)
pages = cache(generate.pages)  #: made by the test that reads them, not by every process that collects this one
FILES = {
    "scenario": (Scenario, [*(ROOT / "scenarios").rglob("*.yaml"), *(ROOT / "deploy").rglob("scenario.yaml")]),
    "device": (DeviceConfig, [*(ROOT / "deploy").rglob("nodes/*.yaml")]),
    "coordinator": (CoordinatorConfig, [*(ROOT / "deploy").rglob("coordinator.yaml")]),
}
GIVEN = [(kind, file) for kind, (_, files) in FILES.items() for file in files]


def schema(kind: str) -> jsonschema.Draft202012Validator:
    found = json.loads(pages()[f"{kind}.schema.json"])
    jsonschema.Draft202012Validator.check_schema(found)
    return jsonschema.Draft202012Validator(found)


def test_the_committed_reference_is_current():
    """If this fails: `make reference`."""
    assert {path.name for path in generate.PLACE.iterdir()} == set(pages())
    assert [name for name, text in pages().items() if (generate.PLACE / name).read_text(encoding="utf-8") != text] == []


def test_the_table_of_algorithms_has_every_one_and_so_have_the_sections():
    text = pages()["algorithms.md"]
    for name, kind in ALGORITHMS.items():
        assert f"| `{name}` | {kind.title}. {kind.paper} | {kind.pattern} | " in text
        assert f"\n## {name}\n\n{kind.title}\n" in text


@pytest.mark.parametrize("kind", FILES)
def test_every_key_stands_in_its_page_and_its_schema_with_a_meaning(kind):
    found = json.loads(pages()[f"{kind}.schema.json"])
    listed = 0
    for name, section in found["$defs"].items():
        for key, said in section["properties"].items():
            if "description" not in said:  # the tag, which is the section's own name
                assert len(said["enum"]) == 1, (name, key)
            assert f"| `{key}` | " in pages()[f"{kind}.md"]
            listed += 1
    assert listed > 10


def test_a_field_without_a_meaning_is_an_error():
    class Bare(msgspec.Struct):
        named: int  #: what it is
        bare: int

    own = generate.own_meanings.__wrapped__
    assert own(Bare) == {"named": "what it is", "bare": ""}
    with pytest.raises(KeyError, match=r"Bare\.bare has no meaning"):
        generate.meaning(Bare, "bare")


def test_meanings_are_read_from_the_line_or_the_lines_above_and_end_with_a_default():
    assert generate.meaning(Scenario, "network")[0] == "who speaks to whom; data problems (zones bring their own)"
    assert generate.meaning(Scenario, "seed") == (
        "of noise and walk: the same bits each time, and not private; simulation "
        "only", "the operating system's entropy",
    )  # fmt: skip


@pytest.mark.parametrize(("kind", "file"), GIVEN, ids=lambda value: str(value).removeprefix(f"{ROOT}/"))
def test_a_file_that_the_program_takes_is_valid(kind, file):
    raw = read_yaml(file)
    convert(copy.deepcopy(raw), FILES[kind][0], str(file))
    assert [error.message for error in schema(kind).iter_errors(raw)] == []


@pytest.mark.parametrize(
    "over",
    [
        {"unknown": 1}, {"name": "no spaces allowed"}, {"seed": -1}, {"privacy": {"epsilon": 1.0}},
        {"algorithm": {"name": "ladmm", "rounds": 0}}, {"algorithm": {"name": "nothing", "rounds": 1}},
        {"run": {"faults": {"loss": 1.5}}},
    ],
    ids=str,
)  # fmt: skip
def test_what_the_program_does_not_take_is_invalid(over):
    raw = read_yaml(ROOT / "scenarios/case14.yaml") | over
    with pytest.raises(InputError):
        scenario_from(copy.deepcopy(raw))
    assert not schema("scenario").is_valid(raw)


def test_units_and_ranges_are_those_of_the_types():
    assert "| `wait_s` | number | s | `60.0` | above 0 | for all members to be there |" in pages()["coordinator.md"]
    found = json.loads(pages()["coordinator.schema.json"])["$defs"]["CoordinatorConfig"]["properties"]["wait_s"]
    assert (found["unit"], found["exclusiveMinimum"], found["default"]) == ("s", 0, 60.0)
