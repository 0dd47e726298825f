"""mosquitto: its configuration and its access list (`acl_file`)."""

from __future__ import annotations

import re

from hushgrid import deploy
from hushgrid.broker.enrolment.lists.access import Access, Rights
from hushgrid.broker.enrolment.lists.place import Place
from hushgrid.node.wire import COORDINATOR

CONNECTIONS = 64  #: that a broker takes at least


def access_list(access: Access) -> str:
    """The text of `acl_file`: a section an identity."""
    head = (
        f'# Who may publish and read what, in the fleet "{access.fleet}": {_who(access)}. '
        "One topic per directed edge.\n"
        "# An identity without a section here, and every topic not named, is refused. hushgrid fleet acl writes this "
        "file.\n"
    )
    graph = (
        "# Edges between neighbours carry a token. In rounds among neighbours all/NAME carries a device's messages, "
        "and the edges\n# what one of them lacks.\n"
    )
    return head + (graph if access.networked else "") + "".join(map(_section, access.rights))


def _who(access: Access) -> str:
    parts = [f"{len(access.devices)} devices"] if access.devices else []
    sites = sum(rights.role == "bridge" for rights in access.rights)
    parts += [f"{sites} bridged sites"] if sites else []
    return " and ".join([*parts, "a coordinator"]) if COORDINATOR in access.names else f"{parts[0]} of one site"


def _section(rights: Rights) -> str:
    why = "\n# Whoever watches the fleet (hushgrid status, hushgrid watch) reads who is there, and writes nothing."
    lines = [
        why if rights.role == "watch" else "",
        f"user {rights.name}",
        *(f"topic write {topic}" for topic in rights.publish),
        *(f"topic read {topic}" for topic in rights.read),
    ]
    return "\n".join(lines) + "\n"


def configuration(access: Access, place: Place) -> str:
    """mosquitto.conf: that of deploy/ with the fleet's paths and port, and the list of revoked certificates."""
    text = (deploy.FOLDER / "mosquitto.conf").read_text().replace("/etc/mosquitto", place.folder)
    # For twice as many as there are, each twice because a broken connection may linger: no restart as it grows.
    connections = max(CONNECTIONS, 4 * len(access.rights))
    text = re.sub("^max_connections .*$", f"max_connections {connections}", text, flags=re.M)
    text = re.sub("^listener .*$", f"listener {place.port}", text, flags=re.M)
    if place.root:
        text = re.sub("^user .*$", "user root", text, flags=re.M)  # whose files these are
    # Certificates that open no connection any more; a reload reads the list again.
    return re.sub("^keyfile .*$", rf"\g<0>\ncrlfile {place.folder}/crl.pem", text, flags=re.M)


def files(access: Access, place: Place) -> dict[str, str]:
    """All that mosquitto reads beside certificates, by name."""
    return {"mosquitto.conf": configuration(access, place), "hushgrid.acl": access_list(access)}
