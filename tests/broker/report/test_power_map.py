"""The map of a dispatch: flows, loading, voltages and prices, legible and inside the picture."""

from __future__ import annotations

import csv
import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushgrid.broker.report import run_directory as rundir
from hushgrid.broker.report.drawings import powermap
from hushgrid.grid_cases import load
from tests.support import examples
from tests.support.runs.dispatch_pages import made_up, zones_of

SVG = "{http://www.w3.org/2000/svg}"


def tables(case: str, count: int, out: Path) -> dict[str, tuple[dict[str, Any], ...]]:
    """The made-up dispatch of a case as it is read back from its files."""
    grid = load(case)
    for name, (columns, body) in made_up(grid, zones_of(grid, count), "ac").tables().items():
        with (out / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([columns, *body])
    return rundir._tables(out, rundir.TABLES)


def line(branch: int, a: int, b: int, p: float, loading: float = 50.0) -> dict[str, Any]:
    return {
        "branch": branch, "from": a, "to": b, "p_from": p, "p_to": -p, "loading_percent": loading, "tie": "no",
    }  # fmt: skip


def layers(found: Any) -> tuple[powermap.Layer, ...]:
    return powermap.voltages(found["buses"]), powermap.prices(found["buses"])


@pytest.mark.runs
@pytest.mark.parametrize(
    ("case", "count"), examples.few([("case14", 3), ("case118", 3), ("case300", 4)], [("case14", 3), ("case118", 3)])
)
def test_every_bus_label_is_inside_the_picture_and_covers_no_bus_or_other_label(
    case: str, count: int, tmp_path: Path
) -> None:
    found = tables(case, count, tmp_path)
    shown, power = powermap.network(found), powermap.lines(found["lines"])
    position = None
    for shape in (powermap.WIDE, powermap.NARROW):
        picture = powermap.Picture(shown, power, layers(found), shape, position)
        position = picture.position
        at = np.array([picture.places[node] for node in shown.nodes])
        size = np.array([shape.width, picture.height])
        assert np.all((at > picture.radius) & (at < size - picture.radius))
        for layer in layers(found):
            boxes = picture.labels(layer)
            values = [box for box in boxes if not box.of_line]
            assert len(values) >= (6 if len(at) > 20 else 12)
            assert len(boxes) > len(values)
            ends = []
            for box in boxes:
                half = np.array([0.29 * picture.font * len(box.text), 0.55 * picture.font])
                low, high = box.centre - half, box.centre + half
                assert np.all(low >= 0)
                assert np.all(high <= size)
                apart = np.hypot(*(np.clip(at, low, high) - at).T)
                assert apart.min() >= picture.radius
                assert all(np.any(low >= h) or np.any(high <= x) for x, h in ends)
                ends.append((low, high))


@pytest.mark.runs
def test_the_extremes_are_labelled_first(tmp_path: Path) -> None:
    found = tables("case118", 3, tmp_path)
    picture = powermap.Picture(powermap.network(found), powermap.lines(found["lines"]), layers(found), powermap.NARROW)
    price = {row["bus"]: row["price_per_mwh"] for row in found["buses"]}
    high, low = max(price, key=price.__getitem__), min(price, key=price.__getitem__)
    said = [box.text for box in picture.labels(powermap.prices(found["buses"]))]
    assert f"{high}: {price[high]:.2f}" in said
    assert f"{low}: {price[low]:.2f}" in said


def test_arrows_point_where_power_flows(tmp_path: Path) -> None:
    found = tables("case14", 3, tmp_path)
    picture = powermap.Picture(powermap.network(found), powermap.lines(found["lines"]), layers(found), powermap.WIDE)
    flow = {(row["from"], row["to"]): row["p_from"] for row in found["lines"]}
    assert len(picture.arrows) == 20
    for one, (_, direction, _) in zip(picture.power, picture.arrows, strict=True):
        a, b = (picture.places[end] for end in one.ends)
        assert (float((b - a) @ direction) > 0) is (flow[int(one.ends[0]), int(one.ends[1])] > 0)
    sizes = [half for _, _, half in picture.arrows]
    assert sizes[np.argmax([abs(one.flow) for one in picture.power])] == max(sizes)


def test_parallel_lines_are_one_with_the_flow_of_both_and_the_higher_loading() -> None:
    (one,) = powermap.lines([line(1, 4, 9, 10.0, 20.0), line(2, 9, 4, 4.0, 90.0)])
    assert (one.ends, one.flow, one.loading) == (("4", "9"), 6.0, 90.0)
    assert one.title == "branch 1 and 2, 4 to 9: 6.000 MW, 90.0 % loaded"


@pytest.mark.parametrize(
    ("loading", "kind"),
    [(0.0, "b0"), (24.9, "b0"), (25.0, "b1"), (74.0, "b2"), (94.9, "b3"), (100.0, "b4"), (math.nan, "bx")],
)
def test_a_loaded_line_is_wider_as_well_as_redder(loading: float, kind: str) -> None:
    (one,) = powermap.lines([line(1, 1, 2, 5.0, loading)])
    assert one.kind == kind
    assert list(powermap.WIDTHS) == sorted(set(powermap.WIDTHS))
    assert re.search(rf"\.{kind} {{ stroke: var\(--", powermap.STYLE)


def test_voltages_are_coloured_by_their_distance_to_their_own_limits() -> None:
    """1.051 of .94 to 1.06 is in the upper third and close to the limit; 1.045 is in it too, and is not."""
    rows = [
        {"v_pu": v, "v_min": low, "v_max": high}
        for v, low, high in (
            (0.94, 0.94, 1.06),
            (1.0, 0.94, 1.06),
            (1.06, 0.94, 1.06),
            (1.0, 0.9, 1.0),
            (1.0, 1.0, 1.0),
            (math.nan, 0.9, 1.1),
            (1.051, 0.94, 1.06),
            (1.045, 0.94, 1.06),
            (0.949, 0.94, 1.06),
            (0.93, 0.94, 1.06),
            (1.07, 0.94, 1.06),
        )
    ]
    assert powermap.voltages(rows).kinds == [0, 2, 4, 4, 2, 2, 3, 2, 1, 0, 4]


def test_prices_are_in_classes_of_as_many_buses_and_the_key_says_their_ranges() -> None:
    layer = powermap.prices([{"price_per_mwh": float(p)} for p in (1, 2, 3, 4, 5, 6, 7, 8, 9, 4000)])
    assert [layer.kinds.count(k) for k in range(5)] == [2, 2, 2, 2, 2]
    assert layer.meaning == {
        0: "1.00 to 2.00",
        1: "3.00 to 4.00",
        2: "5.00 to 6.00",
        3: "7.00 to 8.00",
        4: "9.00 to 4000.00",
    }
    alike = powermap.prices([{"price_per_mwh": 8.9}] * 4)
    assert set(alike.meaning.values()) == {"8.90"}


def test_the_switch_needs_no_script_and_both_pictures_say_the_same_buses(tmp_path: Path) -> None:
    found = tables("case14", 3, tmp_path)
    text = powermap.drawing(found, "case14")
    root = ElementTree.fromstring(text)
    assert [(i.get("id"), i.get("type"), i.get("name")) for i in root.iter("input")] == [
        ("by-voltage", "radio", "by"), ("by-price", "radio", "by"),
    ]  # fmt: skip
    pictures = list(root.iter(f"{SVG}svg"))
    assert [str(p.get("class")).split()[-1] for p in pictures] == ["wide", "narrow"]
    for picture in pictures:
        for layer in ("voltage", "price"):
            group = picture.find(f"{SVG}g[@class='buses {layer}']")
            assert group is not None
            assert [t.text for t in group.iter(f"{SVG}text")] == [str(b) for b in range(1, 15)]
        dashed = [g for g in picture.iter(f"{SVG}g") if g.get("stroke-dasharray")]
        assert sum(len(g) for g in dashed) == 5
        assert all("tie" in str(g.get("class")) for g in dashed)
    titles = [t.text for t in pictures[0].iter(f"{SVG}title")]
    assert len(titles) == 2 * 14 + 20


def test_whatever_a_table_calls_a_zone_is_shown_as_text(tmp_path: Path) -> None:
    found = tables("case14", 3, tmp_path)
    evil = "<script>alert(1)</script>"
    buses = tuple(row | {"zone": evil} for row in found["buses"])
    text = powermap.drawing(found | {"buses": buses}, evil)
    assert "<script" not in text
    assert text.count("&lt;script&gt;") > 14


@pytest.mark.runs
def test_the_same_tables_give_the_same_map(tmp_path: Path) -> None:
    found = tables("case118", 3, tmp_path)
    assert powermap.drawing(found, "x") == powermap.drawing(found, "x")
