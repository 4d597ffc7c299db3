"""Values of topic configs, and what Kafka says to each (tests/conformance/kafka asks it)."""

from __future__ import annotations

TAKEN = [
    *[
        ("retention.ms", value)
        for value in ("-1", "+1", " 7 ", "\0\x1f7\0", "01", "\uff11", "9223372036854775807")
    ],
    *[("cleanup.policy", value) for value in ("", "delete", " delete ", "delete, compact")],
    ("cleanup.policy", "delete,delete"),
    *[("retention.ms", value) for value in ("+\uff11", "\uff10" * 30 + "7")],
    *[("cleanup.policy", value) for value in ("compact\f,\vdelete", "compact , delete")],
    *[
        ("min.cleanable.dirty.ratio", value)
        for value in (
            *("0", "1.", ".5", "1e-1", "1e-99999999999", "1" * 400 + "e-400"),
            *("0.5d", "1F", "1.f", "NaN", "+NaN", "-NaN", "-0.0", "-1e-400", "\0000.5\x1f"),
            *("0x1p-1", "0X.8P+0", "0xA.p-4", "+0x1.8p-1", "-0x0p0d", "0x1p-1074F", "-0x1p-2000"),
            *("0x0p99999999999999999999", "0x1p-99999999999999999999", "0x1.00000000000008p0"),
        )
    ],
    *[("preallocate", value) for value in ("true", "FALSE", " true ")],
    *[("compression.type", value) for value in ("gzip", " zstd ", "producer")],
    *[("compression.gzip.level", value) for value in ("-1", "1", "9")],
    *[
        ("leader.replication.throttled.replicas", value)
        for value in (
            *(
                "",
                "*",
                " * ",
                "*,",
                ",* ,\0",
                "0:1",
                "0:1, 1:1",
                "0:1,",
                "0:1,,0:1",
                "0:1\0,\0000:1",
            ),
            "99999999999:99999999999",
        )
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
        for value in (
            "",
            "x",
            "\u00a07",
            "-2",
            "1_0",
            "1e3",
            "1L",
            "0x10",
            "1.0",
            "\U0001d7cf",
            "7\u3000",
        )
    ],
    ("retention.ms", "9223372036854775808"),
    *[
        ("cleanup.policy", value)
        for value in (
            *("bad", "Delete", "delete,", ",", "none", "compact\u00a0", "compact,\u3000delete"),
            *("delete\x1c,compact", "delete,\0compact"),
        )
    ],
    *[
        ("min.cleanable.dirty.ratio", value)
        for value in (
            *("2", "-0.1", "Infinity", "-Infinity", "Infinityd", "0,5", "", ".", ".f", "1e", "1e+"),
            *("nan", "inf", "NaNd", "1L", "1.fd", "0.5 d", "1_0", "\uff11", "1.0000000000000002"),
            *("0x1", "0x1p", "0xp0", "0x.p0", "0x1p--1", "0x1p\uff11", "0x1p1", "-0x1p0"),
            *("0x1p99999999999999999999", "0x1.0000000000001p0", "0" * 30_000 + "x"),
        )
    ],
    *[("preallocate", value) for value in ("1", "yes", "")],
    *[("compression.type", value) for value in ("GZIP", "none", "")],
    *[("compression.gzip.level", value) for value in ("0", "10", "-2")],
    *[
        ("follower.replication.throttled.replicas", value)
        for value in ("x", "*,0:1", "0:1,*", "*,*", "0:1 :2", "0:-1", "0:1,\u20030:1", "\uff10:1")
    ],
    ("message.timestamp.type", "createtime"),
    ("segment.bytes", "1"),
    ("segment.bytes", "2147483648"),
    ("min.insync.replicas", "0"),
    ("internal.segment.bytes", "x"),
    ("message.format.version", "3"),
    ("remote.storage.enable", " TRUE "),
]
