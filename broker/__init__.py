"""The other side of the wire: brokers, coordinator, simulation, report, bench, command line."""

import hushgrid.kernels  # noqa: F401  (fixes BLAS to one thread before numpy is loaded)
