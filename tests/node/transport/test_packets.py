"""PUBLISH and PUBACK as this program writes and reads them, beside paho, which does the same more slowly."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushgrid.node.transport import packets
from hushgrid.node.transport.buffered_socket import LARGE, Stream
from tests.support.transport.broker_in_memory import PahoTwin, Pipe, packets_of

topics = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=40)
payloads = st.binary(max_size=300) | st.integers(0, 20_000).map(bytes)
numbers = st.integers(1, 0xFFFF)
versions = st.booleans()
properties = st.fixed_dictionaries(
    {},
    optional={
        "PayloadFormatIndicator": st.integers(0, 1),
        "MessageExpiryInterval": st.integers(0, 0xFFFFFFFF),
        "ContentType": topics,
        "ResponseTopic": topics,
        "CorrelationData": st.binary(max_size=20),
        "UserProperty": st.lists(st.tuples(topics, topics), min_size=1, max_size=3),
    },
)


@given(topics, payloads, numbers, versions, st.booleans(), st.none() | st.integers(0, 0xFFFFFFFF))
@settings(deadline=None)
def test_a_publication_is_written_as_paho_writes_it(topic, payload, number, five, retain, expiry):
    ours = packets.publish(topic.encode(), len(payload), number, retain=retain, five=five, expiry=expiry) + payload
    stated = {} if expiry is None or not five else {"MessageExpiryInterval": expiry}
    assert ours == PahoTwin(five).write(topic, payload, retain=retain, number=number, properties=stated)


@given(topics, payloads, numbers, versions, st.booleans(), st.integers(0, 1), properties)
@settings(deadline=None)
def test_a_publication_that_paho_writes_is_read_as_paho_reads_it(topic, payload, number, five, retain, qos, stated):
    written = PahoTwin(five).write(topic, payload, qos=qos, retain=retain, number=number, properties=five and stated)
    twin = PahoTwin(five)
    assert twin.read(written)
    ((first, body),) = packets_of(written)
    found = packets.published(first, body, five)
    assert [tuple(found)] == twin.received == [(topic, payload, retain, number if qos else 0)]
    if qos:
        assert packets.acknowledgement(number) == twin.said()


@pytest.mark.runs
@given(versions, st.integers(0x30, 0x3F), st.binary(max_size=60))
@settings(deadline=None, max_examples=400)
def test_of_bytes_that_are_no_publication_nothing_is_taken_that_paho_would_not_take(five, first, body):
    try:
        found = packets.published(first, body, five)
    except packets.Invalid:
        return
    twin = PahoTwin(five)
    twin.client.on_message = lambda c, data, m: twin.received.append(
        (m._topic.decode(errors="ignore") and found.topic, bytes(m.payload), m.retain, m.mid)
    )
    assert twin.read(bytes((first, len(body))) + body)
    assert [(t, *rest) for t, *rest in twin.received] == [tuple(found)] or not found.topic


@given(numbers, st.sampled_from([0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x97, 0x99]), st.none() | topics)
@settings(deadline=None)
def test_an_acknowledgement_says_what_paho_makes_of_it(number, reason, why):
    twin = PahoTwin(True)
    twin.write("t", b"", number=number)
    body = number.to_bytes(2, "big") + bytes((reason,))
    if why is not None:
        text = why.encode()
        body += packets.written(len(text) + 3) + b"\x1f" + len(text).to_bytes(2, "big") + text
    assert twin.read(b"\x40" + packets.written(len(body)) + body)
    assert [packets.acknowledged(body, True)] == twin.acknowledged == [(number, reason)]


@pytest.mark.runs
@given(versions, st.binary(max_size=12))
@settings(max_examples=400)
def test_bytes_that_are_no_acknowledgement_are_refused_and_nothing_else_happens(five, body):
    try:
        number, reason = packets.acknowledged(body, five)
    except packets.Invalid:
        return
    assert number == int.from_bytes(body[:2], "big")
    assert reason == (body[2] if len(body) > 2 else 0)


@pytest.mark.parametrize(
    ("first", "body"),
    [
        (0x34, b"\x00\x01t\x00\x01\x00x"),  # QoS 2
        (0x36, b"\x00\x01t\x00\x01\x00x"),  # QoS 3
        (0x30, b""),
        (0x30, b"\x00\x00\x00"),  # no topic: an alias would be needed
        (0x30, b"\x00\x09t\x00"),  # the topic ends beyond the packet
        (0x32, b"\x00\x01t\x00\x00\x00"),  # number 0
        (0x32, b"\x00\x01t\x00"),
        (0x30, b"\x00\x01t"),  # no properties
        (0x30, b"\x00\x01t\x05\x02\x00"),  # properties beyond the packet
        (0x30, b"\x00\x01t\x03\x23\x00\x01"),  # a topic alias, that we allow nobody
        (0x30, b"\x00\x01t\x02\x02\x00\x00\x00\x01"),  # a property that ends beyond the properties
        (0x30, b"\x00\x01t\x04\x01\x00\x01\x00"),  # a property that comes twice
        (0x30, b"\x00\x01t\x80\x80\x80\x80\x00"),
    ],
)
def test_a_malformed_publication_is_refused(first, body):
    with pytest.raises(packets.Invalid):
        packets.published(first, body, True)


def test_a_topic_that_is_not_utf8_is_no_topic_of_ours():
    assert packets.published(0x30, b"\x00\x01\xff1", False) == ("", b"1", False, 0)


@given(st.lists(st.binary(max_size=400), min_size=1, max_size=6), st.data())
def test_packets_arrive_whole_however_the_bytes_come(bodies, data):
    whole = b"".join(b"\x30" + packets.written(len(body)) + body for body in bodies)
    pipe = Pipe()
    stream, found = Stream(pipe), []
    while whole:
        cut = data.draw(st.integers(1, len(whole)))
        pipe.fed += whole[:cut]
        whole = whole[cut:]
        stream.fill()
        if data.draw(st.booleans()):
            while (packet := stream.packet()) is not None:
                found.append(packet)
    while (packet := stream.packet()) is not None:
        found.append(packet)
    assert found == [(0x30, body) for body in bodies]
    assert not stream.more
    assert not stream.ended


def test_a_large_packet_arrives_whole_with_another_behind_it():
    large = bytes(range(256)) * (LARGE // 128)
    pipe = Pipe()
    stream = Stream(pipe)
    pipe.fed += b"\x30" + packets.written(len(large)) + large + b"\x40\x02ab"
    found = []
    for _ in range(4):  # a packet is dropped before more is read
        stream.fill()
        while (packet := stream.packet()) is not None:
            found.append((packet[0], bytes(packet[1])))
    assert found == [(0x30, large), (0x40, b"ab")]


@given(st.lists(st.sampled_from([1, 200, LARGE - 1, LARGE, LARGE + 5]), max_size=4), st.integers(LARGE // 5, 2 * LARGE))
@settings(deadline=None)
def test_pieces_are_sent_in_their_order_however_large_they_are_and_however_little_goes_at_once(sizes, most):
    class Slow:
        sent = b""

        def send(self, data):
            self.sent += bytes(data[:most])
            return min(len(data), most)

    stream, pieces = Stream(Slow()), [bytes([k]) * size for k, size in enumerate(sizes)]
    for piece in pieces:
        stream.send(piece)
    assert stream.unsent == sum(sizes)
    stream.flush()
    assert stream.sock.sent == b"".join(pieces)
    assert not stream.unsent


@given(st.integers(0, 5), st.integers(101, packets.LARGEST))
def test_a_packet_above_the_limit_is_the_end_and_what_came_before_it_is_taken(before, size):
    pipe = Pipe()
    stream = Stream(pipe, 100)
    pipe.fed += b"\x30\x01x" * before + b"\x30" + packets.written(size) + b"begins"
    stream.fill()
    assert [stream.packet() for _ in range(before)] == [(0x30, b"x")] * before
    assert stream.packet() is None
    assert stream.ended
    assert stream.excess == size


def test_a_length_of_five_digits_is_the_end():
    pipe = Pipe()
    stream = Stream(pipe)
    pipe.fed += b"\x30\xff\xff\xff\xff"
    stream.fill()
    assert stream.packet() is None
    assert stream.ended
    assert stream.excess > stream.limit


@given(st.integers(0, packets.LARGEST))
def test_a_length_is_read_as_it_was_written(value):
    digits = packets.written(value)
    assert packets.length(digits + b"x", 0) == (value, len(digits))
    assert all(packets.length(digits[:k], 0) is None for k in range(len(digits)))
