"""The mistakes that `make mutations` makes are still ones that can be made."""

import pytest

from tests.mutations import MUTATIONS, ROOT, Mutation, mutated


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_what_it_changes_stands_there_once_and_its_mirrors_are_there(mutation: Mutation) -> None:
    text = (ROOT / mutation.file).read_text()
    assert mutated(text, mutation) != text
    assert mutation.mirrors
    assert all((ROOT / "tests" / mirror).is_file() for mirror in mutation.mirrors)


def test_one_whose_text_is_gone_or_stands_there_twice_is_an_error() -> None:
    for text in ("", MUTATIONS[0].old * 2):
        with pytest.raises(ValueError, match="expected once"):
            mutated(text, MUTATIONS[0])
