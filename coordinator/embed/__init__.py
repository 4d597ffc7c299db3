"""A coordinator in a host's own process: what a host calls, holds and gets back."""
