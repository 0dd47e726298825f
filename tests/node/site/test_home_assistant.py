"""What Home Assistant is told validates against its public format, and the format notices what is wrong."""

import json

import jsonschema
import pytest
from jinja2 import Environment

from hushgrid.node.site.home_assistant import discovery
from tests.support.site import home_assistant as public

DOCUMENT = {
    "state": "fresh", "reason": "", "run": "ab", "data_state": "last-good", "age": 1.0,
    "valid_until": "2026-01-01T00:00:00Z",
    "setpoints": [{"bus": 3, "mw": 12.5, "mvar": -0.25, "pu": 1.02}, {"bus": 1, "mw": 7.0, "mvar": 0.125}],
}  # fmt: skip


def told(validity=990.0, source=True):
    made = discovery("demo", "z1", "grid/z1/setpoints", DOCUMENT, validity, source)
    return [(topic, json.loads(payload)) for topic, payload in made]


@pytest.mark.runs
@pytest.mark.parametrize("validity", [None, 990.4])
@pytest.mark.parametrize("source", [True, False])
def test_every_entity_is_one_that_home_assistant_can_read(validity, source):
    entities = told(validity, source)
    for topic, payload in entities:
        public.check(topic, payload)
    assert len(entities) == 2 * 2 + 3 + source
    ids = [payload["unique_id"] for _, payload in entities]
    assert len(set(ids)) == len(ids)
    assert len({json.dumps(payload["device"]) for _, payload in entities}) == 1
    power = [payload for _, payload in entities if payload.get("device_class") in ("power", "reactive_power")]
    assert {payload.get("expire_after") for payload in power} == {None if validity is None else 1981}


def test_prices_and_limits_of_a_day_are_sensors_with_all_hours_beside_them():
    row = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T01:00:00Z", "value": 0.031}
    tariff = {"unit": "$/kWh", "limit_unit": "kW", "buses": {"3": {"prices": [row], "limits": [row | {"value": 40}]}}}
    made = discovery("demo", "z1", "grid/z1/setpoints", DOCUMENT, 990.0, False, tariff)
    sensors = {topic.split("/")[-2]: (topic, json.loads(payload)) for topic, payload in made}
    for name, value, key in (("bus3_price", "0.031", "prices"), ("bus3_limit", "40", "limits")):
        topic, payload = sensors[name]
        public.check(topic, payload)
        assert payload["state_topic"] == payload["json_attributes_topic"] == "grid/z1/setpoints/tariff"
        templates = (payload["value_template"], payload["json_attributes_template"])
        rendered, attributes = (Environment().from_string(one).render(value_json=tariff) for one in templates)
        assert rendered == value
        assert json.loads(attributes) == {key: tariff["buses"]["3"][key]}


def test_set_points_become_unavailable_when_they_are_old():
    for _, payload in told():
        if payload.get("device_class") == "power":
            assert payload["availability_mode"] == "all"
            assert any("'old'" in a.get("value_template", "") for a in payload["availability"])


@pytest.mark.parametrize(
    ("key", "value"),
    [("unit_of_measurement", "Mvar"), ("device_class", "reactive"), ("stat_class", "measurement"), ("unique_id", ""),
     ("expire_after", 1.5), ("state_topic", "a/+"), ("device", {"name": "x"}), ("entity_category", "config")],
)  # fmt: skip
def test_the_format_notices_what_home_assistant_refuses(key, value):
    topic, payload = next((t, p) for t, p in told() if p.get("device_class") == "reactive_power")
    with pytest.raises(jsonschema.ValidationError):
        public.check(topic, payload | {key: value})


def test_power_is_in_units_of_its_class_and_no_name_says_another():
    """Home Assistant's mvar is a thousandth of a var, so that neither unit nor name may be the document's."""
    found = {p["unique_id"].rpartition("-")[2]: p for _, p in told() if p.get("device_class") in public.UNITS}
    assert set(found) == {f"bus{bus}_{what}_power" for bus in (1, 3) for what in ("active", "reactive")}
    reactive, active = found["bus3_reactive_power"], found["bus3_active_power"]
    assert (active["unit_of_measurement"], reactive["unit_of_measurement"]) == ("MW", "var")
    row = next(row for row in DOCUMENT["setpoints"] if row["bus"] == 3)
    assert value(active) == row["mw"]
    assert value(reactive) == row["mvar"] * 1e6


def test_the_answers_state_and_its_datas_state_are_two_entities():
    found = {p["unique_id"].rpartition("-")[2]: p for _, p in told() if p.get("device_class") == "enum"}
    assert {name: rendered(entity) for name, entity in found.items()} == {"state": "fresh", "data_state": "last-good"}
    assert all(rendered(entity) in entity["options"] for entity in found.values())
    attributes = Environment().from_string(found["state"]["json_attributes_template"]).render(value_json=DOCUMENT)
    assert json.loads(attributes) == {key: DOCUMENT[key] for key in ("run", "reason", "data_state", "age")}


def value(entity):
    return float(rendered(entity))


def rendered(entity):
    """What Home Assistant makes of the document."""
    return Environment().from_string(entity["value_template"]).render(value_json=DOCUMENT)
