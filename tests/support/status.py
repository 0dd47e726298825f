"""A status, for the tests to change."""

from hushgrid.node.status import Status

PLAIN = Status(
    node="z1", version="0.1.0", wire=1, session=3, since="2026-11-22T15:00:00Z", at="2026-11-22T16:00:00Z", state="idle"
)  # fmt: skip
