"""The transport that a broker's URL names."""

from __future__ import annotations

from importlib import import_module

from hushgrid.kernels.errors import InputError
from hushgrid.node.transport.link import MAKERS, Link, Party

#: The module of each scheme that comes with the program; it is imported when a URL first asks for it.
MODULES = {"mqtt": "hushgrid.node.transport.mqtt", "mqtts": "hushgrid.node.transport.mqtt"}


def link_to(url: str, party: Party) -> Link:
    """A link to the broker at `url`, not opened yet.

    Raises InputError if no transport has the URL's scheme, or the transport does not accept the URL.
    """
    scheme = url.partition("://")[0]
    if scheme not in MAKERS and scheme in MODULES:
        import_module(MODULES[scheme])
    if scheme not in MAKERS:
        known = ", ".join(f"{name}://" for name in sorted({*MODULES, *MAKERS}))
        raise InputError(f"broker: found {url!r}, expected a URL that begins with one of {known}")
    return MAKERS[scheme](url, party)
