"""What Home Assistant is told of a device's topics (MQTT discovery), so that its owner need not describe them by hand.

Each set-point is a sensor of one device. Home Assistant has no MVAr: its device class `reactive_power` takes var, since
2025.5 kvar too, and since 2025.9 mvar, by which it means a thousandth of a var. So MVAr are multiplied to var there,
which every version takes, and no name of an entity has a unit. A sensor is unavailable while this program is away,
and once its value is old.
"""

from __future__ import annotations

from math import ceil

import msgspec

from hushgrid.kernels.types import Document
from hushgrid.node.versions import version

PREFIX = "homeassistant"  #: Home Assistant's own default
URL = "https://pypi.org/project/hushgrid/"
#: Key of a set-point, what it is, device class, unit, and what makes that unit of the set-point's.
PER_BUS = (
    ("mw", "active power", "power", "MW", ""),
    ("mvar", "reactive power", "reactive_power", "var", " * 1000000"),
)


def discovery(
    fleet: str,
    node: str,
    topic: str,
    document: Document,
    validity: float | None,
    source: bool,
    of_day: Document | None = None,
) -> list[tuple[str, bytes]]:
    """(topic, payload) of each entity; all are to be retained.

    `topic`: of the document. `validity`: s for which it counts, if that is known. `source`: whether the device has one.
    `of_day`: the tariff of a horizon.
    """
    name = f"hushgrid-{fleet}-{node}"
    shared: Document = {
        "device": {
            "identifiers": [name],
            "name": f"hushgrid {node}",
            "manufacturer": "hushgrid",
            "model": f"node of fleet {fleet}",
            "sw_version": version("hushgrid"),
        },
        "origin": {"name": "hushgrid", "sw_version": version("hushgrid"), "support_url": URL},
        "qos": 1,
    }
    entities = _values(topic, document, validity) | _prices(topic, of_day) | _states(topic, source)
    return [
        (
            f"{PREFIX}/{component}/{name}/{entity}/config",
            msgspec.json.encode({"unique_id": f"{name}-{entity}", **payload, **shared}),
        )
        for (component, entity), payload in entities.items()
    ]


def _values(topic: str, document: Document, validity: float | None) -> dict[tuple[str, str], Document]:
    """The sensors of the set-points, by component and name."""
    here = {"topic": available(topic)}
    young = {"topic": topic, "value_template": "{{ 'offline' if value_json.state == 'old' else 'online' }}"}
    expires = {} if validity is None else {"expire_after": ceil(2 * validity)}
    values = {}
    for row in document.get("setpoints", ()):
        bus = row["bus"]
        for key, what, device_class, unit, scaled in PER_BUS:
            value = f"(value_json.setpoints | selectattr('bus', 'eq', {bus}) | first).{key}{scaled}"
            values["sensor", f"bus{bus}_{what.replace(' ', '_')}"] = {
                "name": f"Bus {bus} {what}",
                "state_topic": topic,
                "value_template": f"{{{{ {value} }}}}",
                "device_class": device_class,
                "unit_of_measurement": unit,
                "state_class": "measurement",
                "availability": [here, young],
                "availability_mode": "all",
                **expires,
            }
    return values


def _prices(topic: str, of_day: Document | None) -> dict[tuple[str, str], Document]:
    """What a kWh costs now at each bus, and how much the plan serves there; all periods are attributes."""
    if of_day is None:
        return {}
    kinds: tuple[tuple[str, str, str, Document], ...] = (
        ("prices", "price", "unit", {}),
        ("limits", "limit", "limit_unit", {"device_class": "power", "state_class": "measurement"}),
    )
    return {
        ("sensor", f"bus{bus}_{what}"): {
            "name": f"Bus {bus} {what}",
            "state_topic": tariff(topic),
            "value_template": f"{{{{ value_json.buses['{bus}'].{key}[0].value }}}}",
            "unit_of_measurement": of_day[unit],
            "json_attributes_topic": tariff(topic),
            "json_attributes_template": f"{{{{ {{'{key}': value_json.buses['{bus}'].{key}}} | tojson }}}}",
            "availability": [{"topic": available(topic)}],
            **more,
        }
        for bus in of_day["buses"]
        for key, what, unit, more in kinds
    }


def _states(topic: str, source: bool) -> dict[tuple[str, str], Document]:
    """Whether they count, until when, and how the device's own source is."""
    attributes = ", ".join(f"'{key}': value_json.{key}" for key in ("run", "reason", "data_state", "age"))
    states: dict[tuple[str, str], Document] = {
        ("sensor", "state"): {
            "name": "Set-points",
            "state_topic": topic,
            "value_template": "{{ value_json.state }}",
            "device_class": "enum",
            "options": ["fresh", "held", "old"],
            "json_attributes_topic": topic,
            "json_attributes_template": f"{{{{ {{{attributes}}} | tojson }}}}",
        },
        ("sensor", "data_state"): {
            "name": "Data",
            "state_topic": topic,
            "value_template": "{{ value_json.data_state }}",
            "device_class": "enum",
            "options": ["current", "last-good", "expired"],
            "entity_category": "diagnostic",
        },
        ("sensor", "valid_until"): {
            "name": "Valid until",
            "state_topic": topic,
            "value_template": "{{ value_json.valid_until }}",
            "device_class": "timestamp",
            "entity_category": "diagnostic",
        },
    }
    if source:
        states["binary_sensor", "source"] = {
            "name": "Data source",
            "state_topic": health(topic),
            "value_template": "{{ 'ON' if value_json.problem else 'OFF' }}",
            "device_class": "problem",
            "entity_category": "diagnostic",
            "json_attributes_topic": health(topic),
        }
    return {key: payload | {"availability": [{"topic": available(topic)}]} for key, payload in states.items()}


def available(topic: str) -> str:
    """The topic that says online or offline."""
    return f"{topic}/available"


def health(topic: str) -> str:
    """The topic of the source's health: whether it gives values, never which."""
    return f"{topic}/source"


def tariff(topic: str) -> str:
    """The topic of the prices and limits of a horizon."""
    return f"{topic}/tariff"
