"""The mathematics: no I/O, no clock, no sockets, no global randomness."""

import os

# One thread of BLAS, fixed before numpy is loaded: the same scenario and seed must give the same bits in every process.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
