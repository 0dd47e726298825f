"""Power-system cases, their partition into zones and the zone models."""

import hushgrid.kernels  # noqa: F401  (fixes BLAS to one thread before numpy is loaded)
