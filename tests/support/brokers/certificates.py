"""Certificates for tests, made with openssl: an authority, a server on 127.0.0.1 and a client, in PEM files."""

import subprocess
from pathlib import Path

CLIENT_NAME = "carol"
"""The common name in the client's certificate."""


def make_certificates(folder: Path) -> None:
    """Write `authority.pem`, `server.pem`, `client.pem` (key and chain each) and `stranger.pem` to the folder.

    `stranger.pem` is an authority that signed nothing.
    """
    for authority in ("authority", "stranger"):
        _openssl(folder, *_NEW_KEY, "-x509", "-subj", f"/CN={authority}", "-keyout", f"{authority}.key", "-out",
                 f"{authority}.pem")  # fmt: skip
    _signed(folder, "server", "localhost", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    _signed(folder, "client", CLIENT_NAME, "extendedKeyUsage=clientAuth")


_NEW_KEY = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")


def _signed(folder: Path, name: str, common_name: str, extension: str) -> None:
    signer = ("-x509", "-CA", "authority.pem", "-CAkey", "authority.key")
    _openssl(folder, *_NEW_KEY, *signer, "-subj", f"/CN={common_name}", "-addext", extension,
             "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", f"{name}.key",
             "-out", f"{name}.crt")  # fmt: skip
    pieces = (folder / f"{name}.key", folder / f"{name}.crt", folder / "authority.pem")
    (folder / f"{name}.pem").write_text("".join(piece.read_text() for piece in pieces))


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
