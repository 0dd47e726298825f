"""NATS: one configuration with a user an identity, known by the subject of its certificate. `/` is written `.` there.

A subscription of QoS 1 is delivered through a subject below `$MQTT.sub`: that one is allowed, and of `$MQTT`, `$JS` and
`$SYS` nothing else, where other clients' sessions and the copies of all messages are.
"""

from __future__ import annotations

import json

from hushgrid.broker.enrolment.lists.access import Access, Rights
from hushgrid.broker.enrolment.lists.place import BROKER, Place

DELIVERED = "$MQTT.sub.>"
#: What NATS keeps for MQTT beside DELIVERED, of this version and of later ones. A denial wins over a right.
INSIDE = (
    "$MQTT.msgs.>", "$MQTT.rmsgs", "$MQTT.rmsgs.>", "$MQTT.sess.>", "$MQTT.JSA.>", "$MQTT.qos2.>", "$MQTT.out.>",
    "$MQTT.deliver.>",
)  # fmt: skip
AROUND = ("$JS.>", "$SYS.>", "_INBOX.>", "$KV.>", "$O.>")


def subject(topic: str) -> str:
    """A topic or filter as NATS has it."""
    return topic.replace("/", ".").replace("+", "*")


def _tls(place: Place, verify: str) -> str:
    certs = f"{place.folder}/certs"
    return (
        f"tls {{ cert_file: {json.dumps(certs + '/broker.crt')}, key_file: {json.dumps(certs + '/broker.key')}, "
        f"ca_file: {json.dumps(certs + '/ca.crt')}, {verify}: true, timeout: 5 }}"
    )


def configuration(access: Access, place: Place) -> str:
    """nats.conf: of one server all, of a cluster what its servers have in common."""
    users = ",\n".join(map(_user, access.rights))
    return f"""\
# NATS (2.9 and later) for the fleet "{access.fleet}", whole. hushgrid fleet acl writes this file; after a change:
# nats-server --signal reload. A user that is gone is disconnected by that.
# NATS binds no client id to a certificate: whoever has a certificate of the fleet can disconnect another, and send or
# read nothing more by that. It acknowledges a forbidden publication, and drops it. It reads no list of revoked
# certificates: a name that was put out has no user here.
max_payload: {place.largest}
max_control_line: 16384

# For the server's own protocol, which no identity may speak: this machine alone.
listen: "127.0.0.1:-1"
{_tls(place, "verify_and_map")}
{"" if place.cluster else _server(place, "hushgrid", place.port)}
accounts {{
  hushgrid {{
    jetstream: enabled
    users: [
{users}
    ]
  }}
}}
"""


def _server(place: Place, name: str, port: int, replicas: int = 1) -> str:
    """What is one server's own."""
    store = "jetstream" if replicas == 1 else name
    return f"""
server_name: {name}
mqtt {{
  listen: "0.0.0.0:{port}"
  {_tls(place, "verify_and_map")}
  max_ack_pending: 1000
  stream_replicas: {replicas}
}}

# MQTT's sessions and retained messages need it.
jetstream {{ store_dir: {json.dumps(f"{place.folder}/{store}")} }}
"""


def member(place: Place, number: int) -> str:
    """nats-N.conf: of one server of a cluster. The servers speak to each other on the port after MQTT's, by TLS."""
    servers = place.cluster
    routes = ", ".join(json.dumps(f"nats-route://{_bracketed(one.host)}:{one.port + 1}") for one in servers)
    port = servers[number - 1].port
    return f"""\
# Server {number} of {len(servers)}, {servers[number - 1].host}. On its machine, beside all that is in this folder:
# nats-server -c {place.folder}/nats-{number}.conf
include nats.conf
{_server(place, place.named(number), port, len(servers))}
cluster {{
  name: "hushgrid"
  listen: "0.0.0.0:{port + 1}"
  {_tls(place, "verify_and_map")}
  # Whoever speaks as a server reads and says everything: the broker's certificate alone, none of the fleet's others.
  authorization {{ user: "CN={BROKER}" }}
  routes: [{routes}]
}}
"""


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _user(rights: Rights) -> str:
    publish = json.dumps([subject(topic) for topic in rights.publish])
    # An empty list of what is allowed would allow all.
    publications = f"allow: {publish}, deny: {json.dumps(['$MQTT.>', *AROUND])}" if rights.publish else 'deny: [">"]'
    subscribe = [subject(topic) for topic in dict.fromkeys((*rights.subscribe, *rights.read))]
    return (
        f"      {{ user: {json.dumps(f'CN={rights.name}')}, allowed_connection_types: [MQTT], permissions: {{\n"
        f"        publish: {{ {publications} }}\n"
        f"        subscribe: {{ allow: {json.dumps([*subscribe, DELIVERED])}, "
        f"deny: {json.dumps([*INSIDE, *AROUND])} }}\n"
        "      } }"
    )


def files(access: Access, place: Place) -> dict[str, str]:
    """All that NATS reads beside certificates, by name."""
    servers = range(1, len(place.cluster) + 1)
    return {"nats.conf": configuration(access, place)} | {f"nats-{n}.conf": member(place, n) for n in servers}
