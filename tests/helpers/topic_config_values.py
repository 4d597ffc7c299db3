"""Values of topic configs, and what Kafka says to each (tests/conformance/kafka asks it)."""

from __future__ import annotations

TAKEN = [
    *[
        ("retention.ms", value)
        for value in ("-1", "+1", " 7 ", "\0\x1f7\0", "01", "\uff11", "9223372036854775807")
    ],
    *[("cleanup.policy", value) for value in ("", "delete", " delete ", "delete, compact")],
    ("cleanup.policy", "delete,delete"),
    *[("min.cleanable.dirty.ratio", value) for value in ("0", "1.", ".5", "1e-1", "0.5d", "NaN")],
    *[("preallocate", value) for value in ("true", "FALSE", " true ")],
    *[("compression.type", value) for value in ("gzip", " zstd ", "producer")],
    *[("compression.gzip.level", value) for value in ("-1", "1", "9")],
    *[
        ("leader.replication.throttled.replicas", value)
        for value in ("", "*", " * ", "0:1", "0:1, 1:1", "0:1,")
    ],
    ("message.timestamp.type", "LogAppendTime"),
    ("retention.ms", "0" * 5_000),
    ("retention.bytes", "-99"),
    ("segment.bytes", "1048576"),
    ("internal.segment.bytes", "1"),
    ("remote.storage.enable", "false"),
    ("remote.log.copy.disable", "true"),
]
REFUSED = [
    ("retention.mss", "1"),
    ("", "1"),
    *[
        ("retention.ms", value)
        for value in ("", "x", "\u00a07", "-2", "1_0", "1e3", "1L", "0x10", "1.0")
    ],
    ("retention.ms", "9223372036854775808"),
    *[("cleanup.policy", value) for value in ("bad", "Delete", "delete,", ",", "none")],
    *[("min.cleanable.dirty.ratio", value) for value in ("2", "-0.1", "Infinity", "0,5", "")],
    *[("preallocate", value) for value in ("1", "yes", "")],
    *[("compression.type", value) for value in ("GZIP", "none", "")],
    *[("compression.gzip.level", value) for value in ("0", "10", "-2")],
    *[
        ("follower.replication.throttled.replicas", value)
        for value in ("x", "*,0:1", "0:1,*", "0:1 :2", "0:-1")
    ],
    ("message.timestamp.type", "createtime"),
    ("segment.bytes", "1"),
    ("segment.bytes", "2147483648"),
    ("min.insync.replicas", "0"),
    ("internal.segment.bytes", "x"),
    ("message.format.version", "3"),
    ("remote.storage.enable", " TRUE "),
]
