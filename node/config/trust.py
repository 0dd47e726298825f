"""`trust:` in the files of devices and of coordinators."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hushgrid.kernels.errors import InputError
from hushgrid.node.schema.sections import Tls
from hushgrid.node.schema.trust import Trusted
from hushgrid.node.wire import COORDINATOR

if TYPE_CHECKING:
    from hushgrid.node.trust.files import Credentials


def near_trust(trusted: Trusted | None, path: Path) -> Trusted | None:
    """The section with its paths, which are relative to the file at `path`, made absolute."""
    if trusted is None:
        return None
    keys = ("ca", "crl", "cert", "key")
    return replace(trusted, **{k: str((path.parent / v).resolve()) for k in keys if (v := getattr(trusted, k))})


def credentials_of(
    name: str, trusted: Trusted | None, tls: Tls | None, path: str, peers: Sequence[str] = (COORDINATOR,)
) -> Credentials | None:
    """What the end `name` proves itself and its peers by; None: its file has no `trust:`.

    `peers`: those whose messages it needs in any case. Raises InputError if a file is wrong, or a peer has no
    fingerprint.
    """
    if trusted is None:
        return None
    if trusted.fingerprints is not None and (missing := [peer for peer in peers if peer not in trusted.fingerprints]):
        raise InputError(f"{path}: trust.fingerprints: found none of {', '.join(missing)}, expected one")
    from hushgrid.node.trust.files import Credentials

    try:
        return Credentials(name, trusted, tls)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def trust_words(trusted: Trusted | None) -> list[str]:
    """What it means for who holds the broker, in a line; none without the section."""
    if trusted is None:
        return []
    if trusted.fingerprints is not None:
        whose = f"the certificates of {', '.join(sorted(trusted.fingerprints))}"
    else:
        revoked = f", none that {trusted.crl} revokes" if trusted.crl else ""
        whose = f"whom {trusted.ca} has certified under that name{revoked}"
    return [
        f"trust: only messages count that are sealed in this session by {whose}; who holds the broker can drop and "
        "delay them, and count them, but neither plan, answer nor end a run, nor claim a mark, nor alter an iterate"
    ]
