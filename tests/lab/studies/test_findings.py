"""`hushgrid study findings`: claims that do not hold."""

import pytest

from hushgrid.lab.studies.papers import findings, findings_shown


def test_of_many_gaussian_answers_theorem_4_6_says_less_than_they_cost():
    table, _ = findings.totals((1, 5000))
    (_, said, true), (_, said_of_many, true_of_many) = table.rows
    assert said > true
    assert (said_of_many, true_of_many) == (pytest.approx(70.1, rel=1e-3), pytest.approx(151.6, rel=1e-3))


@pytest.mark.runs
def test_dpp2s_first_gradient_is_noise_and_its_later_ones_are_told():
    table, _ = findings.decayed(60)
    error = {row[0]: row[1] for row in table.rows}
    assert error[1] > 1.0
    assert error[60] < 0.9**50 * error[1]  # the noise is r^59 of the first


def test_theorem_3_lacks_the_first_rounds_share():
    table, _ = findings.noise_that_decays((2, 20))
    assert [true - said for _, said, true in table.rows] == [pytest.approx(1.0, abs=1e-2)] * 2


@pytest.mark.runs
def test_mr_admm_with_penalties_of_nodes_stops_where_those_of_edges_go_on():
    table, _ = findings.wrong_limit(40)
    by_node, by_edge = ({"half": row[1], "end": row[2]} for row in table.rows)
    assert by_node["end"] > 0.015
    assert by_edge["end"] < 0.5 * by_edge["half"]


@pytest.mark.runs
def test_two_rounds_without_noise_tell_all_loads_and_one_does_not():
    table, _ = findings_shown.loads_heard((1, 2), epsilons=())
    (_, _, none, *_), (_, _, all_, _, error) = table.rows
    assert (none, all_) == ("0 of 3", "3 of 3")
    assert error < 1e-3  # what the solver leaves, 1e-8, over the smallest singular value of the fit, some 7e-5


@pytest.mark.runs
def test_what_6_4_leaves_out_is_as_much_again_for_two_classes_and_shows_on_nodes_of_one_class():
    table, _ = findings_shown.added_record((2, 10))
    assert [row[1] for row in table.rows] == [pytest.approx(2.0, rel=1e-9), pytest.approx(1.491, rel=1e-3)]
    assert all(row[3] > 1.3 > 1.0 > row[2] for row in table.rows)


def test_one_load_moves_the_gradient_by_its_row_of_A():
    table, _ = findings_shown.forgotten_row(("case14",))
    assert table.rows[0][2:] == (pytest.approx(5.0), pytest.approx(5**0.5))


@pytest.mark.runs
def test_the_final_x_takes_the_noise_off_the_last_gradient():
    table, _ = findings_shown.final_x((3,))
    assert table.rows[0][1] > 1.0
    assert table.rows[0][2] < 1e-12


def test_dpp2s_own_experiment_costs_5e24():
    table, _ = findings_shown.own_experiment((0.9,))
    assert table.rows[0][3] == pytest.approx(5.29e24, rel=1e-2)


@pytest.mark.runs
def test_a_stored_gradient_names_the_data_set_every_time():
    table, _ = findings_shown.recycled_gradient((3,), games=12)
    (_, stored, public), (_, _, gate) = table.rows
    assert stored == 12
    assert max(public, gate) < 12


def test_the_sharper_bound_is_attained_and_2_8_times_below_the_papers():
    table, _ = findings_shown.loose_bound((1.0, 10.0))
    for _, paper, ours, attained in table.rows:
        assert attained == pytest.approx(ours, rel=1e-6)
        assert paper > 2.8 * ours


def test_corollary_1_promises_1_where_nearly_k_is_attained():
    table, _ = findings.corollary_1((8,))
    assert table.rows[0][2] >= 7.9
