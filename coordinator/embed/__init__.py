"""A coordinator in a host's own process: the classes and functions that a host uses."""
