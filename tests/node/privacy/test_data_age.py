"""How old a data version is: time since it was declared, and nothing about the data."""

from hushgrid.node.privacy.ledger import Ledger


class Clock:
    now = 5.0

    def __call__(self):
        return self.now


def opened(path, clock):
    return Ledger(path, "z1", durable=False, clock=clock)


def test_it_counts_running_time_since_the_version_was_declared_over_restarts(tmp_path):
    clock = Clock()
    ledger = opened(tmp_path / "z1.ledger", clock)
    assert ledger.data_age == 0.0
    clock.now += 100.0
    assert ledger.data_age == 100.0
    ledger.new_data()
    clock.now += 30.0
    assert ledger.data_age == 30.0
    assert not ledger.saw_data("a")
    assert ledger.data_age == 30.0
    ledger.close()
    clock.now += 1000.0  # it was off
    again = opened(tmp_path / "z1.ledger", clock)
    assert again.data_age == 30.0
    assert again.saw_data("b")
    assert again.data_age == 0.0
    again.close()


def test_of_a_version_that_an_earlier_release_has_declared_it_is_unknown(tmp_path):
    ledger = opened(tmp_path / "z1.ledger", Clock())
    ledger.new_data()
    with ledger.tables.transaction():
        ledger.tables.db.execute("DELETE FROM meta WHERE key = 'declared'")
    ledger.close()
    again = opened(tmp_path / "z1.ledger", Clock())
    assert (again.data_version, again.data_age) == (2, None)
    again.close()
