"""Requests to a shard and their results: one type per API, for all versions of the wire.

Handlers build requests and render results. The core knows no version numbers. If a version changes
behaviour, the request names the behaviour ("requires_known_member_id") and not the version. The
declarations of a request stand below its fields (``declarations``).
"""
