"""The web server of `hushgrid watch`: what it answers, what it refuses, and that a name is text wherever it stands."""

import base64
import http.client
import json
import re
import socket
from contextlib import ExitStack
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from hushgrid.broker.watch.model import Model
from hushgrid.broker.watch.server import TYPES, Server, Site, static
from hushgrid.kernels.errors import InputError
from hushgrid.node import status, views
from hushgrid.node.status import Interval
from hushgrid.node.transport.link import Message
from tests.support.daemons.simulated_fleet import answer_view, birth, run_view
from tests.support.status import PLAIN

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def stack():
    with ExitStack() as ended:
        yield ended


@pytest.fixture
def model():
    model = Model("demo", "mqtt://broker:1883")
    model.link(True)
    topics = model.topics
    ended = Interval(number=4, outcome="missed", cause="absent", at=PLAIN.at, counts={"answer": 3, "absent": 1})
    for topic, payload in (
        (topics.state("z1"), birth(version=HOSTILE)),
        (topics.status("z1"), status.encode(replace(PLAIN, version=HOSTILE, epsilon=10.0, epsilon_left=1.0))),
        (topics.status(HOSTILE), b"{}"),
        (topics.status("coordinator"), status.encode(replace(PLAIN, node="coordinator", interval=ended))),
        (topics.run(), views.encode(run_view())),
        (topics.answer(), views.encode(answer_view(columns=(HOSTILE,), table=((HOSTILE,),)))),
    ):
        model.take(Message(topic, payload, False))
    return model


def serve(stack, **site):
    server = Server("127.0.0.1", 0, Site(hosts=frozenset({"127.0.0.1", "localhost"}), **site))
    server.start()
    stack.callback(server.stop)
    return server


@pytest.fixture
def server(model, stack):
    return serve(stack, model=model)


def ask(server, path="/", method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer


def event(server, path):
    """The first event of a stream."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as sock, sock.makefile("rb") as lines:
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return json.loads(next(line for line in lines if line.startswith(b"data: "))[6:])


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[::2]:80", "evil@127.0.0.1"])
def test_who_asks_by_a_foreign_name_is_refused(server, host):
    assert ask(server, Host=host)[0] == 421


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9", "LOCALHOST:80"])
def test_this_machine_by_any_of_its_names_is_answered(server, host):
    assert ask(server, Host=host)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "BREW"])
def test_nothing_but_reading_is_possible(server, method):
    assert ask(server, method=method)[0] in (405, 501)


@pytest.mark.parametrize(
    "path",
    ["/x", "/static/", "/static/../model.py", "/static/..%2fmodel.py", "/device", "/events/device", "/run/"],
)
def test_an_unknown_path_is_not_found_and_its_text_does_not_come_back(server, path):
    assert ask(server, path)[:2] == (404, "404 Not Found\n")


@pytest.mark.parametrize("path", ["/", "/run", "/metrics", "/static/fleet.js", "/x"])
def test_every_answer_forbids_scripts_of_its_own_and_what_others_would_load(server, path):
    headers = ask(server, path)[2].headers
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy == {
        "default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "connect-src": "'self'",
        "img-src": "'self' data:", "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'",
    }  # fmt: skip
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Server"] == "hushgrid"


class Elements(HTMLParser):
    """What a page is made of."""

    def __init__(self, page):
        super().__init__()
        self.names, self.loads, self.inline = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        self.loads += [value for key, value in attrs if key in ("src", "href")]
        self.inline += [key for key, _ in attrs if key == "style" or key.startswith("on")]


@pytest.mark.parametrize("path", ["/", "/run"])
def test_a_page_is_whole_without_a_script_and_what_is_hostile_in_it_is_text(server, path):
    page = ask(server, path)[1]
    made = Elements(page)
    assert "img" not in made.names
    assert made.inline == []
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert ('<td class="now">idle' in page) == (path == "/")


@pytest.mark.parametrize("path", ["/", "/run"])
def test_a_page_loads_only_what_the_server_has(server, path):
    for place in Elements(ask(server, path)[1]).loads:
        assert ask(server, place)[0] == 200, place
        assert place.startswith("/")


def test_the_static_files_are_all_served_with_their_types_and_the_library_with_its_licence():
    files = static()
    assert {name.rpartition(".")[2] for name in files} == set(TYPES)
    assert b"Leon Sorokin" in files["LICENSE-uplot.txt"][0]
    own = [content.decode() for name, (content, _) in files.items() if name.endswith(".js") and "uplot" not in name]
    assert len(own) == 4
    for script in own:
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|https?://(?!www\.w3)", script
        )


def test_the_events_of_a_page_begin_with_all_of_it(server):
    view = event(server, "/events/fleet")
    assert [row["node"] for row in view["rows"]] == ["coordinator", "z1"]
    assert view["rows"][1]["flags"] == ["budget"]
    assert view["broker"]["strangers"] == [HOSTILE]
    assert view["runs"][-1]["cause"] == "absent"
    run = event(server, "/events/run")
    assert run["run"]["holder"] == "z3"
    assert set(run["graph"]["nodes"]) == {"z1", "z2", "z3", "z4", "z5"}
    assert ["Token at", "z3"] in run["facts"]


def test_a_run_without_a_graph_is_drawn_as_a_star_and_a_large_one_is_counted(model, server):
    model.take(Message(model.topics.run(), views.encode(run_view(edges=(), edges_in_all=0)), False))
    model.take(Message(model.topics.answer(), views.encode(answer_view(tie_flows={})), False))
    assert event(server, "/events/run")["graph"]["edges"] == [["coordinator", "z1"]]
    edges = tuple((f"a{no}", f"a{no + 1}") for no in range(400))
    model.take(Message(model.topics.run(), views.encode(run_view(edges=edges)), False))
    assert event(server, "/events/run")["graph"] == {"many": 401}


def test_the_zones_of_a_star_are_drawn_by_the_flows_between_them(model, server):
    for name in ("z-2", "z1-z"):
        model.take(Message(model.topics.state(name), birth(), False))
    model.take(Message(model.topics.run(), views.encode(run_view(edges=(), edges_in_all=0)), False))
    flows = {"z1-z-2": 3.5, "z1-z-z1": 1.0, "x-y": 1.0}
    model.take(Message(model.topics.answer(), views.encode(answer_view(tie_flows=flows)), False))
    assert event(server, "/events/run")["graph"]["edges"] == [["z1", "z-2"], ["z1-z", "z1"]]


def test_the_figures_are_prometheus_text(server):
    families = {family.name: family for family in text_string_to_metric_families(ask(server, "/metrics")[1])}
    ended = {s.labels["outcome"] + s.labels["cause"]: s.value for s in families["hushgrid_intervals"].samples}
    assert ended == {"answer": 3, "missedabsent": 1}
    assert families["hushgrid_intervals"].type == "counter"
    assert families["hushgrid_broker_up"].samples[0].value == 1
    assert 190 < families["hushgrid_setpoints_age_seconds"].samples[0].value < 400
    assert {s.labels["node"]: s.value for s in families["hushgrid_epsilon"].samples} == {"z1": 10.0}


def test_a_moment_that_no_calendar_has_is_no_defect(model, server):
    bad = replace(PLAIN, at="2026-99-99T99:99:99Z", due="2026-13-40T00:00:00Z", window_s=1e300)
    model.take(Message(model.topics.status("z1"), status.encode(bad), False))
    assert [ask(server, path)[0] for path in ("/", "/metrics")] == [200, 200]


def test_with_a_login_nothing_is_shown_without_it(model, stack, monkeypatch):
    monkeypatch.setattr("hushgrid.broker.watch.server.REFUSED_S", 0.0)
    server = serve(stack, model=model, login="watch:correct horse battery")

    def by(login):
        return ask(server, Authorization="Basic " + base64.b64encode(login.encode()).decode())[0]

    assert [by("watch:wrong"), by("watch:correct horse battery"), by("")] == [401, 200, 401]
    for header in ("Basic !!!", "Bearer x", ""):
        code, _, answer = ask(server, "/metrics", Authorization=header)
        assert (code, answer.headers["WWW-Authenticate"][:5]) == (401, "Basic")
    assert ask(server, "/static/fleet.js")[0] == 401


def test_a_port_that_is_taken_is_one_line(server):
    with pytest.raises(InputError, match="Address already in use, expected an address that is free"):
        Server("127.0.0.1", server.server_port, Site())
