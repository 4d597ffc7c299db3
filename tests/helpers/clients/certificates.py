"""Certificates for servers and clients on the loopback address, made by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.helpers.clients.ecosystem import need


def make_certificates(folder: Path, names: str = "IP:127.0.0.1,DNS:localhost") -> None:
    """Write an authority's certificate into ``folder``, and the certificates and keys of a server
    and a client that it signed. They are valid for ``names``.
    """
    openssl = need("openssl", "openssl")
    new = "req -newkey rsa:2048 -nodes -sha256"
    steps = [f"{new} -x509 -days 2 -subj /CN=authority -keyout ca.key -out ca.pem"]
    for name in ("server", "client"):
        (folder / f"{name}.ext").write_text(f"subjectAltName={names}\n")
        steps += [
            f"{new} -subj /CN={name} -keyout {name}.key -out {name}.csr",
            f"x509 -req -days 2 -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial"
            f" -out {name}.crt -extfile {name}.ext",
        ]
    for step in steps:
        command = [openssl, *step.split()]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    both = (folder / "server.key").read_text() + (folder / "server.crt").read_text()
    (folder / "server.pem").write_text(both)
