"""A few rows of two features in the files that studies of images read."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hushgrid.lab.studies.papers.federated import Images


def small_images(place: Path) -> Images:
    """Thirty rows for three nodes, and thirty to test on."""
    draw = np.random.default_rng(2)
    for name in ("train.csv", "test.csv"):
        A = draw.random((30, 2))
        lines = [",".join(map(str, [*a.round(3), int(a[0] > a[1])])) for a in A]
        (place / name).write_text("\n".join(lines))
    return Images(str(place / "train.csv"), str(place / "test.csv"), 2, 3)
