"""A broker that cannot be had is said in one line."""

import socket
import sys

import pytest

from hushgrid.broker.servers import choose as brokers
from hushgrid.broker.servers import embedded
from hushgrid.kernels.errors import InputError, Stopped


def test_a_broker_that_is_not_there_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(brokers, "REACH_S", 0.2)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"mqtt://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(Stopped, match=rf"^broker {url}: Connection refused \(tried for 0.2 s\)$") as caught:
            brokers.start(url, tmp_path)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("choice", ["", "rabbit", "http://h", "mqtt://"])
def test_a_choice_that_is_none_is_an_input_error(choice, tmp_path):
    with pytest.raises(InputError, match="expected"):
        brokers.start(choice, tmp_path)


def test_a_missing_amqtt_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "amqtt.broker", None)
    with pytest.raises(InputError, match=r"hushgrid\[laptop\]"):
        embedded.serve()
