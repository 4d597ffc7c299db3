"""Handlers, one file for each API of Kafka. A handler reads a request of any version, passes it to
the coordinator, and writes the answer in the same version.
"""
