"""A coordinator in the process of a test, and the faults that a test can inject."""
