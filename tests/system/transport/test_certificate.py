"""The end of a certificate, read from its file, is the one that OpenSSL reads; and any other file is one line."""

import shutil
import ssl
import subprocess
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from hushgrid.kernels.errors import InputError
from hushgrid.node.transport.certificate import BEGIN, DAY_S, END, days_left, not_after

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
