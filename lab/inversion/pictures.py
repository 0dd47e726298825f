"""Rows as grey images, side by side: original (if it is known) above recovered."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from hushgrid.kernels.errors import InputError
from hushgrid.kernels.types import Vector

SIDE = 96  #: pixels of an image's longer side, about
GAP = 6  #: pixels between images
PAPER = 255


def shape_of(text: str | None, width: int) -> tuple[int, int] | None:
    """(height, width) of rows as images, by --shape HxW, or the square of their width; None if that is no square.

    Raises InputError if the shape does not fit.
    """
    if text is None:
        side = isqrt(width)
        return (side, side) if side * side == width and side > 1 else None
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        raise InputError(f"--shape: found {text!a:.40}, expected HxW, such as 8x8")
    h, w = int(parts[0]), int(parts[1])
    if h * w != width:
        raise InputError(f"--shape: found {h}x{w}, expected {width} entries, as rows have")
    return h, w


def sheet(lines: Sequence[Sequence[Vector]], shape: tuple[int, int]) -> NDArray[np.uint8]:
    """Images in lines, one below the other, enlarged without smoothing.

    Each has its own scale, from its smallest entry, or 0 if that is smaller (white), to its largest. Hidden entries are
    0.
    """
    zoom = max(1, SIDE // max(shape))
    h, w = shape[0] * zoom, shape[1] * zoom
    page = np.full((len(lines) * (h + GAP) + GAP, max(map(len, lines)) * (w + GAP) + GAP), PAPER, dtype=np.uint8)
    for r, line in enumerate(lines):
        for k, image in enumerate(line):
            top, column = GAP + r * (h + GAP), GAP + k * (w + GAP)
            page[top : top + h, column : column + w] = np.kron(
                _grey(image).reshape(shape), np.ones((zoom, zoom), np.uint8)
            )
    return page


def _grey(image: Vector) -> NDArray[np.uint8]:
    known = np.nan_to_num(image, nan=0.0)
    low, high = min(0.0, float(known.min())), float(known.max())
    span = high - low or 1.0
    grey: NDArray[np.uint8] = np.round(PAPER * (1 - 0.92 * (known - low) / span)).astype(np.uint8)
    return grey


def png(page: NDArray[np.uint8]) -> bytes:
    """A grey image (h, w) as a PNG file. Source: W3C, Portable Network Graphics (second edition), 5 and 11.2."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    h, w = page.shape
    head = struct.pack(">IIBBBBB", w, h, 8, 0, 0, 0, 0)
    lines = b"".join(b"\0" + row.tobytes() for row in page)  # filter 0: as it is
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")
