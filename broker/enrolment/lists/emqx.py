"""EMQX (5): rules in its access file, in Erlang's terms, and the part of emqx.conf that uses them."""

from __future__ import annotations

import json

from hushgrid.broker.enrolment.lists.access import Access, Rights
from hushgrid.broker.enrolment.lists.place import Place


def rules(access: Access) -> str:
    """acl.conf. A filter is allowed as it is asked for (`eq`), and so is each topic within a right."""
    head = f'%% Who may publish and read what, in the fleet "{access.fleet}". hushgrid fleet acl writes this file.\n'
    return head + "".join(map(_rules, access.rights)) + "{deny, all}.\n"


def _rules(rights: Rights) -> str:
    asked_for = [f"{{eq, {json.dumps(topic)}}}" for topic in rights.subscribe if topic not in rights.read]
    read = ", ".join([*map(json.dumps, rights.read), *asked_for])
    publish = ", ".join(map(json.dumps, rights.publish))
    who = f'{{username, "{rights.name}"}}'
    lines = [f"{{allow, {who}, publish, [{publish}]}}.\n"] if publish else []
    return "".join([*lines, f"{{allow, {who}, subscribe, [{read}]}}.\n"])


def configuration(access: Access, place: Place) -> str:
    """What stands in emqx.conf."""
    certs = f"{place.folder}/certs"
    return f"""\
# For emqx.conf (EMQX 5), of the fleet "{access.fleet}": the name in a certificate is user and client id.
listeners.tcp.default.enable = false
listeners.ws.default.enable = false
listeners.wss.default.enable = false
listeners.ssl.default {{
  bind = "0.0.0.0:{place.port}"
  tcp_options.nodelay = true
  ssl_options {{
    cacertfile = "{certs}/ca.crt"
    certfile = "{certs}/broker.crt"
    keyfile = "{certs}/broker.key"
    verify = verify_peer
    fail_if_no_peer_cert = true
  }}
}}
mqtt {{
  peer_cert_as_username = cn
  peer_cert_as_clientid = cn
  max_packet_size = {place.largest}B
}}
authorization {{
  no_match = deny
  deny_action = ignore
  cache.enable = false
  sources = [{{ type = file, enable = true, path = "{place.folder}/acl.conf" }}]
}}
"""


def files(access: Access, place: Place) -> dict[str, str]:
    """All that EMQX reads beside certificates, by name."""
    return {"acl.conf": rules(access), "emqx.conf": configuration(access, place)}
