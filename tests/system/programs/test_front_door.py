"""`import hushgrid` costs nothing until something of it is used."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import hushgrid
print(sorted({"numpy", "msgspec", "hushgrid.kernels"} & {*sys.modules}))
"""


def output(program: str, *options: str) -> str:
    done = subprocess.run([sys.executable, *options, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_import_loads_neither_numpy_nor_any_part_of_the_program():
    assert output(PROGRAM) == "[]\n"


@pytest.mark.parametrize("name", ["run", "sweep", "load", "Result", "Case"])
def test_every_name_is_there_when_it_is_used(name):
    assert output(f"from hushgrid import {name}; print({name}.__name__)") == f"{name}\n"


def test_a_name_that_is_not_there_is_an_attribute_error():
    program = "import hushgrid\ntry:\n    getattr(hushgrid, 'play')\nexcept AttributeError as error:\n    print(error)"
    assert output(program) == "module 'hushgrid' has no attribute 'play'\n"
