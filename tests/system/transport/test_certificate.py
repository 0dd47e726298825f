"""The end of a certificate, read from its file, is the one that OpenSSL reads; and any other file is one line."""

import shutil
import ssl
import subprocess
import time
from contextlib import suppress
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.node.transport.certificate import BEGIN, DAY_S, END, days_left, not_after
from hushgrid.node.transport.mqtt import MqttLink

KINDS = {"ec": ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"], "rsa": ["RSA", "-pkeyopt", "rsa_keygen_bits:2048"]}


def made(place, days, kind="ec", name="z1"):
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, cert = place / "key", place / "crt"
    subprocess.run(["openssl", "genpkey", "-algorithm", *KINDS[kind], "-out", key], check=True, capture_output=True)
    subprocess.run(
        ["openssl", "req", "-new", "-x509", "-key", key, "-subj", f"/CN={name}", "-days", str(days), "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert


def said(cert):
    """By openssl: notAfter=Nov 22 15:00:00 2026 GMT"""
    done = subprocess.run(
        ["openssl", "x509", "-in", cert, "-noout", "-enddate"], check=True, capture_output=True, text=True
    )
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(done.stdout.strip().partition("=")[2]), UTC)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("days", [1, 825, 12000, 30000])  # two-digit years end in 2049
def test_the_end_is_openssls(tmp_path, days, kind):
    cert = made(tmp_path, days, kind, "a" * 60)
    assert not_after(cert) == said(cert)
    assert days_left(cert) == days - 1


def test_a_certificate_that_has_ended_has_negative_days(tmp_path):
    cert = made(tmp_path, 10)
    ends = said(cert).timestamp()
    assert days_left(cert, ends) == 0
    assert days_left(cert, ends + 1) == -1
    assert days_left(cert, ends + 3 * DAY_S) == -3


@pytest.mark.parametrize(
    "text", ["", "nothing", f"{BEGIN}\n{END}", f"{BEGIN}\nMIIB\n{END}", f"{BEGIN}\n////\n{END}", BEGIN]
)
def test_what_is_no_certificate_is_one_line(tmp_path, text):
    file = tmp_path / "z1.crt"
    file.write_text(text)
    with pytest.raises(InputError, match=r"z1.crt: found no certificate that can be read, expected PEM"):
        not_after(file)
    with pytest.raises(InputError, match=r"No such file or directory, expected a certificate"):
        not_after(tmp_path / "none.crt")


def test_a_certificate_cut_anywhere_raises_nothing_else(tmp_path):
    lines = made(tmp_path, 10).read_text().splitlines()
    der = ssl.PEM_cert_to_DER_cert("\n".join(lines) + "\n")
    for cut in range(len(der)):
        (tmp_path / "cut").write_text(ssl.DER_cert_to_PEM_cert(der[:cut]))
        with suppress(InputError):
            assert not_after(tmp_path / "cut").year > 2000


# --- A certificate that is replaced under a running device is the one that its next attempt to connect has ---

PATIENCE_S = 30.0


@pytest.mark.mosquitto
def test_a_device_whose_certificate_is_not_accepted_connects_once_it_is_replaced(
    start_mosquitto, certificates, tmp_path
):
    (tmp_path / "acl").write_text("pattern readwrite of/%u\n")
    broker = start_mosquitto(tls=certificates("broker"), acl=tmp_path / "acl")
    good, foreign = certificates("n1"), certificates("stranger")
    own = SimpleNamespace(ca=good.ca, cert=str(tmp_path / "crt"), key=str(tmp_path / "key"))
    for part in ("cert", "key"):
        shutil.copy(getattr(foreign, part), getattr(own, part))
    link = MqttLink(broker.url, "n1", tls=own)
    try:
        link.open()
        while not link.waiting:
            link.poll(0.1)
        shutil.copy(good.cert, own.cert)  # without its key it does not belong together, and is not taken
        for _ in range(10):
            link.poll(0.1)
        assert not link.connected
        shutil.copy(good.key, own.key)
        ends = time.monotonic() + PATIENCE_S
        while not link.connected and time.monotonic() < ends:
            link.poll(0.1)
        assert link.connected
    finally:
        link.close()
