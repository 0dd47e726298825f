"""Zones of case14 and their models."""

from dataclasses import fields

import numpy as np

from hushgrid.grid_cases import load
from hushgrid.grid_cases.zone.model import ZoneModel

CASE14 = load("case14")
ZONES14 = [[1, 2, 3, 4, 5], [7, 8, 9, 10, 14], [6, 11, 12, 13]]


def same(a: ZoneModel, b: ZoneModel) -> bool:
    def plain(value):
        return value.toarray().tolist() if hasattr(value, "toarray") else np.asarray(value).tolist()

    return all(plain(getattr(a, part.name)) == plain(getattr(b, part.name)) for part in fields(ZoneModel))
