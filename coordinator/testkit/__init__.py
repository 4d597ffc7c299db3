"""A coordinator in the process of a test, and what it can be made to suffer."""
