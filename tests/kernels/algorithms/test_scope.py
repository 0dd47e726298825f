"""How much an author of an algorithm has to know: the names in scope of a subclass of each pattern."""

import pytest

from hushgrid.broker.report.claims import CLAIMS
from hushgrid.kernels.algorithms.base import Rounds, Star, Walk
from hushgrid.kernels.algorithms.registry import ALGORITHMS, variants
from hushgrid.lab.examples import EXAMPLES, examples
from hushgrid.lab.planning.choices import TUNED, tuned_key
from hushgrid.lab.studies.lines import RACES, races


def in_scope(kind):
    """Public attributes, fields and methods that a subclass sees."""
    classes = [c for c in kind.__mro__ if c.__module__.startswith("hushgrid")]
    return {name for c in classes for name in (*vars(c), *c.__annotations__) if not name.startswith("_")}


@pytest.mark.parametrize(("kind", "most"), [(Star, 31), (Walk, 27), (Rounds, 30)])
def test_an_algorithm_has_few_names_in_scope(kind, most):
    assert len(in_scope(kind)) <= most, sorted(in_scope(kind))


@pytest.mark.parametrize("table", [CLAIMS, EXAMPLES, RACES, TUNED])
def test_what_a_reader_says_of_algorithms_is_of_algorithms_that_there_are(table):
    assert set(table) <= set(ALGORITHMS)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_has_an_example_of_each_variant_a_line_in_the_league_and_a_key_to_tune_or_none(name):
    kind = ALGORITHMS[name]
    assert all(examples(kind)[variant] for variant in variants(kind))
    assert all(race.title and race.grid for race in races(kind))
    assert tuned_key(kind) in {"", *kind.__struct_fields__}
