"""Networks of pandapower and SimBench, in and out, by pandapower's own converters (extras `pandapower`, `simbench`).

A network file (.json) names Python classes that pandapower makes again as it reads: read only files you trust.
"""

from hushgrid.grid_cases.pandapower.reading import from_pandapower, read
from hushgrid.grid_cases.pandapower.writing import solved, to_pandapower, write

__all__ = ["from_pandapower", "read", "solved", "to_pandapower", "write"]
