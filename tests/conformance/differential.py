"""The same requests to a real Apache Kafka and to the daemon, answers compared field by field.

    python -m tests.conformance.differential KAFKA_PORT OUR_PORT

Both need a topic ``orders`` of 12 partitions and no initial rebalance delay. Run by hand. Each case
has a group of its own on each side; what must differ (minted member ids, addresses, times) is
replaced by the order of its appearance before the comparison.
"""

from __future__ import annotations

import json
import sys
import uuid

from tests.conformance import differential_admin, differential_groups, differential_topics
from tests.conformance.differential_side import Side


def main() -> None:
    ports = [int(port) for port in sys.argv[1:]]
    run = uuid.uuid4().hex[:6]
    differences = requests = 0
    suites = (differential_groups, differential_topics, differential_admin)
    for case in [case for suite in suites for case in suite.CASES]:
        sides = [Side(port) for port in ports]
        failures = []
        for side in sides:
            try:
                case(side, f"diff-{run}-{case.__name__}")
            except Exception as error:  # noqa: BLE001 - the comparison goes on with the next case
                failures.append(repr(error))
        for theirs, ours in zip(sides[0].answers, sides[1].answers, strict=False):
            requests += 1
            if theirs[1] != ours[1]:
                differences += 1
                say(
                    f"--- {case.__name__}: {theirs[0]}\n  Kafka: {json.dumps(theirs[1])}\n"
                    f"  ours:  {json.dumps(ours[1])}"
                )
        if failures or len(sides[0].answers) != len(sides[1].answers):
            say(f"--- {case.__name__}: ended early: {failures}")
        for side in sides:
            side.close()
    say(f"{requests} answers compared, {differences} differ")
    raise SystemExit(1 if differences else 0)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
