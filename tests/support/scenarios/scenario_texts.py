"""A scenario as text, changed at one key, and the one line with which it is refused."""

from enum import Enum
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import strategies as st

from hushgrid.kernels.errors import InputError
from hushgrid.node.config.scenario import scenario_from

SCENARIO = """\
hushgrid: 1
name: case14-three-zones
problem: {kind: zones, case: case14, zones: 3}
algorithm: {name: ladmm, rounds: 10}
privacy: {adjacency: {bounded-change: 0.01}, epsilon: 5.0}
"""
DELETE = Enum("Sentinel", "DELETE").DELETE  # tests are named alike in every process


def changed(text, **over):
    """The mapping in a text, with dotted paths (`__` for a dot) set or deleted."""
    raw = yaml.safe_load(text)
    for path, value in over.items():
        *parents, last = path.split("__")
        here = raw
        for parent in parents:
            here = here.setdefault(parent, {})
        if value is DELETE:
            del here[last]
        else:
            here[last] = value
    return raw


def failure(raw):
    with pytest.raises(InputError) as caught:
        scenario_from(raw, "s.yaml")
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith("s.yaml: ")
    assert caught.value.exit_code == 2
    return line.removeprefix("s.yaml: ")


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


# --- Files of rows, as their owners write them ---

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
