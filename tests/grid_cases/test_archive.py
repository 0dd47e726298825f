"""A case as a NumPy archive comes back with the same bits, and anything else is one line."""

from dataclasses import fields

import numpy as np
import pytest

from hushgrid.grid_cases import archive, load
from hushgrid.grid_cases.elements.table import Table
from hushgrid.kernels.errors import InputError


@pytest.mark.parametrize("name", ["case5", "case118"])
def test_every_table_comes_back_with_the_same_bits(name, tmp_path):
    case = load(name)
    archive.write(case, tmp_path / "case.npz")
    again = load(tmp_path / "case.npz")
    assert again.public_digest() == case.public_digest()
    for table in (getattr(case, column.name) for column in fields(case)):
        if isinstance(table, Table):
            other = next(
                t for f in fields(again) if type(t := getattr(again, f.name)) is type(table) and len(t) == len(table)
            )
            for column in fields(table):
                np.testing.assert_array_equal(getattr(table, column.name), getattr(other, column.name))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"mpc.version = '2';"])
def test_another_file_is_refused_in_one_line(content, tmp_path):
    (tmp_path / "case.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"case\.npz: .*expected a case that hushgrid wrote") as error:
        load(str(tmp_path / "case.npz"))
    assert "\n" not in str(error.value)


def test_a_case_that_contradicts_itself_is_refused(tmp_path):
    archive.write(load("case5"), tmp_path / "case.npz")
    with np.load(tmp_path / "case.npz") as saved:
        arrays = dict(saved)
    arrays["lines.from_bus"] = arrays["lines.from_bus"] + 1000
    np.savez(tmp_path / "case.npz", **arrays)
    with pytest.raises(InputError):
        load(tmp_path / "case.npz")
