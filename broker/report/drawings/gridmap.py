"""The network drawn as one SVG: zones coloured, tie lines and a walk emphasised, generators marked. A pure function.

Layout: stress majorisation (Gansner, Koren, North, "Graph drawing by stress majorization", 2004) from a classical
scaling start: the same network gives the same picture. Tie lines count as longer than other lines: zones stand apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Paul Tol's "bright" and "muted" schemes, which stay apart under the common colour-vision deficiencies.
PALETTE = ("#4477AA", "#EE6677", "#228833", "#AA3377", "#B8860B", "#2A9DB8", "#332288", "#882255", "#117733", "#777777")
INK = "#1c2733"
WIDTH = 960.0
TIE_LENGTHS = (2.2, 1.7, 3.0)  # in units of one ordinary line; the picture with the fewest crossings is taken
TRIED = 350  # nodes; above, only the first length is tried
LEGIBLE = 5.2  # the smallest radius of a bus whose number can be read, on paper or magnified
FAR = 2.35  # radii of a bus that a mark lies away from it
MAX_DRAWN = 1000  # nodes; the layout needs a few dense matrices of this order
MAX_EDGES = 3000  # more are a grey disk


@dataclass(frozen=True)
class Shape:
    """The page that a network is drawn on, in the drawing's units; `low`, `high`: its height as a share of the
    width.
    """

    width: float = WIDTH
    low: float = 0.34
    high: float = 0.72
    upright: bool = False  #: the layout's longest axis goes down the page
    most: float = 150.0  #: units an ordinary line is long at most where there are few nodes

    def radius(self, n: int) -> float:
        """Of one bus of n."""
        if self.upright:
            return float(np.clip(42.0 / math.sqrt(max(n, 1)), 2.4, 11.0))
        return bus_radius(n)


LANDSCAPE = Shape()


@dataclass(frozen=True)
class Network:
    """What is drawn. `groups` maps a zone to its nodes, in the order of the colours (empty: one colour).

    generators, loads: nodes that carry the mark. Which buses have loads is private: leave it empty in a private run.
    walk: the edges that a token uses, where they are not all.
    """

    nodes: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    generators: frozenset[str] = frozenset()
    loads: frozenset[str] = frozenset()
    walk: frozenset[frozenset[str]] = frozenset()

    def ties(self) -> tuple[tuple[str, str], ...]:
        """The edges between two zones, each pair of nodes once, in the order given."""
        group = self.group_of()
        return tuple(e for e in _pairs(self.edges) if group.get(e[0]) != group.get(e[1]))

    def group_of(self) -> dict[str, str]:
        """The zone of every node that has one."""
        return {node: group for group, members in self.groups.items() for node in members}


def _pairs(edges: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The edges without repeats (parallel lines) and loops."""
    seen: dict[frozenset[str], tuple[str, str]] = {}
    for a, b in edges:
        if a != b:
            seen.setdefault(frozenset((a, b)), (a, b))
    return list(seen.values())


def distances(n: int, ends: NDArray[np.int64], lengths: Array) -> Array:
    """Shortest path lengths (n, n) in an undirected graph, edges `ends` (m, 2); unconnected parts: the longest + 2."""
    d = np.full((n, n), np.inf)
    np.fill_diagonal(d, 0.0)
    d[ends[:, 0], ends[:, 1]] = d[ends[:, 1], ends[:, 0]] = lengths
    for k in range(n):  # Floyd and Warshall
        np.minimum(d, d[:, k, None] + d[None, k, :], out=d)
    finite = np.isfinite(d)
    d[~finite] = d[finite].max() + 2.0
    return d


def layout(d: Array, iterations: int = 300) -> Array:
    """Positions (n, 2) whose Euclidean distances follow the path lengths d (n, n), longest axis horizontal, centred."""
    n = len(d)
    if n < 3:
        return np.column_stack([np.arange(n) - (n - 1) / 2, np.zeros(n)]) * (d.max() if n > 1 else 0.0)
    centre = np.eye(n) - 1.0 / n
    values, vectors = np.linalg.eigh(-0.5 * centre @ (d * d) @ centre)
    start = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0.0))
    position = start + 1e-3 * np.column_stack([np.cos(np.arange(n)), np.sin(np.arange(n))])  # no two nodes on one spot
    w = np.zeros_like(d)
    apart = d > 0
    w[apart] = d[apart] ** -2.0
    laplacian = np.diag(w.sum(1)) - w
    inverse = np.linalg.pinv(laplacian)
    for _ in range(iterations):
        x, y = position.T
        gap = np.sqrt((x[:, None] - x) ** 2 + (y[:, None] - y) ** 2)
        ratio = np.divide(w * d, gap, out=np.zeros_like(d), where=gap > 1e-12)
        position = inverse @ ((np.diag(ratio.sum(1)) - ratio) @ position)
    position -= position.mean(0)
    _, _, axes = np.linalg.svd(position, full_matrices=False)
    position = position @ axes.T
    # A mirror image is the same layout: pick the one where the first node that is off the axis lies up and left.
    for axis in range(2):
        off = position[np.abs(position[:, axis]) > 1e-6, axis]
        if len(off) and off[0] > 0:
            position[:, axis] *= -1.0
    return np.asarray(position, dtype=np.float64)


def crossings(position: Array, ends: NDArray[np.int64]) -> int:
    """How many pairs of edges (m, 2) without a common node cross in the drawing `position` (n, 2)."""

    def side(a: Array, b: Array, c: Array) -> Array:
        return np.sign(
            (b[..., 0] - a[..., 0]) * (c[..., 1] - a[..., 1]) - (b[..., 1] - a[..., 1]) * (c[..., 0] - a[..., 0])
        )

    if not len(ends):
        return 0
    p, q = position[ends[:, 0]], position[ends[:, 1]]
    p1, q1, p2, q2 = p[:, None], q[:, None], p[None], q[None]
    cross = (side(p1, q1, p2) * side(p1, q1, q2) < 0) & (side(p2, q2, p1) * side(p2, q2, q1) < 0)
    apart = (ends[:, None, :, None] != ends[None, :, None, :]).all(axis=(2, 3))
    return int(np.count_nonzero(cross & apart)) // 2


def _free_angles(angles: Sequence[float], count: int) -> list[float]:
    """Directions in the middle of the widest gaps between the given directions, widest first, each used gap split."""
    taken, chosen = sorted(angles), []
    for _ in range(count):
        if not taken:
            chosen.append(math.pi / 2)
        else:
            gaps = [(b - a, a) for a, b in zip(taken, [*taken[1:], taken[0] + 2 * math.pi], strict=True)]
            width, first = max(gaps, key=lambda g: (round(g[0], 6), -g[1]))
            chosen.append(math.remainder(first + width / 2, 2 * math.pi))
        taken = sorted([*taken, chosen[-1]])
    return chosen


def bus_radius(n: int) -> float:
    """The radius of a bus in a drawing of n buses, in the drawing's units."""
    return float(np.clip(70.0 / math.sqrt(max(n, 1)), 3.4, 15.0))


class Drawing:
    """A network and the places of its nodes on the page, in pixels. `position`: of its nodes, laid out before."""

    def __init__(self, network: Network, shape: Shape = LANDSCAPE, position: Array | None = None) -> None:
        self.network, self.shape = network, shape
        self.group_of = network.group_of()
        self.colour = {group: PALETTE[i % len(PALETTE)] for i, group in enumerate(network.groups)}
        self.pairs, self.ties = _pairs(network.edges), set(network.ties())
        self.radius = shape.radius(len(network.nodes))
        self.position = self._laid_out() if position is None else position
        xy, self.height = self._places()
        self.places = dict(zip(network.nodes, xy, strict=True))

    def _laid_out(self) -> Array:
        """(n, 2) places in units of one ordinary line."""
        nodes, ties = self.network.nodes, self.ties
        n, index = len(nodes), {node: i for i, node in enumerate(nodes)}
        ends = np.array([(index[a], index[b]) for a, b in self.pairs], dtype=np.int64).reshape(-1, 2)
        tie = np.array([p in ties for p in self.pairs], dtype=bool)
        lengths = TIE_LENGTHS if ties and n <= TRIED else TIE_LENGTHS[:1]
        candidates = [layout(distances(n, ends, np.where(tie, length, 1.0))) for length in lengths]
        return min(candidates, key=lambda place: crossings(place, ends)) if len(candidates) > 1 else candidates[0]

    def _places(self) -> tuple[Array, float]:
        """(n, 2) places, and the height of the page."""
        width, shape, n = self.shape.width, self.shape, len(self.network.nodes)
        position = self.position[:, ::-1] if shape.upright else self.position
        # Text and marks shrink with the number of buses; the height follows the layout's own shape, within a page.
        margin = 3.4 * self.radius + 6.0
        low, high = position.min(0), position.max(0)
        span = np.maximum(high - low, 1e-9)
        height = (
            float(np.clip((width - 2 * margin) * span[1] / span[0], shape.low * width, shape.high * width)) + 2 * margin
        )
        scale = np.minimum((np.array([width, height]) - 2 * margin) / span, shape.most if n < 12 else np.inf)
        # Up to a third of stretch along one axis fills the page without distorting the picture noticeably.
        scale = np.minimum(scale, scale.min() * 1.35)
        used = span * scale + 2 * margin
        return margin + (position - low) * scale + np.array([(width - used[0]) / 2, 0.0]), float(used[1])

    def line(self, a: str, b: str, extra: str = "") -> str:
        (x1, y1), (x2, y2) = self.places[a], self.places[b]
        return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"{extra}/>'

    def territories(self) -> list[str]:
        """A soft band along a zone's own lines shows its territory without ever covering another zone's bus."""
        out = []
        dot = '<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}" stroke="none"/>'
        for group, members in self.network.groups.items():
            inside = [p for p in self.pairs if self.group_of.get(p[0]) == self.group_of.get(p[1]) == group]
            colour = self.colour[group]
            out.append(f'<g opacity="0.17" stroke="{colour}" fill="{colour}" stroke-linecap="round">')
            out += [self.line(a, b, f' stroke-width="{3.6 * self.radius:.1f}"') for a, b in inside]
            out += [dot.format(*self.places[m], 1.8 * self.radius) for m in members if m in self.places]
            out.append("</g>")
        return out

    def lines(self) -> list[str]:
        """Lines, tie lines and the walk."""
        thin, thick = max(0.8, self.radius / 8), max(2.0, self.radius / 3.6)
        dashes = f'stroke-dasharray="{3 * thick:.1f} {1.3 * thick:.1f}"'
        out = [f'<g stroke="#8793a0" stroke-width="{thin:.1f}">']
        out += [self.line(a, b) for a, b in self.pairs if (a, b) not in self.ties]
        out.append(f'</g><g stroke="{INK}" stroke-width="{thick:.1f}" {dashes}>')
        out += [self.line(a, b) for a, b in self.pairs if (a, b) in self.ties]
        out.append(f'</g><g stroke="{INK}" stroke-width="{thick:.1f}">')
        out += [self.line(a, b) for a, b in self.pairs if frozenset((a, b)) in self.network.walk]
        return [*out, "</g>"]

    def marked(self) -> list[tuple[str, str, float]]:
        """Generators and loads: the mark, its bus, and the direction where no line leaves the bus."""
        around: dict[str, list[float]] = {node: [] for node in self.network.nodes}
        for a, b in self.pairs:
            dx, dy = self.places[b] - self.places[a]
            around[a].append(math.atan2(dy, dx))
            around[b].append(math.atan2(-dy, -dx))
        out = []
        drawn = ("generator", self.network.generators), ("load", self.network.loads)
        for node in self.network.nodes:
            marks = [mark for mark, places in drawn if node in places]
            for mark, angle in zip(marks, _free_angles(around[node], len(marks)), strict=True):
                out.append((mark, node, angle))
        return out

    def marks(self) -> list[str]:
        """What `marked` says, drawn."""
        return [_mark(mark, self.places[node], angle, self.radius) for mark, node, angle in self.marked()]

    def bus(self, node: str) -> str:
        """A node, numbered if the number stays legible."""
        (x, y), zone, radius = self.places[node], self.group_of.get(node), self.radius
        fill = self.colour[zone] if zone is not None else PALETTE[0]
        title = f"{node}, {zone}" if zone is not None else node
        circle = (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{fill}" stroke="#fff" stroke-width="1">'
            f"<title>{escape(title)}</title></circle>"
        )
        if radius < LEGIBLE:
            return circle
        size = min(radius * 1.05, radius * 3.0 / max(len(node), 1))
        return circle + (
            f'<text x="{x:.1f}" y="{y:.1f}" dy="0.35em" font-size="{size:.1f}" text-anchor="middle" fill="#fff" '
            f'font-weight="600">{escape(node)}</text>'
        )


@dataclass(frozen=True)
class Box:
    """A label: its text, its centre, and the thin line from what it tells of, if it stands away from it."""

    text: str
    centre: Array
    of_line: bool
    lead: tuple[Array, Array] | None = None


class Labels:
    """Places for labels of one height: inside the picture, over no bus, mark, arrow or other label, over few lines."""

    def __init__(self, size: tuple[float, float], font: float, disks: Array, segments: Array) -> None:
        """disks: (k, 3) x, y and radius. segments: (m, 4) from x, y to x, y."""
        self.size, self.font, self.disks, self.segments = np.array(size), font, disks, segments
        self.taken = np.zeros((0, 4))
        self.placed: list[Box] = []

    def extent(self, text: str) -> Array:
        return np.array([0.58 * self.font * len(text) + 2.0, 1.15 * self.font])

    def put(
        self, text: str, candidates: Sequence[tuple[Array, float]], anchor: Array, reach: float, of_line: bool
    ) -> None:
        """Puts a label at the cheapest of its candidate centres, each with a cost of its own; nowhere if none is free.

        `at`: the middle of what it tells of, which reaches `reach` far.
        """
        half = self.extent(text) / 2
        best, least = None, math.inf
        for centre, cost in candidates:
            low, high = centre - half, centre + half
            if cost >= least or np.any(low < 1.0) or np.any(high > self.size - 1.0) or self._covers(low, high):
                continue
            cost += float(np.count_nonzero(self._crosses(low, high)))
            if cost < least:
                best, least = centre, cost
        if best is None:
            return
        self.taken = np.vstack([self.taken, np.concatenate([best - half, best + half])])
        end = np.clip(anchor, best - half, best + half)
        away = float(np.linalg.norm(end - anchor))
        lead = (anchor + (end - anchor) * (reach / away), end) if away > reach + 0.8 * self.font else None
        self.placed.append(Box(text, best, of_line, lead))

    def _covers(self, low: Array, high: Array) -> bool:
        gap = np.clip(self.disks[:, :2], low, high) - self.disks[:, :2]
        if np.any(np.hypot(*gap.T) < self.disks[:, 2] + 0.5):
            return True
        t = self.taken
        return bool(np.any((t[:, 0] < high[0]) & (t[:, 2] > low[0]) & (t[:, 1] < high[1]) & (t[:, 3] > low[1])))

    def _crosses(self, low: Array, high: Array) -> NDArray[np.bool_]:
        start, step = self.segments[:, :2], self.segments[:, 2:] - self.segments[:, :2]
        step = np.where(np.abs(step) < 1e-9, 1e-9, step)
        one, other = (low - start) / step, (high - start) / step
        enter, leave = np.minimum(one, other).max(axis=1), np.maximum(one, other).min(axis=1)
        return np.asarray((enter <= leave) & (enter <= 1.0) & (leave >= 0.0))


def svg(network: Network, label: str) -> str:
    """The drawing as an <svg> element, text escaped. Buses are numbered where the numbers stay legible."""
    drawing = Drawing(network)
    size = f'viewBox="0 0 {WIDTH:.0f} {drawing.height:.0f}" width="{WIDTH:.0f}" height="{drawing.height:.0f}"'
    head = f'<svg class="map" {size} role="img" aria-label="{escape(label)}" xmlns="http://www.w3.org/2000/svg">'
    buses = [drawing.bus(node) for node in network.nodes]
    return "".join([head, *drawing.territories(), *drawing.lines(), *drawing.marks(), *buses, "</svg>"])


def _mark(kind: str, centre: Array, angle: float, radius: float) -> str:
    """A generator (circle with a G) or a load (arrow head) beside its bus."""
    direction = np.array([math.cos(angle), math.sin(angle)])
    tip = centre + direction * FAR * radius
    stem = f'<line x1="{centre[0]:.1f}" y1="{centre[1]:.1f}" x2="{tip[0]:.1f}" y2="{tip[1]:.1f}" stroke="{INK}"/>'
    if kind == "generator":
        text = (
            f'<text x="{tip[0]:.1f}" y="{tip[1]:.1f}" dy="0.35em" font-size="{0.95 * radius:.1f}" text-anchor="middle"'
        )
        ring = f'<circle cx="{tip[0]:.1f}" cy="{tip[1]:.1f}" r="{0.75 * radius:.1f}" fill="#fff" stroke="{INK}"/>'
        return stem + ring + (f'{text} fill="{INK}">G</text>' if radius >= LEGIBLE else "")
    side = np.array([-direction[1], direction[0]]) * 0.5 * radius
    back = tip - direction * 0.8 * radius
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (tip, back + side, back - side))
    return f'{stem}<polygon points="{points}" fill="{INK}"/>'
