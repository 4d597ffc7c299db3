"""The version of this distribution; ``pyproject.toml`` says the same, and a test compares them."""

from __future__ import annotations

CLI_CLIENT_ID = "groupkeeper-cli"
"""The client id of our command line. If a client with this id asks for the description of a group,
the answer also says what the group waits for.
"""

VERSION = "0.2.0.dev13"
