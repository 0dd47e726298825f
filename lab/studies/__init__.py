"""The studies of the papers: their figures and tables again, and at honest totals."""

import hushgrid.kernels  # noqa: F401  (fixes BLAS to one thread before numpy is loaded)
