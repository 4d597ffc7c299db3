"""The mutants of consumer groups that a person thought of; see ``named``."""

from __future__ import annotations

from typing import Final

from tests.mutants.check import Named

CONSUMER: Final = "coordinator/core/consumer"
RUNTIME: Final = "coordinator/runtime"

CONSUMERS: Final = (
    Named(
        f"{CONSUMER}/reconciliation.py",
        "[p for p in missing if p in current.revoking or not is_owned(p)]",
        "missing",
        "a member gets a partition that another one still has",
    ),
    Named(
        f"{CONSUMER}/reconciliation.py",
        "return owned is None or not owned.isdisjoint(revoking)",
        "return owned is not None and not owned.isdisjoint(revoking)",
        "a heartbeat that says nothing counts as if the member had given up its partitions",
    ),
    Named(
        f"{CONSUMER}/group.py",
        "            if self.owners.get(partition) == member.member_id:\n"
        "                del self.owners[partition]\n",
        "            pass\n",
        "a partition that was given up is never free again",
    ),
    Named(
        f"{CONSUMER}/rebalance.py",
        "computation, group.computation = group.computation, None",
        "computation = group.computation",
        "after its first large assignment a group never gets another one",
    ),
    Named(
        f"{CONSUMER}/rebalance.py",
        "        shard.arm(member.rebalance, "
        "shard.now.monotonic_ms + member.fields.rebalance_timeout_ms)\n",
        "        pass\n",
        "a member that never gives up a partition holds up its group for ever",
    ),
    Named(
        f"{CONSUMER}/heartbeat.py",
        "        and not current.state\n",
        "",
        "a member that waits for a partition is never told that it is free",
    ),
    Named(
        f"{CONSUMER}/heartbeat.py",
        "        and not group.is_stale\n",
        "",
        "a topic that grows is noticed by nobody, as long as no member joins or leaves",
    ),
    Named(
        f"{CONSUMER}/heartbeat.py",
        "== current.epoch == epochs.target == epochs.group",
        "== current.epoch == epochs.target",
        "a group whose interval has passed never computes its assignment",
    ),
    Named(
        f"{CONSUMER}/heartbeat.py",
        "    has_target = rebalance.update_target(shard, group)\n"
        "    owned = None if request.owned is None else owned_set(request.owned)\n",
        "    has_target = rebalance.update_target(shard, group)\n"
        "    owned = owned_set(request.owned or ()) if has_target and request.owned is not None "
        "else None\n",
        "an acknowledgement is lost if its heartbeat has to wait for an assignment",
    ),
    Named(
        f"{CONSUMER}/leaving.py",
        "    rebalance.bump(shard, group, reason, members[0].member_id)\n",
        "    pass\n",
        "what a removed member had is assigned to nobody",
    ),
    Named(
        f"{CONSUMER}/regexes.py",
        "    group.resolving = False\n",
        "",
        "the patterns of a group are resolved once and never again",
    ),
    Named(
        f"{CONSUMER}/behaviour.py",
        "        shard.restart_session(member)\n",
        "",
        "a member that dies while we load is never removed",
    ),
    Named(
        f"{CONSUMER}/behaviour.py",
        "    group.is_stale = True",
        "    group.is_stale = False",
        "a changed topic is no reason to look at the topics again",
    ),
    Named(
        f"{RUNTIME}/slot.py",
        "        if self.shard is asked:\n",
        "        if self.shard is not None:\n",
        "a target that was computed for other members is installed after a load",
    ),
    Named(
        f"{RUNTIME}/workers.py",
        "            await self._kill()\n            self.killed += 1\n",
        "            self.killed += 1\n",
        "an assignor that never ends stops all assignments",
    ),
    Named(
        f"{RUNTIME}/pattern_index.py",
        "                pattern.met = 0\n",
        "",
        "after many topics were deleted, patterns match no topic any more",
    ),
)
