"""Distribution cases of MATPOWER end with statements that change units: exactly these are carried out."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hushgrid.grid_cases.matpower import parse
from hushgrid.grid_cases.partition import partition
from hushgrid.kernels.errors import InputError
from tests.support import examples

# A feeder of four buses at 10 kV with ohm and kW. Base 5 MVA, so 1 p.u. is 20 ohm.
FEEDER = """function mpc = feeder
mpc.version = '2';
mpc.baseMVA = 5;
mpc.bus = [  %% (Pd and Qd in kW and kVAr)
    1 3 0   0   0 0 1 1 0 10 1 1   1;
    2 1 200 80  0 0 1 1 0 10 1 1.1 0.9;
    3 1 50  -20 0 0 1 1 0 10 1 1.1 0.9;
    4 1 120 60  0 0 1 1 0 10 1 1.1 0.9;
];
mpc.gen = [1 0 0 10 -10 1 100 1 10 0];
mpc.branch = [  %% (r and x in ohm)
    1 2 0.5  0.25 0 0 0 0 0 0 1 -360 360;
    2 3 0.25 0.75 0 0 0 0 0 0 1 -360 360;
    2 4 1    0.5  0 0 0 0 0 0 1 -360 360;
    3 4 2    2    0 0 0 0 0 0 0 -360 360;
];
mpc.gencost = [2 0 0 3 0 20 0];
"""
UNITS = """
%% convert branch impedances from Ohms to p.u.
[PQ, PV, REF, NONE, BUS_I, BUS_TYPE, PD, QD, GS, BS, BUS_AREA, VM, ...
    VA, BASE_KV, ZONE, VMAX, VMIN, LAM_P, LAM_Q, MU_VMAX, MU_VMIN] = idx_bus;
[F_BUS, T_BUS, BR_R, BR_X, BR_B, RATE_A, RATE_B, RATE_C, ...
    TAP, SHIFT, BR_STATUS, PF, QF, PT, QT, MU_SF, MU_ST, ...
    ANGMIN, ANGMAX, MU_ANGMIN, MU_ANGMAX] = idx_brch;
Vbase = mpc.bus(1, BASE_KV) * 1e3;      %% in Volts
Sbase = mpc.baseMVA * 1e6;              %% in VA
mpc.branch(:, [BR_R BR_X]) = mpc.branch(:, [BR_R BR_X]) / (Vbase^2 / Sbase);

%% convert loads from kW to MW
mpc.bus(:, [PD, QD]) = mpc.bus(:, [PD, QD]) / 1e3;
"""


def read(text: str):
    return parse(text.encode(), "feeder", "feeder.m")


def test_ohms_and_kilowatts_of_a_distribution_case_become_per_unit():
    case = read(FEEDER + UNITS)
    assert case.lines.r.tolist() == pytest.approx([0.025, 0.0125, 0.05])  # 0.5, 0.25 and 1 ohm of 20
    assert case.lines.x.tolist() == pytest.approx([0.0125, 0.0375, 0.025])
    assert case.buses.p_d.tolist() == pytest.approx([0, 0.04, 0.01, 0.024])  # 200, 50 and 120 kW of 5 MW
    assert case.buses.q_d.tolist() == pytest.approx([0, 0.016, -0.004, 0.012])
    assert case.buses.v_max.tolist() == [1, 1.1, 1.1, 1.1]
    assert list(partition(case, 2)) == ["z1", "z2"]


def test_without_the_statements_the_same_numbers_are_megawatts_and_per_unit():
    case = read(FEEDER)
    assert case.lines.r.tolist() == [0.5, 0.25, 1]
    assert case.buses.p_d.tolist() == [0, 40, 10, 24]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(Vbase^2 / Sbase)", "(Vbase*Vbase/Sbase)"),
        ("(Vbase^2 / Sbase)", "Vbase / Vbase * Sbase"),
        ("(Vbase^2 / Sbase)", "((10 * 10^3)^2/5E6)"),
        ("(Vbase^2 / Sbase)", "(25 - 5)"),
        ("[BR_R BR_X]", "[3, 4]"),
        ("/ 1e3;", "* 0.001"),
        ("/ 1e3;", "/1000, % a comment"),
        ("mpc", "grid"),
        ("PD", "p"),  # names stand for their place
        ("mpc.baseMVA = 5;", "mpc.baseMVA = 15/3;"),
        ("[PD, QD]) = mpc.bus(:, [PD, QD])", "[QD, PD]) = mpc.bus(:, [QD, PD])"),
    ],
)
def test_every_spelling_of_the_statements_gives_the_same_case(old, new):
    assert old in FEEDER + UNITS
    case, plain = read((FEEDER + UNITS).replace(old, new)), read(FEEDER + UNITS)
    assert case.lines.r.tolist() == pytest.approx(plain.lines.r.tolist(), rel=1e-15)
    assert case.buses.p_d.tolist() == pytest.approx(plain.buses.p_d.tolist(), rel=1e-15)
    assert case.buses.q_d.tolist() == pytest.approx(plain.buses.q_d.tolist(), rel=1e-15)


def test_loads_in_kva_take_a_power_factor():
    text = (
        UNITS + "pf = 0.85;\nmpc.bus(:, QD) = mpc.bus(:, PD) * sin(acos(pf));\nmpc.bus(:, PD) = mpc.bus(:, PD) * pf;\n"
    )
    case = read(FEEDER + text)
    assert case.buses.p_d[1] == pytest.approx(0.04 * 0.85)
    assert case.buses.q_d[1] == pytest.approx(0.04 * math.sqrt(1 - 0.85**2))


def test_statements_take_effect_in_the_order_of_the_file():
    twice = "mpc.bus(:, [PD, QD]) = mpc.bus(:, [PD, QD]) / 1e3;\n"
    assert read(FEEDER + UNITS + twice).buses.p_d[1] == pytest.approx(0.04e-3)
    assert read(FEEDER + UNITS + "Vbase = 1;\n").lines.r[0] == pytest.approx(0.025)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("mpc.bus(2, PD) = mpc.bus(2, PD) / 2;", "found '2', expected mpc.bus(:, COLUMNS)"),
        ("mpc.bus(:, PD) = mpc.bus(:, PD) + 1;", "found '+', expected '*' or '/' and a number"),
        ("mpc.bus(:, PD) = mpc.bus(:, PD);", "found ';', expected '*' or '/' and a number"),
        ("mpc.bus(:, PD) = 2 * mpc.bus(:, PD);", "found '2', expected columns of mpc.bus themselves"),
        ("mpc.bus(:, PD) = mpc.branch(:, BR_R) * 2;", "found 'branch', expected columns of mpc.bus themselves"),
        ("mpc.bus(:, [PD QD]) = mpc.bus(:, PD) * 2;", "found '(', expected as many columns on both sides, 2"),
        ("mpc.bus(:, [PD PD]) = mpc.bus(:, [PD QD]) * 2;", "expected each column once"),
        ("mpc.bus(:, 14) = mpc.bus(:, 14) * 2;", "expected columns that the row of line 5 has"),
        ("mpc.bus(:, PD) = mpc.bus(:, PD) / 0;", "found '/', expected a divisor other than 0"),
        ("mpc.bus(:, PD) = mpc.bus(:, PD) * mpc.bus(:, QD);", "found ':', expected a row or a column"),
        ("mpc.bus(:, PD) = mpc.bus(:, PD) * Ubase;", "found 'Ubase', expected a number, a name that has a value"),
        ("mpc.bus(:, PD) = mpc.bus(:, PD) * mpc.gen(1, 2);", "found 'gen', expected mpc.baseMVA or one entry"),
        ("mpc.bus(:, PD) = mpc.bus(:, PD) * mpc.bus(9, 1);", "found 'bus', expected a row and a column of mpc.bus"),
        ("mpc.bus(:, PD) = mpc.bus(:, PD) * rand(1);", "found 'rand', expected a number, a name"),
        ("mpc.bus(:, PD) = mpc.bus(:, PD) * 1e3 + 1;", "found '+', expected the end of the statement"),
        ("mpc.gen(:, 2) = mpc.gen(:, 2) / 1e3;", "found '(', expected '=' after mpc.gen"),
        ("mpc.bus(1:2, PD) = mpc.bus(1:2, PD) / 1e3;", "found '1', expected mpc.bus(:, COLUMNS)"),
        ("x = acos(2);", "found 'acos', expected an expression with a finite value"),
        ("x = 1 / 0;", "found '1', expected an expression with a finite value"),
        ("x = [1 2 3];", "found '[', expected a number, a name"),
        ("x = " + "(" * 30 + "1" + ")" * 30 + ";", "expected at most 20 brackets within brackets"),
        ("[A, B] = idx_gen;", "found 'idx_gen', expected one of idx_bus, idx_brch"),
        ("[A, B] = deal(1, 2);", "found 'deal', expected one of idx_bus, idx_brch"),
        ("[1 2];", "found '[', expected mpc.FIELD"),
        ("[" + "A " * 22 + "] = idx_bus;", "with at most as many names as it returns"),
        ("if x\n", "found 'if', expected mpc.FIELD"),
        ("for k = 1:3\n", "found 'for', expected mpc.FIELD"),
        ("define_constants;", "found 'define_constants', expected mpc.FIELD"),
        ("delete('x')", "found 'delete', expected mpc.FIELD"),
    ],
)
def test_every_other_statement_is_refused_in_one_line(statement, said):
    with pytest.raises(InputError) as error:
        read(FEEDER + UNITS + statement)
    line = (FEEDER + UNITS).count("\n") + 1
    assert said in str(error.value)
    assert str(error.value).startswith(f"feeder.m:{line}: found ")
    assert "\n" not in str(error.value)


def test_columns_cannot_be_converted_before_they_are_there():
    with pytest.raises(InputError, match=r"feeder\.m:2: found .* expected a matrix mpc\.bus before"):
        read("[A, B, C, D, E, F, PD] = idx_bus;\nmpc.bus(:, PD) = mpc.bus(:, PD) / 2;\n" + FEEDER)


@pytest.mark.runs
@examples.of(300)
@given(st.integers(0, len(UNITS)), st.integers(0, 12), st.text("()[]:,;=*/^+-.0123e PDQmpcbus\n", max_size=8))
def test_damaged_statements_give_a_case_or_an_input_error_and_nothing_else(at, length, put):
    with contextlib.suppress(InputError):
        read(FEEDER + UNITS[:at] + put + UNITS[at + length :])
