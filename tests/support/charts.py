"""Charts that are composed and not drawn: to lay out and draw one takes a third of a second, and a report has six.

A sketch says all that is drawn: its words as text, its numbers as a digest of every bit, so that two charts of
different data are different sketches.
"""

from __future__ import annotations

import hashlib
from html import escape
from typing import Any

import numpy as np


def sketch(figure: Any, name: str, label: str) -> str:
    """In place of `_svg` of the report's charts."""
    digest, words = hashlib.sha256(name.encode()), []
    for axes in figure.axes:
        words += [axes.get_xlabel(), axes.get_ylabel()]
        digest.update(repr((axes.get_xscale(), axes.get_yscale(), axes.get_xlim(), axes.get_ylim())).encode())
        for line in axes.lines:
            digest.update(np.ascontiguousarray(line.get_xydata()).tobytes() + str(line.get_linestyle()).encode())
        for area in axes.collections:
            for path in area.get_paths():
                digest.update(np.ascontiguousarray(path.vertices).tobytes())
        for patch in axes.patches:
            digest.update(np.ascontiguousarray(patch.get_path().vertices).tobytes())
    legends = [axes.get_legend() for axes in figure.axes if axes.get_legend() is not None] + figure.legends
    words += [text.get_text() for legend in legends for text in legend.get_texts()]
    texts = "".join(f"<text>{escape(word)}</text>" for word in words)
    shown = f'class="chart" role="img" aria-label="{escape(label)}" data-drawn="{digest.hexdigest()}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {shown}>{texts}</svg>'
