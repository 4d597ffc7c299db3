"""How our connections to the upstream cluster are secured: TLS and the login, from the settings."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Final

from groupkeeper.storage.base import StoreRefused
from groupkeeper.storage.password_file import read_password

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The SASL mechanisms of our own connections."""


class SecurityError(ValueError):
    """A setting is missing, or a file that it names cannot be used. The message is one line."""


@dataclass(frozen=True, slots=True)
class Login:
    """The user that our connections log in as."""

    mechanism: str
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Security:
    """How to connect to a broker. The default is plain text without a login."""

    tls: ssl.SSLContext | None = None
    login: Login | None = None


def read_security(  # noqa: PLR0913 - one for each setting
    *,
    tls: bool,
    ca_file: str = "",
    cert_file: str = "",
    key_file: str = "",
    mechanism: str = "",
    user: str = "",
    password_file: str = "",
) -> Security:
    """Return the security of our connections, from the settings and their files.

    An empty ``mechanism`` means no login. Without ``ca_file`` the authorities of the system are
    trusted. Raises SecurityError if a file cannot be used, or if the user of a login is missing.
    """
    login = None
    if mechanism:
        if not user or not password_file:
            raise SecurityError("upstream.sasl needs upstream.user and upstream.password_file")
        login = Login(mechanism, user, _password(password_file))
    return Security(_tls(ca_file, cert_file, key_file) if tls else None, login)


def _password(path: str) -> str:
    try:
        password = read_password(path, "upstream.password_file")
    except StoreRefused as error:
        raise SecurityError(str(error)) from error
    assert password is not None, "the path is not empty"
    return password


def _tls(ca_file: str, cert_file: str, key_file: str) -> ssl.SSLContext:
    setting = "upstream.ca_file"
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
        if cert_file:
            setting = "upstream.cert_file"
            context.load_cert_chain(cert_file, key_file or None, _no_passphrase)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise SecurityError(f"{setting}: cannot be used for TLS: {error}") from error
    return context


def _no_passphrase() -> str:
    """Refuse a key with a passphrase. Without this, OpenSSL would ask for one on the terminal."""
    raise ValueError("the key has a passphrase; store it without one, readable by the daemon only")
