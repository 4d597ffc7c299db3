"""Values of topic configs, and whether groupkeeper and Kafka accept them.

``tests/conformance/kafka`` checks this against Kafka.
"""

from __future__ import annotations

_RATIO = "min.cleanable.dirty.ratio"
_THROTTLED = "leader.replication.throttled.replicas"

TAKEN = [
    *[
        ("retention.ms", value)
        for value in ("-1", "+1", " 7 ", "\0\x1f7\0", "01", "9223372036854775807")
    ],
    *[("cleanup.policy", value) for value in ("", "delete", " delete ", "delete, compact")],
    *[(_RATIO, value) for value in ("0", "1.", ".5", "1e-1", "1e-99999999999", "-0.0", " 0.5 ")],
    *[("preallocate", value) for value in ("true", "FALSE", " true ")],
    *[("compression.type", value) for value in ("gzip", " zstd ", "producer")],
    *[("compression.gzip.level", value) for value in ("-1", "1", "9")],
    *[(_THROTTLED, value) for value in ("", "*", "0:1", "0:1, 1:1")],
    ("message.timestamp.type", "LogAppendTime"),
    ("retention.bytes", "-99"),
    ("segment.bytes", "1048576"),
    ("internal.segment.bytes", "1"),
    ("remote.storage.enable", "false"),
    ("remote.log.copy.disable", "true"),
]
"""Accepted by both."""
REFUSED = [
    ("retention.mss", "1"),
    ("", "1"),
    *[
        ("retention.ms", value)
        for value in ("", "x", "\u00a07", "1_0", "1e3", "1L", "0x10", "1.0", "\U0001d7cf")
    ],
    ("retention.ms", "9223372036854775808"),
    *[
        (_RATIO, value)
        for value in ("0,5", "", ".", "1e", "1e+", "nan", "1L", "1_0", "\uff11", "0" * 30_000 + "x")
    ],
    *[("preallocate", value) for value in ("1", "yes", "")],
    ("segment.bytes", "2147483648"),
    ("internal.segment.bytes", "x"),
    ("message.format.version", "3"),
    ("remote.storage.enable", " TRUE "),
]
"""Refused by both."""
OURS_ALONE = [
    *[("retention.ms", value) for value in ("-2",)],
    *[("cleanup.policy", value) for value in ("bad", "Delete", "delete,")],
    *[(_RATIO, value) for value in ("2", "-0.1")],
    *[("compression.type", value) for value in ("GZIP", "none", "")],
    *[("compression.gzip.level", value) for value in ("0", "10")],
    *[(_THROTTLED, value) for value in ("x", "*,0:1", "0:-1")],
    ("message.timestamp.type", "createtime"),
    ("segment.bytes", "1"),
]
"""Accepted only by groupkeeper: it does not check the ranges and choices of configs without
effect.
"""
KAFKAS_ALONE = [
    *[("retention.ms", value) for value in ("\uff11", "0" * 5_000)],
    *[(_RATIO, value) for value in ("NaN", "0.5d", "1F", "0x1p-1", "\0000.5\x1f")],
]
"""Accepted only by Kafka: numbers in forms that only Java parses."""
