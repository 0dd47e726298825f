"""The device: gate, ledger, wire, transport, daemon."""

import hushgrid.kernels  # noqa: F401  (fixes BLAS to one thread before numpy is loaded)
