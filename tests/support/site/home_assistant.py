"""Home Assistant's public MQTT discovery format, as JSON schemas: sensors and binary sensors, with what their pages
allow.

Written from https://www.home-assistant.io/integrations/mqtt/ (discovery messages), .../integrations/sensor.mqtt/ and
.../integrations/binary_sensor.mqtt/, and the device classes with their units of .../integrations/sensor/. Keys that the
pages do not have are refused, as Home Assistant refuses them.
"""

import re

import jsonschema

TOPIC = re.compile(r"homeassistant/(sensor|binary_sensor)/[a-zA-Z0-9_-]+/[a-zA-Z0-9_-]+/config\Z")
TEXT = {"type": "string", "minLength": 1}
TEMPLATE = {"type": "string", "pattern": r"\{\{.*\}\}"}
UNITS = {
    "power": ["mW", "W", "kW", "MW", "GW", "TW", "BTU/h"],
    "reactive_power": ["mvar", "var", "kvar"],  # mvar: a thousandth of a var
}
DEVICE = {
    "type": "object",
    "properties": {
        "identifiers": {"anyOf": [TEXT, {"type": "array", "items": TEXT, "minItems": 1}]},
        "connections": {"type": "array", "items": {"type": "array", "items": TEXT, "minItems": 2, "maxItems": 2}},
        **dict.fromkeys(
            ("name", "manufacturer", "model", "model_id", "serial_number", "sw_version", "hw_version", "via_device"),
            TEXT,
        ),
        **dict.fromkeys(("suggested_area", "configuration_url"), TEXT),
    },
    "anyOf": [{"required": ["identifiers"]}, {"required": ["connections"]}],
    "additionalProperties": False,
}
ORIGIN = {
    "type": "object",
    "properties": {"name": TEXT, "sw_version": TEXT, "support_url": {"type": "string", "pattern": "^https?://"}},
    "required": ["name"],
    "additionalProperties": False,
}
AVAILABILITY = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "topic": TEXT, "payload_available": TEXT, "payload_not_available": TEXT, "value_template": TEMPLATE,
        },
        "required": ["topic"],
        "additionalProperties": False,
    },
}  # fmt: skip
SHARED = {
    "name": {"type": ["string", "null"]},
    "unique_id": TEXT,
    "object_id": TEXT,
    "default_entity_id": TEXT,
    "state_topic": {"type": "string", "pattern": "^[^+#]+$"},
    "value_template": TEMPLATE,
    "json_attributes_topic": TEXT,
    "json_attributes_template": TEMPLATE,
    "availability": AVAILABILITY,
    "availability_mode": {"enum": ["all", "any", "latest"]},
    "availability_topic": TEXT,
    "availability_template": TEMPLATE,
    "payload_available": TEXT,
    "payload_not_available": TEXT,
    "device": DEVICE,
    "origin": ORIGIN,
    "qos": {"enum": [0, 1, 2]},
    "encoding": {"type": "string"},
    "expire_after": {"type": "integer", "minimum": 0},
    "force_update": {"type": "boolean"},
    "icon": {"type": "string", "pattern": "^[a-z]+:"},
    "entity_picture": TEXT,
    "entity_category": {"enum": ["diagnostic"]},  # of what only shows a state: config is refused there
    "enabled_by_default": {"type": "boolean"},
}
#: With a device, an entity needs a unique id; in discovery the origin says who describes it.
REQUIRED = ["state_topic", "unique_id", "device", "origin"]
SENSOR = {
    "type": "object",
    "properties": SHARED
    | {
        "device_class": {"enum": ["power", "reactive_power", "timestamp", "enum", "duration"]},
        "unit_of_measurement": {"type": "string"},
        "state_class": {"enum": ["measurement", "total", "total_increasing"]},
        "options": {"type": "array", "items": TEXT, "minItems": 1},
        "suggested_display_precision": {"type": "integer", "minimum": 0},
        "last_reset_value_template": TEMPLATE,
    },
    "required": REQUIRED,
    "additionalProperties": False,
    "allOf": [
        *(
            {
                "if": {"properties": {"device_class": {"const": name}}, "required": ["device_class"]},
                "then": {"properties": {"unit_of_measurement": {"enum": units}}, "required": ["unit_of_measurement"]},
            }
            for name, units in UNITS.items()
        ),
        {
            "if": {"properties": {"device_class": {"const": "enum"}}, "required": ["device_class"]},
            "then": {
                "required": ["options"],
                "not": {"anyOf": [{"required": ["state_class"]}, {"required": ["unit_of_measurement"]}]},
            },
        },
        {
            "if": {"required": ["options"]},
            "then": {"properties": {"device_class": {"const": "enum"}}, "required": ["device_class"]},
        },
        {
            "if": {"properties": {"device_class": {"const": "timestamp"}}, "required": ["device_class"]},
            "then": {"not": {"anyOf": [{"required": ["state_class"]}, {"required": ["unit_of_measurement"]}]}},
        },
    ],
}
BINARY_SENSOR = {
    "type": "object",
    "properties": SHARED
    | {
        "device_class": {"enum": ["problem", "connectivity", "running"]},
        "payload_on": TEXT,
        "payload_off": TEXT,
        "off_delay": {"type": "integer", "minimum": 0},
    },
    "required": REQUIRED,
    "additionalProperties": False,
}
SCHEMAS = {"sensor": SENSOR, "binary_sensor": BINARY_SENSOR}


def check(topic, payload):
    """Raises jsonschema.ValidationError or AssertionError unless Home Assistant could read this."""
    found = TOPIC.match(topic)
    assert found, topic
    jsonschema.validate(payload, SCHEMAS[found[1]], cls=jsonschema.Draft202012Validator)
