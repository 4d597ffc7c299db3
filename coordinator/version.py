"""The version of this distribution; ``pyproject.toml`` says the same, and a test compares them."""

from __future__ import annotations

CLI_CLIENT_ID = "groupkeeper-cli"
"""The client id of our command line. A description of a group for it also has what the group waits
for.
"""

VERSION = "0.2.0.dev12"
