"""What the figures of a benchmark look like."""

import math

from hushgrid.lab.benchmarks.common.measure import Table


def _names(table):
    return [r.what for r in table.rows]


def _well_formed(table):
    assert isinstance(table, Table)
    assert table.rows
    for r in table.rows:
        assert math.isfinite(r.value), r
        assert (r.p10 is None) == (r.p90 is None)
        assert r.p10 is None or r.p10 <= r.value <= r.p90, r
        assert (r.target is None) == (r.met is None), r
        assert r.ratio is None or r.rival, r
