"""The other side of the wire: brokers, coordinator, simulation and report."""

import hushgrid.kernels  # noqa: F401  (fixes BLAS to one thread before numpy is loaded)
