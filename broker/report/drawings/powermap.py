"""The grid of a dispatch as SVG: flows, the loading of lines, voltages and prices. A pure function of the run's tables.

Two pictures of one layout stand in the page, one for wide screens and paper and an upright one for phones; the style
sheet shows one of them, and which of voltages and prices colours the buses (radio buttons, no script). What a colour
says is said again: loading by the width of the line too, the extremes by numbers beside them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from hushgrid.broker.report.drawings.gridmap import FAR, LEGIBLE, PALETTE, Array, Box, Drawing, Labels, Network, Shape
from hushgrid.broker.report.drawings.numbers import fixed, natural
from hushgrid.kernels.types import DocumentView

Row = DocumentView

LOADINGS = (25.0, 50.0, 75.0, 95.0)  #: percent, between the five classes of lines
WIDTHS = (1.0, 1.5, 2.2, 3.1, 4.2)  #: of the classes' lines, relative
REACHED, CLOSE = 0.0005, 0.01  #: p.u. from a limit: a voltage is at it, or close to it
VOLTAGES = ("at the lower limit", "close to it", "further from both limits", "close to the upper", "at the upper limit")
WIDE = Shape()
NARROW = Shape(width=390.0, low=0.9, high=1.55, upright=True, most=90.0)  #: of a phone held upright
MAP = Shape(low=0.3, high=1.0)  #: of real coordinates
APART = 0.012  #: shares of a map's diagonal that two buses at one place are drawn apart
FEW = 40  #: buses; of more, only extremes are labelled
PHONE_FEW = 20
READABLE = 9.0  #: the radius of a bus whose number is read without effort: labels need not repeat it

STYLE = """
.power { --l0: #1f8f55; --l1: #83b02e; --l2: #d99a00; --l3: #e2571a; --l4: #b5121b; --band: 0.17; position: relative; }
.power svg.map { background: var(--well); margin-top: 10px; }
.power input { position: absolute; opacity: 0; }
.power label { display: inline-block; font-size: 13.5px; padding: 5px 13px; margin: 0 8px 8px 0; cursor: pointer;
  border: 1px solid var(--line); border-radius: 15px; color: var(--soft); }
.power input:checked + label { border-color: var(--ink); color: var(--ink); font-weight: 600; }
.power input:focus-visible + label { outline: 2px solid var(--agreed); outline-offset: 2px; }
#by-voltage:checked ~ .price, #by-voltage:checked ~ * .price, #by-price:checked ~ .voltage,
#by-price:checked ~ * .voltage { display: none; }
.power .keys { margin: 4px 0; } .power .keys i.ln { width: 26px; border-radius: 0; vertical-align: middle; }
.power .keys i.bus { border: 1px solid var(--ink); } .power .keys b { font-weight: 600; }
.power .keys i.dashed { height: 0; border-top: 2px dashed var(--ink); }
.power .keys i.head { width: 0; height: 0; border-radius: 0; border: 5px solid transparent;
  border-left: 11px solid var(--ink);
  border-right: 0; }
.power .zones > g { opacity: var(--band); }
.power .b0 { stroke: var(--l0); background: var(--l0); } .power .b1 { stroke: var(--l1); background: var(--l1); }
.power .b2 { stroke: var(--l2); background: var(--l2); } .power .b3 { stroke: var(--l3); background: var(--l3); }
.power .b4 { stroke: var(--l4); background: var(--l4); } .power .bx { stroke: var(--soft); background: var(--soft); }
.power .arrows { fill: var(--ink); stroke: var(--well); stroke-width: 0.7; }
.power .marks line, .power .marks circle { stroke: var(--ink); } .power .marks circle { fill: var(--well); }
.power .marks rect { fill: var(--well); stroke: var(--ink); stroke-width: 0.9; }
.power .marks text, .power .labels text { fill: var(--ink); }
.power .labels text { paint-order: stroke; stroke: var(--well); stroke-width: 3px; stroke-linejoin: round;
  font-variant-numeric: tabular-nums; }
.power .labels .line { font-weight: 600; } .power .lead { stroke: var(--ink); stroke-width: 0.7; }
.power .buses circle { stroke: var(--ink); stroke-width: 0.8; } .power .buses text { font-weight: 600; }
.power .v0 { fill: #542788; background: #542788; } .power .v1 { fill: #a99bd0; background: #a99bd0; }
.power .v2 { fill: #f2f2f0; background: #f2f2f0; } .power .v3 { fill: #f5b45c; background: #f5b45c; }
.power .v4 { fill: #b35806; background: #b35806; }
.power .p0 { fill: #08306b; background: #08306b; } .power .p1 { fill: #3f6f9f; background: #3f6f9f; }
.power .p2 { fill: #9fb8bf; background: #9fb8bf; } .power .p3 { fill: #e9d98a; background: #e9d98a; }
.power .p4 { fill: #ffef3e; background: #ffef3e; }
.power .on-dark { fill: #fff; } .power .on-light { fill: #15202b; }
.power svg.narrow { display: none; }
@media (max-width: 640px) { .power svg.wide { display: none; } .power svg.narrow { display: block; } }
@media (prefers-color-scheme: dark) { .power { --l0: #38b978; --l1: #a3d150; --l2: #f0bd2c; --l3: #ff8040;
  --l4: #ff4f58;
  --band: 0.3; } }
@media print { .power { --band: 0.17; } .power input, .power label { display: none; } }
"""


@dataclass(frozen=True)
class BranchFlow:
    """The lines between two buses. flow: MW from the first to the second. loading: percent, NaN without a limit."""

    ends: tuple[str, str]
    flow: float
    loading: float
    tie: bool
    title: str

    @property
    def kind(self) -> str:
        """Its class of loading."""
        return "bx" if math.isnan(self.loading) else f"b{np.searchsorted(LOADINGS, self.loading, side='right')}"


def lines(rows: Sequence[Row]) -> list[BranchFlow]:
    """Lines that join the same two buses as one: flows added, the highest loading of them."""
    together: dict[frozenset[int], list[Row]] = {}
    for row in rows:
        if row["from"] != row["to"]:
            together.setdefault(frozenset((row["from"], row["to"])), []).append(row)
    out = []
    for parallel in together.values():
        a, b = parallel[0]["from"], parallel[0]["to"]
        flow = sum((r["p_from"] - r["p_to"]) / 2 * (1 if r["from"] == a else -1) for r in parallel)
        loadings = [r["loading_percent"] for r in parallel if not math.isnan(r["loading_percent"])]
        loading = max(loadings) if loadings else math.nan
        which = " and ".join(str(r["branch"]) for r in parallel)
        loading_words = f"{loading:.1f} % loaded" if loadings else "no limit"
        start, end = (a, b) if flow >= 0 else (b, a)
        title = f"branch {which}, {start} to {end}: {fixed(abs(flow), 3)} MW, {loading_words}"
        out.append(
            BranchFlow(
                (str(a), str(b)), flow if math.isfinite(flow) else 0.0, loading, parallel[0]["tie"] == "yes", title
            )
        )
    return out


def network(tables: Mapping[str, Sequence[Row]]) -> Network:
    """What is drawn of the tables."""
    groups: dict[str, list[str]] = {}
    for row in tables["buses"]:
        groups.setdefault(row["zone"], []).append(str(row["bus"]))
    return Network(
        nodes=tuple(str(row["bus"]) for row in tables["buses"]),
        edges=tuple((str(row["from"]), str(row["to"])) for row in tables["lines"]),
        groups={zone: groups[zone] for zone in sorted(groups, key=natural)},
        generators=frozenset(str(row["bus"]) for row in tables["generation"]),
    )


class Layer:
    """A quantity of every bus: its value, its class of five, and what the classes mean."""

    def __init__(self, name: str, values: Array, kinds: Sequence[int], meaning: Mapping[int, str], places: int) -> None:
        self.name, self.values, self.kinds, self.meaning, self.places = name, values, kinds, meaning, places

    def tooltip(self, k: int) -> str:
        return f"{self.values[k]:.{self.places}f}".replace("-", "−")

    @property
    def by_extreme(self) -> list[int]:
        """Buses with a value, the highest and the lowest first, in turn."""
        up = [k for k in np.argsort(self.values, kind="stable").tolist() if math.isfinite(self.values[k])]
        return [up[-1 - i // 2] if i % 2 == 0 else up[i // 2] for i in range(len(up))]


def voltages(rows: Sequence[Row]) -> Layer:
    """Voltages by their distance to the nearer of their bus's own limits; one that has no choice is far from both."""
    v, low, high = (np.array([row[key] for row in rows], float) for key in ("v_pu", "v_min", "v_max"))
    below, above = v - low, high - v
    steps = np.where(np.fmin(below, above) <= REACHED, 2, np.where(np.fmin(below, above) <= CLOSE, 1, 0))
    kinds = np.where((high > low) & np.isfinite(v), 2 + np.where(above < below, steps, -steps), 2).tolist()
    return Layer("voltage", v, kinds, dict(enumerate(VOLTAGES)), 3)


def prices(rows: Sequence[Row]) -> Layer:
    """Prices in five classes of about as many buses each."""
    price = np.array([row["price_per_mwh"] for row in rows], float).round(2)
    known = price[np.isfinite(price)]
    cuts = np.unique(np.quantile(known, (0.2, 0.4, 0.6, 0.8), method="higher")) if known.size else np.zeros(0)
    kinds = np.searchsorted(cuts, np.nan_to_num(price, nan=0.0), side="right").tolist()
    meaning = {}
    for kind in sorted(set(kinds)):
        same_kind = [p for p, k in zip(price.tolist(), kinds, strict=True) if k == kind and math.isfinite(p)]
        if same_kind:
            ends = [f"{p:.2f}".replace("-", "−") for p in (min(same_kind), max(same_kind))]
            meaning[kind] = ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
    return Layer("price", price, kinds, meaning, 2)


class Picture(Drawing):
    """One picture: `lines`, `layers` on a page of `shape`."""

    def __init__(
        self,
        grid: Network,
        power: Sequence[BranchFlow],
        layers: Sequence[Layer],
        shape: Shape,
        position: Array | None = None,
    ) -> None:
        super().__init__(grid, shape, position)
        self.power, self.layers = power, layers
        self.narrow = shape.upright
        self.base = float(np.clip(self.radius / 7.0, 0.9, 1.9)) * (0.8 if self.narrow else 1.0)
        self.few = len(grid.nodes) <= (PHONE_FEW if self.narrow else FEW)
        largest = max((abs(one.flow) for one in power), default=0.0)
        self.arrows = [arrow for one in power if (arrow := self._arrow(one, largest))]

    def marks(self) -> list[str]:
        """Generators: a G, or a square where no letter fits, since a small circle looks like a bus."""
        if self.radius >= LEGIBLE:
            return super().marks()
        out, half = [], 0.65 * self.radius
        for _, node, angle in self.marked():
            x, y = self.places[node]
            u, v = self.places[node] + np.array([math.cos(angle), math.sin(angle)]) * 2.2 * self.radius
            out.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{u:.1f}" y2="{v:.1f}"/>')
            out.append(f'<rect x="{u - half:.1f}" y="{v - half:.1f}" width="{2 * half:.1f}" height="{2 * half:.1f}"/>')
        return out

    def flows(self) -> list[str]:
        """Lines in the colour and the width of their loading, tie lines dashed; those of low loading below."""
        out = []
        for kind in ("bx", *(f"b{i}" for i in range(len(WIDTHS)))):
            width = self.base * (WIDTHS[int(kind[1])] if kind != "bx" else WIDTHS[0])
            for tie in (False, True):
                these = [one for one in self.power if one.kind == kind and one.tie == tie]
                if not these:
                    continue
                dash = max(width * 1.6, 3.2 * self.base)
                dashes = f' stroke-dasharray="{2 * dash:.1f} {dash:.1f}"' if tie else ""
                out.append(f'<g class="{kind}{" tie" if tie else ""}" stroke-width="{width:.2f}"{dashes}>')
                out += [self._flow(one) for one in these]
                out.append("</g>")
        return out

    def _flow(self, one: BranchFlow) -> str:
        drawn = self.line(*one.ends)
        return drawn if self.narrow else f"{drawn[:-2]}><title>{escape(one.title)}</title></line>"

    def _arrow(self, one: BranchFlow, largest: float) -> tuple[Array, Array, float] | None:
        """Where it stands, its direction and half its length; None where there is no flow or no room."""
        a, b = (self.places[end] for end in one.ends)
        if abs(one.flow) < 5e-4 or largest <= 0:
            return None
        length, wanted = float(np.linalg.norm(b - a)), self.base * (2.0 + 4.2 * math.sqrt(abs(one.flow) / largest))
        half = min(wanted, (length - 2 * self.radius) / 2.6)
        return None if half < 1.1 else ((a + b) / 2, (b - a) / length * math.copysign(1.0, one.flow), half)

    def heads(self) -> list[str]:
        out = ['<g class="arrows">']
        for middle, direction, half in self.arrows:
            side = np.array([-direction[1], direction[0]]) * half * 0.72
            points = (middle + direction * half, middle - direction * half + side, middle - direction * half - side)
            out.append(f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>')
        return [*out, "</g>"]

    def nodes(self, layer: Layer, rows: Sequence[Row]) -> list[str]:
        """The buses in the colours of a layer, numbered where the number can be read."""
        out = [f'<g class="buses {layer.name}">']
        legible = self.radius >= (7.0 if self.narrow else LEGIBLE)
        for k, (node, row) in enumerate(zip(self.network.nodes, rows, strict=True)):
            (x, y), kind = self.places[node], layer.kinds[k]
            title = f"bus {node}, {row['zone']}: {fixed(row['v_pu'], 3)} p.u., {fixed(row['price_per_mwh'], 3)} $/MWh"
            circle = f'<circle class="{layer.name[0]}{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{self.radius:.1f}"'
            out.append(f"{circle}/>" if self.narrow else f"{circle}><title>{escape(title)}</title></circle>")
            if legible:
                size = min(self.radius * 1.05, self.radius * 3.0 / max(len(node), 1))
                ink = (
                    "on-dark"
                    if (layer.name == "voltage" and kind in (0, 4)) or (layer.name == "price" and kind < 2)
                    else "on-light"
                )
                out.append(
                    f'<text class="{ink}" x="{x:.1f}" y="{y:.1f}" dy="0.35em" font-size="{size:.1f}" '
                    f'text-anchor="middle">{escape(node)}</text>'
                )
        return [*out, "</g>"]

    # --- labels ---

    @property
    def font(self) -> float:
        return 10.0 if self.narrow else 11.5 if self.few else 12.5

    def labels(self, layer: Layer) -> list[Box]:
        """Values beside the buses and lines: all of a small grid that fit, else the extremes."""
        disks = [(*self.places[node], self.radius) for node in self.network.nodes]
        for _, node, angle in self.marked():
            tip = self.places[node] + np.array([math.cos(angle), math.sin(angle)]) * FAR * self.radius
            disks.append((*tip, 0.75 * self.radius))
        disks += [(*middle, half) for middle, _, half in self.arrows]
        segments = np.array([(*self.places[a], *self.places[b]) for a, b in self.pairs]).reshape(-1, 4)
        labels = Labels((self.shape.width, self.height), self.font, np.array(disks).reshape(-1, 3), segments)
        most = len(self.network.nodes) if self.few else 6 if self.narrow else 10
        buses = layer.by_extreme[:most]
        loaded = sorted((one for one in self.power if one.loading > 0), key=lambda one: -one.loading)
        top = loaded[: len(loaded) if self.few and not self.narrow else 4 if self.narrow else 6]
        first = 4 if self.few else most
        for k in buses[:first]:
            self._beside(labels, layer, k)
        for one in top[:5]:
            self._along(labels, one)
        for k in buses[first:]:
            self._beside(labels, layer, k)
        for one in top[5:]:
            self._along(labels, one)
        return labels.placed

    def _beside(self, labels: Labels, layer: Layer, k: int) -> None:
        node = self.network.nodes[k]
        readable = self.radius >= READABLE
        text = layer.tooltip(k) if readable else f"{node}: {layer.tooltip(k)}"
        centre, half = self.places[node], labels.extent(text) / 2
        candidates = []
        for step, gap in enumerate((2.0,) if self.few and readable else (2.0, 12.0, 26.0, 44.0, 66.0, 92.0, 120.0)):
            for i in range(12):
                way = np.array([math.cos(i * math.pi / 6), math.sin(i * math.pi / 6)])
                # The centre of the box from which the rim of the bus is `gap` away, along this way.
                reach = min(half[0] / max(abs(way[0]), 1e-9), half[1] / max(abs(way[1]), 1e-9))
                candidates.append((centre + way * (self.radius + gap + reach), 1.2 * step + 0.01 * i))
        labels.put(text, candidates, centre, self.radius, False)

    def _along(self, labels: Labels, one: BranchFlow) -> None:
        text = f"{one.loading:.0f} %"
        if self.few and not self.narrow:
            text = f"{abs(one.flow):.0f} MW, {text}"
        elif self.radius < READABLE:
            text = f"{one.ends[0]}–{one.ends[1]}: {text}"
        a, b = (self.places[end] for end in one.ends)
        half = labels.extent(text) / 2
        way = (b - a) / max(float(np.linalg.norm(b - a)), 1e-9)
        across = np.array([-way[1], way[0]])
        reach = abs(across[0]) * half[0] + abs(across[1]) * half[1] + self.base * WIDTHS[-1] / 2 + 1.0
        candidates = []
        for step, gap in enumerate((0.0, 9.0) if self.few else (0.0, 9.0, 20.0, 34.0, 52.0, 74.0)):
            for i, share in enumerate((0.5, 0.4, 0.6, 0.3, 0.7)):
                for side in (1.0, -1.0):
                    centre = a + (b - a) * share + side * across * (reach + gap)
                    candidates.append((centre, 0.8 * step + 0.05 * i))
        labels.put(text, candidates, (a + b) / 2, 0.0, True)

    def texts(self, layer: Layer) -> list[str]:
        out = [f'<g class="labels {layer.name}" font-size="{self.font}" text-anchor="middle">']
        boxes = self.labels(layer)
        for box in boxes:
            if box.lead is not None:
                (x1, y1), (x2, y2) = box.lead
                out.append(f'<line class="lead" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')
        for box in boxes:
            (x, y), kind = box.centre, ' class="line"' if box.of_line else ""
            out.append(f'<text{kind} x="{x:.1f}" y="{y:.1f}" dy="0.35em">{escape(box.text)}</text>')
        return [*out, "</g>"]

    def svg(self, label: str, rows: Sequence[Row]) -> str:
        """The picture as an <svg> element."""
        width, height = f"{self.shape.width:.0f}", f"{self.height:.0f}"
        size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        kind = "narrow" if self.narrow else "wide"
        parts = [
            f'<svg class="map {kind}" {size} role="img" aria-label="{escape(label)}" '
            'xmlns="http://www.w3.org/2000/svg">'
        ]
        parts += ['<g class="zones">', *self.territories(), "</g>", *self.flows()]
        parts += ['<g class="marks">', *self.marks(), "</g>", *self.heads()]
        for layer in self.layers:
            parts += self.nodes(layer, rows)
        for layer in self.layers:
            parts += self.texts(layer)
        return "".join([*parts, "</svg>"])


def drawing(tables: Mapping[str, Sequence[Row]], name: str, places: Array | None = None) -> str:
    """Both pictures with their switch and their keys, as HTML. places: (buses, 2) of a map, x to the east, y north."""
    grid, power, rows = network(tables), lines(tables["lines"]), tables["buses"]
    layers = (voltages(rows), prices(rows))
    position = None if places is None else parted(places * np.array([1.0, -1.0]))  # a page's y goes down
    wide = Picture(grid, power, layers, WIDE if places is None else MAP, position)
    # A map keeps its north: what is drawn upright turns its axes, which is undone before.
    upright = wide.position if position is None else position[:, ::-1]
    narrow = Picture(grid, power, layers, NARROW, upright)
    label = f"Flows, loading of lines, voltages and prices of {name}"
    switch = (
        '<input type="radio" name="by" id="by-voltage" checked="checked"/><label for="by-voltage">Buses by '
        "voltage</label>"
        '<input type="radio" name="by" id="by-price"/><label for="by-price">Buses by price</label>'
    )
    keys = _zones(grid) + _loadings(wide) + "".join(_layer(layer) for layer in layers)
    return f'<div class="power">{switch}{keys}{wide.svg(label, rows)}{narrow.svg(label, rows)}</div>'


def parted(places: Array) -> Array:
    """(n, 2) places of which no two are the same: buses of one substation stand around it."""
    out, step = places.copy(), APART * float(np.linalg.norm(np.ptp(places, axis=0)))
    taken: dict[tuple[float, float], int] = {}
    for k, (x, y) in enumerate(places.tolist()):
        place = (round(x / max(step, 1e-12)), round(y / max(step, 1e-12)))
        turn = taken[place] = taken.get(place, -1) + 1
        if turn:
            angle = 2.4 * turn  # the golden angle: neighbours in turn are far apart
            out[k] += step * math.sqrt(turn) * np.array([math.cos(angle), math.sin(angle)])
    return out


def _key(mark: str, text: str) -> str:
    return f"<span>{mark}{escape(text)}</span>"


def _zones(grid: Network) -> str:
    keys = [
        _key(f'<i style="background:{PALETTE[i % len(PALETTE)]};opacity:0.5"></i>', f"{zone} ({len(members)} buses)")
        for i, (zone, members) in enumerate(grid.groups.items())
    ]
    return f'<p class="keys"><b>Zones</b>{"".join(keys)}</p>'


def _loadings(picture: Picture) -> str:
    ends = ["0", *(f"{end:.0f}" for end in LOADINGS)]
    keys = []
    for i, low in enumerate(ends):
        text = f"{low} to {ends[i + 1]} %" if i + 1 < len(ends) else f"{low} % and more"
        keys.append(_key(f'<i class="ln b{i}" style="height:{1.4 * WIDTHS[i]:.1f}px"></i>', text))
    if any(one.kind == "bx" for one in picture.power):
        keys.append(_key('<i class="ln bx" style="height:1.4px"></i>', "no limit"))
    if any(one.tie for one in picture.power):
        keys.append(_key('<i class="ln dashed"></i>', "dashed: between zones"))
    keys.append(_key('<i class="head"></i>', "where power flows, larger for more MW"))
    return f'<p class="keys"><b>Loading of a line</b>{"".join(keys)}</p>'


def _layer(layer: Layer) -> str:
    title = {"voltage": "Voltage, p.u.; close: within 0.01 of a limit of its bus", "price": "Price, $/MWh"}[layer.name]
    keys = [
        _key(f'<i class="bus {layer.name[0]}{kind}"></i>', text)
        for kind, text in layer.meaning.items()
        if kind in layer.kinds
    ]
    return f'<p class="keys {layer.name}"><b>{title}</b>{"".join(keys)}</p>'
