"""MATPOWER files are read as data: every spelling of the format, and one line for everything else."""

import contextlib
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from scipy import sparse

from hushgrid.grid_cases import load
from hushgrid.grid_cases.case import loads
from hushgrid.grid_cases.matpower import BUILT_IN, parse
from hushgrid.grid_cases.matrix import Matrix
from hushgrid.kernels.errors import InputError
from tests.support import examples

TWO_BUSES = """function mpc = two
%% a comment
mpc.version = '2';
mpc.baseMVA = 50;
mpc.bus = [
    1 3 0 0 0 0 1 1 0 1 1 1.1 0.9; % slack
    7 1 25 -5 0 10 1 1 0 1 1 1.05 0.95;
];
mpc.gen = [1 0 0 Inf -Inf 1 100 1 200 0];
mpc.gencost = [2 0 0 3 0.01 5 100];
mpc.branch = [1 7 0.01 0.1 0.02 40 0 0 0 0 1 -30 30];
"""


def read(text: str):
    return parse(text.encode(), "two", "two.m")


def test_values_are_in_per_unit_and_radians_of_the_file_s_base():
    case = read(TWO_BUSES)
    assert case.buses.numbers.tolist() == [1, 7]
    assert case.buses.p_d.tolist() == [0, 0.5]
    assert case.buses.q_d.tolist() == [0, -0.1]
    assert case.buses.b_s.tolist() == [0, 0.2]
    assert case.buses.v_min.tolist() == [0.9, 0.95]
    assert case.buses.v_max.tolist() == [1.1, 1.05]
    assert (case.generators.p_max[0], case.generators.q_min[0], case.generators.q_max[0]) == (4.0, -np.inf, np.inf)
    cost = case.generators
    assert (cost.cost_2[0], cost.cost_1[0], cost.cost_0[0]) == (25.0, 250.0, 100.0)  # $/h of p.u.: c2 50^2, c1 50
    line = case.lines
    assert (line.r[0], line.x[0], line.b[0], line.rate[0], line.tap[0]) == (0.01, 0.1, 0.02, 0.8, 1.0)
    assert line.angle_max[0] == pytest.approx(np.pi / 6)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mpc.baseMVA = 50;", "mpc.baseMVA=5e1"),
        ("mpc.baseMVA = 50;", "mpc.baseMVA = 50, % a comment; with = and [ in it"),
        ("mpc.baseMVA = 50;", "mpc.baseMVA = 0.5D+2;"),
        ("mpc.baseMVA = 50;", "mpc.baseMVA = 50;\nmpc.bus_name = {\n 'It''s; a % bus]';\n 'B';\n};"),
        ("mpc.baseMVA = 50;", "mpc.baseMVA = 50;\nmpc.areas = [1 1];\nmpc.if.map = [1 2];\nmpc.note = foo(1, [2 3]);"),
        ("mpc.baseMVA = 50;", "mpc.baseMVA = 50;\n%{\nmpc.baseMVA = 3; 'open\n%}\n"),
        ("1 7 0.01 0.1", "1, 7,\t.01 +1.e-1"),
        ("1 7 0.01 0.1", "1 7 ... the rest of this line is a comment ]\n 0.01 0.1"),
        ("1 3 0 0 0 0 1 1 0 1 1 1.1 0.9; % slack\n", "1 3 0 0 0 0 1 1 0 1 1 1.1 0.9\n"),
        ("mpc.version = '2';", 'mpc.version = "2";'),
        ("mpc", "grid"),
        ("function mpc = two\n", ""),
        ("\n", "\r\n"),
        ("-30 30]", "-30 30 0 0 0 0];"),
    ],
)
def test_every_spelling_of_the_format_gives_the_same_case(old, new):
    assert old in TWO_BUSES
    text = TWO_BUSES.replace(old, new)
    # Extra columns must stand in every row of a matrix; here the branch has one row.
    assert read(text).public_digest() == read(TWO_BUSES).public_digest()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("mpc.version = '2';", "mpc.version = '1';", "two.m:3: found mpc.version '1', expected '2'"),
        ("mpc.version = '2';", "", "two.m: found mpc.version none, expected '2'"),
        ("0.01 0.1", "0.01 oops", "two.m:11: found 'oops', expected a number, ';' or ']'"),
        ("0.01 0.1", "1-2 0.1", "two.m:11: found '1', expected a number"),
        ("% slack", "1 2; % slack", "two.m:6: found 2 numbers in a row of mpc.bus, expected 13"),
        ("];\nmpc.gen", "\nmpc.gen", "two.m:9: found 'mpc', expected a number"),
        ("-30 30];", "-30 30", "two.m:12: found the end of the file, expected a number, ';' or ']'"),
        (
            "mpc.gencost",
            "mpc.bus(:, 3) = 2 * mpc.bus(:, 3);\nmpc.gencost",
            "two.m:10: found '2', expected columns of mpc.bus",
        ),
        ("mpc.gencost", "define_constants;\nmpc.gencost", "two.m:10: found 'define_constants', expected mpc.FIELD"),
        ("mpc.gen = [1 0 0 Inf -Inf 1 100 1 200 0];", "", "two.m: found no matrix mpc.gen"),
        ("mpc.baseMVA = 50;", "mpc.baseMVA = 0;", "two.m:4: found mpc.baseMVA = 0.0, expected a positive number"),
        ("mpc.baseMVA = 50;", "mpc.baseMVA = '50';", "two.m:4: found no number mpc.baseMVA"),
        ("    7 1 25", "    7.5 1 25", "two.m:7: found 7.5 in column 1 of mpc.bus, expected a whole number"),
        ("[1 7 0.01", "[1 8 0.01", "case two: branch row 0: found an unknown to bus, expected a bus in service"),
        ("    7 1 25", "    1 1 25", "case two: bus 1: found twice, expected each number once"),
        ("0.01 0.1 0.02", "0 0 0.02", "case two: branch row 0: found r = x = 0"),
        ("1.05 0.95", "0.95 1.05", "case two: bus 7: found v_min > v_max"),
        ("1 200 0]", "1 0 200]", "case two: generator row 0: found p_min > p_max"),
        ("7 1 25", "7 1 NaN", "case two: bus 7: found p_d not finite"),
        ("0 0 1 -30 30", "0 0 0 -30 30", "case two: bus 7: not connected to bus 1, expected a connected network"),
        ("-30 30", "30 -30", "case two: branch row 0: found angmin > angmax"),
        ("40 0 0 0 0", "40 0 0 -1 0", "case two: branch row 0: found a tap ratio <= 0"),
    ],
)
def test_a_wrong_file_is_one_line_saying_where_what_was_found_and_what_was_expected(old, new, said):
    assert old in TWO_BUSES
    with pytest.raises(InputError) as error:
        read(TWO_BUSES.replace(old, new))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_elements_out_of_service_are_left_out_and_the_rest_keep_their_row_of_the_file():
    text = TWO_BUSES.replace("mpc.gen = [", "mpc.gen = [7 0 0 1 0 1 100 0 9 0; ").replace(
        "mpc.gencost = [", "mpc.gencost = [2 0 0 3 9 9 9; "
    )
    text = text.replace("mpc.branch = [", "mpc.branch = [1 7 1 1 0 0 0 0 0 0 0 -30 30; ")
    text = text.replace("    7 1 25", "    9 4 99 0 0 0 1 1 0 1 1 1.1 .9; 7 1 25")  # bus 9: isolated
    case = read(text)
    assert case.generators.rows.tolist() == case.lines.rows.tolist() == [1]
    assert case.generators.cost_1[0] == 250.0
    assert case.buses.numbers.tolist() == [1, 7]


@pytest.mark.parametrize(
    ("limits", "low", "high"),
    [("0 0", -np.inf, np.inf), ("-360 360", -np.inf, np.inf), ("0 30", 0, np.pi / 6), ("-360 30", -np.inf, np.pi / 6)],
)
def test_angle_limits_of_zero_both_or_of_full_turns_are_no_limits(limits, low, high):
    line = read(TWO_BUSES.replace("-30 30", limits)).lines
    assert (line.angle_min[0], line.angle_max[0]) == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("name", "buses", "generators", "lines"),
    [
        ("case5", 5, 5, 6),
        ("case14", 14, 5, 20),
        ("case30", 30, 6, 41),
        ("case39", 39, 10, 46),
        ("case57", 57, 7, 80),
        ("case118", 118, 54, 186),
        ("case300", 300, 69, 411),
    ],
)
def test_built_in_cases_have_the_published_sizes_and_keep_their_licence_header(name, buses, generators, lines):
    case = load(name)
    assert (len(case.buses), len(case.generators), len(case.lines)) == (buses, generators, lines)
    from importlib import resources

    text = (resources.files("hushgrid.grid_cases") / BUILT_IN[name]).read_text()
    assert "Creative Commons Attribution 4.0" in text
    assert "v23.07" in text


def test_an_unknown_name_lists_the_known_ones_and_a_missing_file_is_named():
    with pytest.raises(InputError, match=r"found 'case15', expected one of case5, case14, .*, case300"):
        load("case15")
    with pytest.raises(InputError, match=re.escape("'no/such.m': No such file")):
        load("no/such.m")
    with pytest.raises(InputError):
        load("a\0b.m")


def test_a_path_gives_the_same_numbers_as_the_built_in_name(tmp_path):
    from importlib import resources

    file = tmp_path / "case14.m"
    file.write_bytes((resources.files("hushgrid.grid_cases") / BUILT_IN["case14"]).read_bytes())
    assert load(file).public_digest() == load(str(file)).public_digest() == load("case14").public_digest()


WORDS = [
    "mpc.",
    "bus",
    "gen",
    "= [",
    "]",
    ";",
    "\n",
    "1 ",
    "-3e5 ",
    "Inf ",
    "NaN ",
    "{",
    "}",
    "'",
    '"',
    "%",
    "...",
    "(",
]


@examples.of(300, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.one_of(
        st.binary(max_size=300),
        st.lists(st.sampled_from(WORDS), max_size=60).map(lambda words: "".join(words).encode()),
        st.tuples(st.integers(0, len(TWO_BUSES)), st.integers(0, 40), st.binary(max_size=20)).map(
            lambda cut: TWO_BUSES[: cut[0]].encode() + cut[2] + TWO_BUSES[cut[0] + cut[1] :].encode()
        ),
        st.tuples(st.sampled_from(re.findall(r"(?<= )[\d.]+", TWO_BUSES)), st.floats()).map(
            lambda swap: TWO_BUSES.replace(swap[0], repr(swap[1]), 1).encode()
        ),
    )
)
def test_arbitrary_bytes_give_a_case_or_an_input_error_and_nothing_else(content):
    with contextlib.suppress(InputError):
        assert parse(content, "bytes").public_digest()


# --- A case is checked once, read-only, and its public part does not know the loads ---

CASE = load("case14")


def test_the_public_digest_ignores_the_loads_and_sees_everything_else():
    buses = CASE.buses
    assert CASE.public_digest() == CASE.without_loads().public_digest()
    assert CASE.public_digest() == replace(CASE, buses=replace(buses, p_d=buses.p_d * 2)).public_digest()
    changed = [
        replace(CASE, base_mva=99.0),
        replace(CASE, buses=replace(buses, g_s=buses.g_s + 0.001)),
        replace(CASE, lines=replace(CASE.lines, rate=np.nextafter(CASE.lines.rate, 99))),
        replace(CASE, generators=replace(CASE.generators, cost_1=CASE.generators.cost_1 + 1e-9)),
    ]
    assert len({CASE.public_digest(), *(case.public_digest() for case in changed)}) == 1 + len(changed)


def test_a_case_without_loads_has_zeros_and_the_same_network():
    public = CASE.without_loads()
    assert not public.buses.p_d.any()
    assert not public.buses.q_d.any()
    assert public.lines is CASE.lines


def test_arrays_are_read_only_and_own_their_numbers():
    with pytest.raises(ValueError, match="read-only"):
        CASE.buses.p_d[0] = 1.0
    mine = CASE.buses.p_d.copy()
    case = replace(CASE, buses=replace(CASE.buses, p_d=mine))
    mine[:] = 7.0
    assert case.buses.p_d.tolist() == CASE.buses.p_d.tolist()


def test_loads_are_p_then_q_of_the_buses_in_the_order_given():
    d = loads(CASE, (14, 2))
    assert d.tolist() == pytest.approx([0.149, 0.217, 0.05, 0.127])


def test_columns_of_unequal_length_are_refused():
    with pytest.raises(InputError, match=r"Buses: found columns of lengths \[13, 14\]"):
        replace(CASE.buses, p_d=CASE.buses.p_d[:-1])


def test_a_generator_at_an_unknown_bus_is_named_by_its_row():
    with pytest.raises(InputError, match="case case14: generator row 4: found an unknown bus"):
        replace(CASE, generators=replace(CASE.generators, bus=[1, 2, 3, 6, 99]))


# --- The sparse matrix of a zone's device against scipy's, bit for bit ---

DICE = np.random.default_rng(4)


def drawn(rows, columns, density=0.4):
    """Entries in no order, one of them zero, and some rows and columns empty."""
    at = np.flatnonzero(DICE.random(rows * columns) < density)
    DICE.shuffle(at)
    data = DICE.normal(size=at.size)
    data[:1] = 0.0
    return (rows, columns), at // columns, at % columns, data


@pytest.mark.parametrize("shape", [(30, 17), (17, 30), (1, 5), (5, 1), (200, 90)])
def test_products_are_those_of_scipy_bit_for_bit(shape):
    (m, n), rows, columns, data = drawn(*shape)
    ours, theirs = (
        Matrix.from_entries((m, n), rows, columns, data),
        sparse.csr_array((data, (rows, columns)), shape=shape),
    )
    theirs.sort_indices()
    for _ in range(5):
        x, y = DICE.normal(size=n), DICE.normal(size=m)
        assert (ours @ x).tobytes() == (theirs @ x).tobytes() == (sparse.csc_array(theirs) @ x).tobytes()
        assert (ours.T @ y).tobytes() == (theirs.T @ y).tobytes()
    assert ours.gram().tobytes() == (theirs @ theirs.T).toarray().tobytes()
    assert ours.toarray().tobytes() == theirs.toarray().tobytes()
    assert (ours.scipy() != theirs).nnz == 0


def test_an_entry_that_is_zero_stays_an_entry_and_a_matrix_may_have_none():
    (m, n), rows, columns, data = drawn(6, 6)
    assert Matrix.from_entries((m, n), rows, columns, data).data.size == data.size
    none = np.zeros(0, np.int64)
    empty = Matrix.from_entries((3, 2), none, none, np.zeros(0))
    assert (empty @ np.ones(2)).tolist() == [0.0] * 3
    assert (empty @ np.ones(2)).dtype == empty.gram().dtype == np.float64
    assert empty.T.shape == (2, 3)


@pytest.mark.parametrize(
    ("indices", "indptr"),
    [([0, 2], [0, 1, 2]), ([0, -1], [0, 1, 2]), ([1, 0], [0, 2, 2]), ([0, 0], [0, 2, 2]), ([0, 1], [0, 1]),
     ([0, 1], [0, 2, 1]), ([0, 1], [1, 1, 2]), ([0, 1], [0, 1, 3])],
)  # fmt: skip
def test_arrays_that_do_not_fit_together_are_refused(indices, indptr):
    with pytest.raises(ValueError, match=r"begin|rows"):
        Matrix(np.ones(2), np.array(indices), np.array(indptr), (2, 2))
