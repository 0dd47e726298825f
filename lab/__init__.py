"""What a researcher or a tester runs: never a device, never a coordinator."""

import hushgrid.kernels  # noqa: F401  (fixes BLAS to one thread before numpy is loaded)
