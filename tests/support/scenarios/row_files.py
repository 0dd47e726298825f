"""Files of rows, as their owners write them."""

from pathlib import Path

import numpy as np
import pytest

from hushgrid.kernels.errors import InputError

LIBSVM = b"+1 1:0.5 3:-2e1 # a comment\n\n-1 2:7\r\n1\n"


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def npz(path: Path, **arrays) -> Path:
    np.savez(path, **{name: np.asarray(array) for name, array in arrays.items()})
    return path


def line(call, *arguments, **keys) -> str:
    with pytest.raises(InputError) as error:
        call(*arguments, **keys)
    assert "\n" not in str(error.value)
    return str(error.value)
