"""How large a fleet can be, from measured costs: the tables of docs/size.md.

`python -m hushgrid.lab.planning.size` writes them into the page. They follow from the law of
`kernels/privacy/mask_graphs.py`, from the size of an announcement as the program encodes it, and from costs that were
measured on two cores over loopback (docs/size.md says how).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, isqrt
from pathlib import Path

from hushgrid.kernels.privacy.mask_graphs import MaskGraph, fewest_neighbours
from hushgrid.node.wire import Envelope, Mark, Plan, encode

PAGE = Path(__file__).resolve().parents[2] / "docs" / "size.md"
SIZES = (1_000, 10_000, 100_000)

PAIR = 390.0  #: bytes of one device's introduction to another one, measured
PICKS = 12.0  #: bytes of one pick, by name, to the coordinator
ROW = 3.0  #: bytes of a plan for each of its nodes, measured
HANDSHAKE = 2.3e-3  #: s of a broker's processor, TLS
MEMBER = 3e-3  #: s of the coordinator's processor for each member and round

Row = Sequence[str]


def neighbours(n: int, corrupt: float) -> int:
    """k for an added delta of 1e-9, if all take part in one draw."""
    return fewest_neighbours(MaskGraph(n, n, ceil(corrupt * n), 0), 1e-9)


def masks(n: int) -> Row:
    """A line of the table of neighbours: k, and the bytes of the introductions of one run, over all of its levels."""
    site, k = isqrt(n - 1) + 1, neighbours(n, 0.2)
    few = [str(neighbours(n, corrupt)) for corrupt in (0.1, 0.2, 1 / 3)]
    return [f"{n:,}", *few, size(PAIR * n * n), size(PAIR * site**2 * (site + 1)), size(sparse(n, k))]


def sparse(n: int, k: int) -> float:
    """Bytes of the introductions and picks of n devices with k picks each: an edge stands if either end picked it."""
    return n * (2 * k * PAIR + k * PICKS)


def announcement(n: int) -> float:
    """Bytes of one announcement of a run to one device: all members with their marks, and the plan."""
    names = [f"n{i}" for i in range(n)]
    mark = Mark(bytes(16), 1000, 0.5, 0.25)
    plan = Plan(b"", bytes(16), dict.fromkeys(names, 1000), dict.fromkeys(names, mark))
    return len(encode(Envelope(bytes(16), 0, 0, None, plan))) + ROW * n


def limits(n: int) -> Row:
    """A line of the table of limits, one broker and one coordinator."""
    announced = announcement(n)
    return [
        f"{n:,}",
        time(HANDSHAKE * n),
        time(MEMBER * n),
        size(announced),
        size(announced * n),
    ]


def size(bytes_: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if bytes_ < 999.5:
            return f"{bytes_:.3g} {unit}"
        bytes_ /= 1000
    return f"{bytes_:.3g} TB"


def time(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 100 else f"{seconds / 60:.2g} min"


def table(head: Row, rows: Sequence[Row]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


TABLES: dict[str, Callable[[], str]] = {
    "neighbours": lambda: table(
        ["devices", "10% corrupt", "20%", "33%", "all with all", "sites of sites", "k others"],
        [masks(n) for n in SIZES],
    ),
    "limits": lambda: table(
        ["devices", "handshakes", "a round", "announcement", "to all"],
        [limits(n) for n in SIZES],
    ),
}


def written(text: str) -> str:
    """The page with its tables as they are computed now."""
    for name, make in TABLES.items():
        begin, end = f"<!-- table {name} -->\n", "<!-- end -->"
        before, _, rest = text.partition(begin)
        text = before + begin + make() + "\n" + end + rest.partition(end)[2]
    return text


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
