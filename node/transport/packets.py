"""The packets of MQTT that a run consists of, PUBLISH and PUBACK, and PINGREQ: read and written without an object each.

They are the same in MQTT 3.1.1 and 5, except that in 5 (`five`) each has properties. A property is checked for its form
and skipped: nothing that a peer sends depends on it. We allow the broker no topic alias, so a topic is always whole.
"""

from __future__ import annotations

import struct

PUBLISH, PUBACK, PINGRESP = 0x30, 0x40, 0xD0  #: types: the upper half of a packet's first byte
PINGREQ = b"\xc0\x00"
ACKNOWLEDGED = b"\x40\x02"  #: how our PUBACK begins; its reason is success, and is left out
FAILURE = 0x80  #: reason codes from here on say that a publication was refused
DIGITS = 4  #: the most digits, to the base 128, of a length
LONGEST_TOPIC = 0xFFFF  #: bytes
LARGEST = 128**DIGITS - 1  #: bytes of a packet after its length

_NUMBER = struct.Struct("!H")
_EXPIRY = 0x02
#: The form of each property that may stand in PUBLISH: bytes of a number, or one of the letters below.
_OF_PUBLISH: dict[int, int | str] = {0x01: 1, _EXPIRY: 4, 0x03: "s", 0x08: "s", 0x09: "s", 0x0B: "v", 0x26: "p"}
_OF_PUBACK: dict[int, int | str] = {0x1F: "s", 0x26: "p"}
#: `s`: a string or bytes with their length before them; `p`: a pair of them; `v`: a number of variable length.
_REPEATED = (0x0B, 0x26)  #: these may stand more than once


class Invalid(ValueError):
    """A packet that no broker may send: the connection ends."""


def length(packet: bytes | bytearray | memoryview, start: int) -> tuple[int, int] | None:
    """(The number that stands at `at`, the position after it); None if it is not whole. Raises Invalid if too long."""
    value, end = 0, len(packet)
    if start < end and packet[start] < 0x80:  # as most are
        return packet[start], start + 1
    for k in range(DIGITS):
        if start >= end:
            return None
        digit = packet[start]
        start += 1
        value |= (digit & 0x7F) << 7 * k
        if digit < 0x80:
            return value, start
    raise Invalid("a length of more than four digits")


def written(value: int) -> bytes:
    """A length, of at most four digits."""
    if value < 0x80:
        return bytes((value,))
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def publish(
    topic: bytes, size: int, number: int, *, retain: bool = False, five: bool, expiry: int | None = None
) -> bytes:
    """What stands before the payload, of `size` bytes, in a PUBLISH at QoS 1.

    `expiry`: seconds after which the broker delivers it no more (MQTT 5).
    """
    name = _NUMBER.pack(len(topic)) + topic + _NUMBER.pack(number)
    if five:
        name += b"\0" if expiry is None else b"\x05\x02" + expiry.to_bytes(4, "big")
    return b"%c%b%b" % (PUBLISH | 2 | retain, written(len(name) + size), name)


def acknowledgement(number: int) -> bytes:
    """A PUBACK that says success."""
    return ACKNOWLEDGED + _NUMBER.pack(number)


def published(first: int, body: bytes | memoryview, five: bool) -> tuple[str, bytes, bool, int]:
    """(Topic, payload, whether it was retained, number) of a PUBLISH: `first` is its first byte, `body` what follows
    its length.

    The topic is "" if it is not UTF-8: no subscription matches that. The number is to be acknowledged; 0 at QoS 0.
    Raises Invalid.
    """
    qos = first & 6
    if qos > 2:
        raise Invalid("a publication at a QoS that was not asked for")
    if len(body) < 2:
        raise Invalid("a publication without a topic")
    offset = 2 + (body[0] << 8 | body[1])
    topic, number = bytes(body[2:offset]), 0
    if not topic or offset > len(body):
        raise Invalid("a publication without a topic")
    if qos:
        if offset + 2 > len(body) or not (number := body[offset] << 8 | body[offset + 1]):
            raise Invalid("a publication without a number")
        offset += 2
    if five:
        offset = _after_properties(body, offset, _OF_PUBLISH)
    try:
        name = topic.decode()
    except UnicodeDecodeError:
        name = ""
    return name, bytes(body[offset:]), bool(first & 1), number


def acknowledged(body: bytes | memoryview, five: bool) -> tuple[int, int]:
    """(Number, reason code) of a PUBACK. Raises Invalid."""
    if len(body) < 2 or (len(body) > 2 and not five):
        raise Invalid(f"an acknowledgement of {len(body)} bytes")
    if len(body) > 3 and _after_properties(body, 3, _OF_PUBACK) != len(body):
        raise Invalid("an acknowledgement that goes on after its end")
    return body[0] << 8 | body[1], body[2] if len(body) > 2 else 0


def _after_properties(body: bytes | memoryview, start: int, known: dict[int, int | str]) -> int:
    """The position after the properties that begin at `at`. Raises Invalid if they are malformed."""
    if start < len(body) and body[start] == 0:
        return start + 1
    head = length(body, start)
    if head is None or head[0] + head[1] > len(body):
        raise Invalid("properties that end beyond their packet")
    start, end = head[1], head[0] + head[1]
    seen: set[int] = set()
    while start < end:
        kind = body[start]
        form = known.get(kind)
        if form is None or (kind in seen and kind not in _REPEATED):
            raise Invalid(f"property {kind:#04x}, or it comes twice")
        seen.add(kind)
        start = _after_value(body, start + 1, form)
    if start != end:
        raise Invalid("a property that ends beyond its packet")
    return end


def _after_value(body: bytes | memoryview, start: int, form: int | str) -> int:
    """The position after a property's value; beyond the packet's end if the value is not whole."""
    if isinstance(form, int):
        return start + form
    if form == "v":
        number = length(body, start)
        return len(body) + 1 if number is None else number[1]
    for _ in form if form == "s" else "sp":
        if start + 2 > len(body):
            return len(body) + 1
        start += 2 + (body[start] << 8 | body[start + 1])
    return start
