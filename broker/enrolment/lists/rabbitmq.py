"""RabbitMQ: a user an identity, without a password, known by its certificate's name; what it may do with its own queues
and with the exchange, and with which topics, as anchored regular expressions. `/` is written `.` there, `+` `*`.
"""

from __future__ import annotations

import re

import msgspec

from hushgrid.broker.enrolment.lists.access import ANY, Access, Rights
from hushgrid.broker.enrolment.lists.place import Place
from hushgrid.kernels.types import Document

VHOST, EXCHANGE = "hushgrid", "amq.topic"
NOTHING = "^$"


def expression(topics: tuple[str, ...]) -> str:
    """One regular expression for topics and filters: `+` stands for one level, a literal `+` among them."""
    if not topics:
        return NOTHING
    parts = (
        r"\.".join("[^.]+" if level == ANY else re.escape(level) for level in topic.split("/"))
        for topic in dict.fromkeys(topics)
    )
    return f"^({'|'.join(parts)})$"


def literal(topics: tuple[str, ...]) -> tuple[str, ...]:
    """Filters as subscriptions of which the server sees the sign of a level."""
    return tuple(topic.replace(ANY, "*") for topic in topics)


def definitions(access: Access) -> str:
    """definitions.json, which the server reads as it starts."""
    document: Document = {
        "vhosts": [{"name": VHOST}],
        "users": [
            {"name": name, "password_hash": "", "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": ""}
            for name in access.names
        ],
        "permissions": [_queues(rights.name) for rights in access.rights],
        "topic_permissions": [_topics(rights) for rights in access.rights],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"


def _queues(name: str) -> Document:
    queue = f"mqtt-subscription-{re.escape(name)}qos[01]"
    return {
        "user": name,
        "vhost": VHOST,
        "configure": f"^{queue}$",
        "write": rf"^({queue}|amq\.topic)$",
        "read": rf"^({queue}|amq\.topic)$",
    }


def _topics(rights: Rights) -> Document:
    read = (*rights.read, *literal(rights.subscribe))
    return {
        "user": rights.name,
        "vhost": VHOST,
        "exchange": EXCHANGE,
        "write": expression(rights.publish),
        "read": expression(read),
    }


def configuration(access: Access, place: Place, port: int) -> str:
    """rabbitmq.conf."""
    certs = f"{place.folder}/certs"
    return f"""\
# RabbitMQ (3.10 and later, plugin rabbitmq_mqtt) for the fleet "{access.fleet}". hushgrid fleet acl writes this
# file and definitions.json; rabbitmqctl import_definitions reads the latter again. A user that is gone from it stays:
# rabbitmqctl delete_user NAME ends one that was put out, and its connection.
# RabbitMQ binds no client id to a certificate: whoever has one of the fleet can disconnect another. A forbidden
# publication or subscription ends the connection. Retained messages come by exact topics alone, by no wildcard.
load_definitions = {place.folder}/definitions.json
listeners.tcp = none
mqtt.listeners.tcp = none
mqtt.listeners.ssl.default = {port}
mqtt.vhost = {VHOST}
mqtt.exchange = {EXCHANGE}
mqtt.allow_anonymous = false
mqtt.ssl_cert_login = true
ssl_cert_login_from = common_name
ssl_options.cacertfile = {certs}/ca.crt
ssl_options.certfile = {certs}/broker.crt
ssl_options.keyfile = {certs}/broker.key
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
ssl_options.versions.1 = tlsv1.2
mqtt.tcp_listen_options.nodelay = true
{_cluster(place)}"""


def _cluster(place: Place) -> str:
    """What makes one cluster of several servers: a subscription that is kept is a quorum queue, and has no one home."""
    if not place.cluster:
        return ""
    nodes = "".join(
        f"cluster_formation.classic_config.nodes.{number} = {node(place, number)}\n"
        for number in range(1, len(place.cluster) + 1)
    )
    return (
        "mqtt.durable_queue_type = quorum\ncluster_partition_handling = pause_minority\n"
        f"cluster_formation.peer_discovery_backend = classic_config\n{nodes}"
    )


def node(place: Place, number: int) -> str:
    """The name of a server of the cluster among Erlang's nodes."""
    return f"{place.named(number)}@{place.cluster[number - 1].host}"


def environment(place: Place, number: int) -> str:
    """rabbitmq-env-N.conf: which server this is, and where its files are."""
    host = place.cluster[number - 1].host
    return f"""\
# Server {number} of {len(place.cluster)}, {host}: /etc/rabbitmq/rabbitmq-env.conf of its machine. All have one
# /var/lib/rabbitmq/.erlang.cookie, and speak to each other by Erlang's own protocol, unencrypted unless its TLS is set
# up: on a network of their own.
NODENAME={node(place, number)}
USE_LONGNAME={"true" if "." in host else "false"}
CONFIG_FILE={place.folder}/rabbitmq-{number}.conf
ENABLED_PLUGINS_FILE={place.folder}/enabled_plugins
"""


def files(access: Access, place: Place) -> dict[str, str]:
    """All that RabbitMQ reads beside certificates, by name."""
    configurations = {"rabbitmq.conf": configuration(access, place, place.port)}
    if place.cluster:
        numbered = list(enumerate(place.cluster, 1))
        configurations = {f"rabbitmq-{n}.conf": configuration(access, place, one.port) for n, one in numbered}
        configurations |= {f"rabbitmq-env-{n}.conf": environment(place, n) for n, _ in numbered}
    return {
        **configurations,
        "definitions.json": definitions(access),
        "enabled_plugins": "[rabbitmq_mqtt].\n",
    }
