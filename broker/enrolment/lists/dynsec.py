"""mosquitto with its dynamic security plugin: a client and a role an identity. What no role allows is refused."""

from __future__ import annotations

import re

import msgspec

from hushgrid.broker.enrolment.lists import mosquitto
from hushgrid.broker.enrolment.lists.access import Access, Rights
from hushgrid.broker.enrolment.lists.place import Place
from hushgrid.kernels.types import Document

REFUSED = {"publishClientSend": False, "publishClientReceive": False, "subscribe": False, "unsubscribe": True}


def security(access: Access) -> str:
    """dynamic-security.json. A client is known by its certificate's name; there are no passwords."""
    document: Document = {
        "defaultACLAccess": dict(REFUSED),
        "clients": [
            {"username": name, "clientid": name, "roles": [{"rolename": name, "priority": 0}]} for name in access.names
        ],
        "groups": [],
        "roles": [{"rolename": rights.name, "acls": _rules(rights)} for rights in access.rights],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"


def _rules(rights: Rights) -> list[Document]:
    rules = [
        *(("publishClientSend", topic) for topic in rights.publish),
        *(("publishClientReceive", topic) for topic in rights.read),
        # The last level of a name may be any of its right: whoever may read edge/+/NAME may ask for one of them.
        *(("subscribePattern", topic) for topic in dict.fromkeys((*rights.subscribe, *rights.read))),
    ]
    return [{"acltype": kind, "topic": topic, "priority": 0, "allow": True} for kind, topic in rules]


def files(access: Access, place: Place) -> dict[str, str]:
    """All that mosquitto reads beside certificates, by name."""
    plugin = f"plugin {place.plugin}\nplugin_opt_config_file {place.folder}/dynamic-security.json"
    text = mosquitto.configuration(access, place)
    text = re.sub("^acl_file .*$", plugin, text, flags=re.M)
    text = text.replace("the topics of each identity stand in the list.", "the plugin knows each identity's topics.")
    return {"mosquitto.conf": text, "dynamic-security.json": security(access)}
