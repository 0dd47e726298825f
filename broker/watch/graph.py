"""Where the nodes of a run are drawn: by the layout of the report, once a graph."""

from __future__ import annotations

from functools import lru_cache

from hushgrid.broker.report.drawings.gridmap import Drawing, Network, Shape
from hushgrid.kernels.types import Document

DRAWN = 300  #: nodes at most; the layout needs a few dense matrices of this order
SHAPE = Shape(width=720.0, low=0.4, high=0.8, most=190.0)

Edge = tuple[str, str]


@lru_cache(maxsize=2)
def placed(edges: tuple[Edge, ...]) -> Document:
    """{width, height, radius, nodes: {name: [x, y]}, edges}; of more nodes than are drawn their number, as `many`."""
    nodes = tuple(dict.fromkeys(name for edge in edges for name in edge))
    if len(nodes) > DRAWN or not nodes:
        return {"many": len(nodes)}
    drawing = Drawing(Network(nodes, edges), SHAPE)
    places = {name: [round(float(x), 1), round(float(y), 1)] for name, (x, y) in drawing.places.items()}
    radius = round(drawing.radius, 1)
    return {"width": SHAPE.width, "height": round(drawing.height, 1), "radius": radius, "nodes": places, "edges": edges}
