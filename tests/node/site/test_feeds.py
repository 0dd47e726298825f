"""What a source may hold becomes values: tables, documents, topics a bus, archives, lines of rows.
Errors never quote them.
"""

import io
import json
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.kernels.errors import InputError
from hushgrid.node.problems.feed import Part, complete, document_of, number_of, pack, unpack, value_at
from hushgrid.node.problems.power_flow.feed import ZoneFeed
from hushgrid.node.problems.records.feed import RowsFeed
from hushgrid.node.schema.sections import Allow
from hushgrid.node.schema.site import Bounds, LoadPaths, MqttSource, Source
from tests.support.site.source_device import BASE, BUSES, document, loads, table


@pytest.fixture
def zone(monkeypatch):
    """Of a zone of three buses, without its model."""
    from hushgrid.node.problems.power_flow import feed

    class Zone:
        model, case, d = SimpleNamespace(buses=BUSES), SimpleNamespace(base_mva=BASE), None

        def holding(self, d):
            self.d = d
            return self

    monkeypatch.setattr(feed, "zone_of", lambda *_, **__: Zone())

    def made(**source):
        data = SimpleNamespace(loads=None)
        limits = SimpleNamespace(adjacency=None, loads=None)
        owner = SimpleNamespace(node="z1", data=data, budget=limits, allow=limits, source=Source(**source))
        return ZoneFeed(owner, "z1.yaml")

    return made


ALWAYS = np.zeros(1), np.full(1, np.inf)  #: read at the beginning, and counting for ever


def tried(act):
    """What it returns, or the line of its error."""
    try:
        return act()
    except InputError as error:
        return str(error)


FLOATS = st.floats(-1e5, 1e5)
THREE = st.lists(FLOATS, min_size=3, max_size=3)


@given(THREE, THREE)
def test_a_table_and_a_document_of_the_same_loads_are_the_same_values(p, q):
    with pytest.MonkeyPatch.context() as held:
        feed = zone.__wrapped__(held)(file="x")
        for text in (table(p, q), document(p, q)):
            np.testing.assert_array_equal(feed.read(text.encode(), "x").values["d"], loads(p, q))


def test_topics_of_a_bus_and_of_its_quantities_fill_the_values_one_by_one(zone):
    for topic, path, payloads in (
        ("m/{bus}", None, {"m/2": {"p_mw": 5.0, "q_mvar": 1.0}}),
        ("m/{bus}", "power.now", {"m/2": {"power": {"now": {"p_mw": 5.0, "q_mvar": "1.0"}}}}),
        ("m/{bus}", LoadPaths(p_mw="a.0", q_mvar="b"), {"m/2": {"a": [5.0], "b": 1}}),
        ("m/{bus}/{quantity}", None, {"m/2/p_mw": 5.0, "m/2/q_mvar": 1.0}),
        ("m/{bus}/{quantity}", "value", {"m/2/p_mw": {"value": 5.0}, "m/2/q_mvar": {"value": 1.0}}),
    ):
        feed = zone(mqtt=MqttSource(broker="mqtt://x", topic=topic, path=path))
        slots, held = feed.slots(topic), None
        assert len(slots) == 3 * (2 if "quantity" in topic else 1)
        for name, payload in payloads.items():
            held = feed.merged(held, feed.receive(slots[name], payload, name).values, *ALWAYS)
        assert not complete(held.values)
        np.testing.assert_array_equal(held.values["d"], [np.nan, 0.05, np.nan, np.nan, 0.01, np.nan])


def test_a_topic_without_a_bus_is_one_document_of_all(zone):
    feed = zone(mqtt=MqttSource(broker="mqtt://x", topic="all", path="loads"))
    assert feed.slots("all") == {"all": ()}
    values = feed.receive((), {"loads": json.loads(document([1.0, 2.0, 3.0], [0.0] * 3))}, "all").values
    np.testing.assert_array_equal(values["d"], loads([1.0, 2.0, 3.0], [0.0] * 3))
    part = feed.receive((), {"loads": {"1": {"p_mw": 1}}}, "all")
    np.testing.assert_array_equal(part.values["d"], [0.01, *[np.nan] * 5])  # what is missing is only itself missing
    assert part.wrong == "all: bus 2: found nothing at p_mw, expected a value"
    with pytest.raises(InputError):
        feed.receive((), {"loads": {"7": {"p_mw": 1}}}, "all")


@pytest.mark.runs
@given(st.one_of(st.text(), st.binary()).map(lambda x: x.encode() if isinstance(x, str) else x))
def test_no_content_whatever_is_anything_but_values_or_one_line_that_does_not_quote_it(content):
    with pytest.MonkeyPatch.context() as held:
        feed = zone.__wrapped__(held)(file="x")
        found = tried(lambda: feed.read(content, "x"))
    assert not np.isinf(found.values["d"]).any() if isinstance(found, Part) else "\n" not in found


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["p_mw", "q_mvar", "1", "a"]), inner),
)


@given(DOCUMENTS, st.sampled_from([(), ("2",), ("2", "p_mw")]))
def test_no_message_whatever_is_anything_but_values_or_one_line(document, slot):
    with pytest.MonkeyPatch.context() as held:
        feed = zone.__wrapped__(held)(mqtt=MqttSource(broker="mqtt://x", topic="m", path=None))
        found = tried(lambda: feed.receive(slot, document, "m"))
    assert not np.isinf(found.values["d"]).any() if isinstance(found, Part) else "\n" not in found


def test_numbers_and_paths():
    assert value_at({"a": [{"b": 3}]}, "a.0.b", "x") == 3
    assert number_of("1e400", "x") == np.inf
    assert number_of(10**400, "x") == np.inf
    assert number_of(-(10**400), "x") == -np.inf
    for wrong in ("a.1", "b", "a.x", "a.0.b.c"):
        with pytest.raises(InputError):
            value_at({"a": [{"b": 3}]}, wrong, "x")
    for wrong in (True, None, [], {}, "nan", "one"):
        with pytest.raises(InputError):
            number_of(wrong, "x")
    for wrong in (b"NaN", b"Infinity", b"{", b"\xff", b"[" * 10**5):
        with pytest.raises(InputError):
            document_of(wrong, "x")


@given(THREE)
def test_values_survive_their_bytes(p):
    values = {"d": np.array(p)}
    np.testing.assert_array_equal(unpack(pack(values))["d"], values["d"])


# --- rows ---

A = np.arange(6.0).reshape(3, 2)
B = np.array([1.0, -1.0, 1.0])


@pytest.fixture
def rows(tmp_path):
    np.savez(tmp_path / "rows.npz", A=A, b=B)

    def made(**source):
        owner = SimpleNamespace(
            allow=Allow(),
            node="n0",
            data=str(tmp_path / "rows.npz"),
            labels=None,
            problem=None,
            source=Source(**source),
        )
        return RowsFeed(owner, "n0.yaml")

    return made


def archive(A, b):
    file = io.BytesIO()
    np.savez(file, A=A, b=b)
    return file.getvalue()


def test_rows_are_read_from_archives_tables_and_lines_alike(rows):
    feed = rows(file="x")
    lines = "".join(f"{json.dumps([*a, b])}\n" for a, b in zip(A.tolist(), B.tolist(), strict=True))
    named = "".join(f"{json.dumps({'a': a, 'b': b})}\n" for a, b in zip(A.tolist(), B.tolist(), strict=True))
    csv = "".join(f"{a[0]},{a[1]},{b}\n" for a, b in zip(A.tolist(), B.tolist(), strict=True))
    for content in (archive(A, B), lines.encode(), named.encode(), csv.encode(), b"x,y,label\n" + csv.encode()):
        values = feed.merged(feed.first(0.0), feed.read(content, "x").values, *ALWAYS).values
        np.testing.assert_array_equal(values["A"], A)
        np.testing.assert_array_equal(values["b"], B)


def test_a_line_that_is_still_being_written_does_not_count(rows):
    feed = rows(file="x")
    part = feed.read(b"1,2,1\n3,4,-1\n5,6", "x")
    assert part.values["b"].tolist() == [1, -1]
    assert (part.places.tolist(), part.last, part.wrong) == ([1, 2], 2, "")


def test_of_more_rows_the_last_count_so_that_their_number_tells_nothing(rows):
    feed = rows(folder="x")
    held = feed.first(0.0)
    for content in (b"9,9,1\n8,8,1\n", b"7,7,1\n6,6,-1\n"):
        held = feed.merged(held, feed.read(content, "x").values, *ALWAYS)
    np.testing.assert_array_equal(held.values["A"], [[8, 8], [7, 7], [6, 6]])
    assert held.number == 7  # three of the device's file, four since


def test_of_fewer_rows_those_of_before_count_on_so_that_one_more_or_less_is_one_row_replaced(rows):
    feed = rows(folder="x")
    held = feed.merged(feed.first(0.0), feed.read(b"7,7,1\n6,6,-1\n", "y").values, np.full(1, 5.0), np.full(1, 9.0))
    np.testing.assert_array_equal(held.values["A"], [A[2], [7, 7], [6, 6]])
    np.testing.assert_array_equal(held.read, [0, 5, 5])
    np.testing.assert_array_equal(held.until, [np.inf, 9, 9])


def test_a_line_that_is_no_row_is_left_out_and_the_others_count(rows):
    part = rows(folder="x").read(b"7,7,1\n1,2\nsecret,6,-1\n5,5,1\n", "y")
    np.testing.assert_array_equal(part.values["A"], [[7, 7], [5, 5]])
    assert (part.places.tolist(), part.last) == ([1, 4], 4)
    assert part.wrong == "y:2: found another row, expected 2 features and a label"


def test_messages_of_rows_are_appended(rows):
    feed = rows(mqtt=MqttSource(broker="mqtt://x", topic="r", path=None))
    held = feed.first(0.0)
    for row in ([7, 7, 1], {"a": [8, 8], "b": -1}):
        held = feed.merged(held, feed.receive((), row, "r").values, *ALWAYS)
    np.testing.assert_array_equal(held.values["A"], [[4, 5], [7, 7], [8, 8]])
    with pytest.raises(InputError):
        feed.receive((), [7, 7], "r")


def test_entries_of_rows_are_moved_into_their_bounds(rows):
    feed = rows(file="x", bounds=Bounds(features=(-1.0, 1.0)))
    np.testing.assert_array_equal(feed.read(b"5,-inf,1\n0.5,1e400,-1\n", "x").values["A"], [[1, -1], [0.5, 1]])


@pytest.mark.parametrize(
    "content",
    [
        b"1,2\n",
        b"1,2,3,4\n",
        b"1,nan,1\n",
        b"1,secret,1\n",
        archive(A[:, :1], B),
        archive(A * np.nan, B),
        b"PK\x03\x04x",
    ],
)
def test_other_rows_are_one_line_that_does_not_quote_them(rows, content):
    found = tried(lambda: rows(file="x").read(content, "x"))
    said = found if isinstance(found, str) else found.wrong
    assert isinstance(found, str) or not len(found.places)
    assert said
    assert "secret" not in said
    assert "\n" not in said


@given(st.binary())
def test_no_bytes_whatever_are_anything_but_rows_or_one_line(content):
    feed = RowsFeed.__new__(RowsFeed)
    feed.node, feed.m, feed.q, feed.low, feed.high, feed.path = "n0", 3, 2, -1.0, 1.0, None
    found = tried(lambda: feed.read(content, "x"))
    assert complete(found.values) if isinstance(found, Part) else "\n" not in found
