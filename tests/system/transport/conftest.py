"""What tests of connections share."""

import subprocess
from types import SimpleNamespace

import pytest


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """An authority, its broker on loopback, its client n1, and a stranger's authority."""
    directory = tmp_path_factory.mktemp("tls")

    def openssl(*arguments):
        try:
            subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)
        except FileNotFoundError:
            pytest.skip("openssl is not installed")

    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    for name in ("ca", "stranger"):
        uses = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")  # Python 3.13 insists
        openssl(*new, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.crt", *uses)
    for name, more in (("broker", ("-addext", "subjectAltName=IP:127.0.0.1")), ("n1", ())):
        signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-addext", "basicConstraints=critical,CA:FALSE", *more)
        openssl(*new, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.crt", *signed)

    def of(name, ca="ca"):
        pair = (str(directory / f"{name}.crt"), str(directory / f"{name}.key")) if name else (None, None)
        return SimpleNamespace(ca=str(directory / f"{ca}.crt"), cert=pair[0], key=pair[1])

    return of
