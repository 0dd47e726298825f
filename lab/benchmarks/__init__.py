"""What the program costs, beside what it could cost at best."""

import hushgrid.kernels  # noqa: F401  (fixes BLAS to one thread before numpy is loaded)
