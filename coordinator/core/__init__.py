"""The state machine of groups and offsets: pure, deterministic, no I/O, no clock, no await."""
