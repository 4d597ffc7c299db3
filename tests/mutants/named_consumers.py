"""The mutants of consumer groups that a person thought of; see ``named``."""

from __future__ import annotations

from typing import Final

from tests.mutants.check import Named

CONSUMER: Final = "coordinator/core/consumer"
CONVERSION: Final = "coordinator/core/conversion.py"
HANDLER: Final = "coordinator/handlers/consumer_group_heartbeat.py"
RUNTIME: Final = "coordinator/runtime"

CONSUMERS: Final = (
    Named(
        f"{CONSUMER}/reconciliation.py",
        "free = _without(missing, frozenset(others) - own if own else others)",
        "free = missing",
        "a member gets a partition that another one still has",
    ),
    Named(
        f"{CONSUMER}/reconciliation.py",
        "    return owned is None or any(\n",
        "    return owned is not None and any(\n",
        "a heartbeat that says nothing counts as if the member had given up its partitions",
    ),
    Named(
        f"{CONSUMER}/group.py",
        "            if owners.get(number) == member_id:\n                del owners[number]\n",
        "            pass\n",
        "a partition that was given up is never free again",
    ),
    Named(
        f"{CONSUMER}/subscriptions.py",
        "        if new:\n            self._existing_image = None\n",
        "        if new:\n",
        "a topic to which a member subscribes later has no members",
    ),
    Named(
        f"{CONSUMER}/subscriptions.py",
        "        if gone:\n            self._existing_image = None\n",
        "        if gone:\n",
        "the hash of a group keeps topics to which nobody subscribes any more",
    ),
    Named(
        f"{CONSUMER}/subscriptions.py",
        "        if not is_last or pattern != subscription.pattern:\n",
        "        if not is_last:\n",
        "a loaded member gets the pattern of the member before it",
    ),
    Named(
        f"{CONSUMER}/rebalance.py",
        "    group.computation = None\n",
        "",
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
        "        and (group.state is _STABLE or _is_settled(group, member))\n",
        "        and member.current.epoch == group.epochs.target == group.epochs.group\n",
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
        "return epochs.target == epochs.group and member",
        "return member",
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
        f"{CONSUMER}/leaving.py",
        "        answer_parked(shard, member, ErrorCode.UNKNOWN_MEMBER_ID)\n"
        "        static_members.leave_for_now(shard, group, member)\n",
        "        static_members.leave_for_now(shard, group, member)\n",
        "a heartbeat that waits is never answered if its member leaves for a short time",
    ),
    Named(
        f"{CONSUMER}/epochs.py",
        "0 <= wall_ms - self.computed_ms < interval_ms",
        "wall_ms - self.computed_ms < interval_ms",
        "after the clock was set back, a group gets no new target for hours",
    ),
    Named(
        f"{CONSUMER}/regexes.py",
        "    group.resolving = False\n",
        "",
        "the patterns of a group are resolved once and never again",
    ),
    Named(
        f"{CONSUMER}/regexes.py",
        "    if changed or has_fewer or (new and _is_owed_a_target(shard, group, new)):\n",
        "    if changed or has_fewer:\n",
        "a member that changes to a pattern without topics keeps its partitions from others",
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
    Named(
        f"{RUNTIME}/pattern_index.py",
        "        if pattern.version == image.version:\n",
        "        if pattern.version >= 0:\n",
        "a pattern never matches the topics that come later",
    ),
    Named(
        CONVERSION,
        "    if request.member_epoch != JOIN_EPOCH:\n",
        "    if request.member_epoch < 0:\n",
        "a member of another group converts a classic group",
    ),
    Named(
        CONVERSION,
        "        if assignment.user_data and group.protocol_name not in STICKY_ASSIGNORS:\n",
        "        if assignment.user_data and not member.assignment:\n",
        "a group whose assignor keeps data of its own is converted, and loses it",
    ),
    Named(
        CONVERSION,
        "_unacknowledged(each.reported, owned, epoch) if each.reported else {}\n",
        "{}\n",
        "a conversion gives others what a cooperative member has not given up yet",
    ),
    Named(
        CONVERSION,
        "        record = msgspec.structs.replace(record, leader_id=None)\n",
        "        pass\n",
        "a restart after a downgrade ends the rebalance, and partitions stay unread",
    ),
    Named(
        CONVERSION,
        "            if not of_others.isdisjoint(numbers):\n",
        "            if False:\n",
        "a group that gave a partition to two members is converted, and both have it",
    ),
    Named(
        CONVERSION,
        "            shard.reply(ticket, SyncGroupResult(ErrorCode.REBALANCE_IN_PROGRESS))\n",
        "            pass\n",
        "a SyncGroup that waits in a converted group is never answered",
    ),
    Named(
        CONVERSION,
        "    size_bytes += JOIN_RECORDS * SMALL_RECORD_BYTES\n"
        "    if size_bytes > min(limits.max_step_bytes, limits.max_group_bytes):\n",
        "    if size_bytes < 0:\n",
        "a conversion may be larger than what the storage accepts",
    ),
    Named(
        CONVERSION,
        "        subscription_version(member.protocols[0].metadata)\n",
        "",
        "a group is converted with a member whose SyncGroup cannot be answered",
    ),
    Named(
        CONVERSION,
        "    goes_on = by_replacement and group.state is GroupState.STABLE\n",
        "    goes_on = by_replacement\n",
        "a member that waits for a partition never gets it after a conversion",
    ),
    Named(
        CONVERSION,
        "        classic.set_protocols(member, trial.members[member.member_id].protocols)\n",
        "",
        "a converted group forgets the protocols that its members have besides the chosen one",
    ),
    Named(
        f"{CONSUMER}/classic_members.py",
        "        leaving.answer_parked(shard, known, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)\n",
        "        pass\n",
        "a heartbeat that waits is never answered if its member joins by the classic protocol",
    ),
    Named(
        f"{CONSUMER}/classic_members.py",
        "    shard.deadlines.clear(member.join_phase)\n",
        "",
        "a classic member that joined in time is evicted",
    ),
    Named(
        f"{CONSUMER}/classic_members.py",
        "    shard.arm(member.sync_phase, now_ms + fields.rebalance_timeout_ms)\n",
        "",
        "a classic member that never sends its SyncGroup keeps its partitions",
    ),
    Named(
        f"{CONSUMER}/classic_members.py",
        "        shard.members_removed(group, by_replacement=True)\n",
        "        pass\n",
        "a group stays a consumer group after its last member of that protocol was replaced",
    ),
    Named(
        f"{CONSUMER}/classic_members.py",
        "        _expect_join(shard, member)\n"
        "        shard.reply(ticket, ErrorCode.REBALANCE_IN_PROGRESS, False)\n",
        "        shard.reply(ticket, ErrorCode.REBALANCE_IN_PROGRESS, False)\n",
        "a classic member that only sends heartbeats holds up its group for ever",
    ),
    Named(
        f"{CONSUMER}/heartbeat.py",
        "        for deadline in (member.join_phase, member.sync_phase):\n"
        "            shard.deadlines.clear(deadline)\n",
        "        pass\n",
        "a member that changed to the consumer protocol is evicted by a classic deadline",
    ),
    Named(
        f"{CONSUMER}/static_members.py",
        "    if member.session.at is None:\n",
        "    if False:\n",
        "a static member that leaves for a short time after a long wait is never evicted",
    ),
    Named(
        f"{CONSUMER}/group.py",
        " + self.repeated_bytes()\n",
        "\n",
        "a group with a long id has more members than one step can remove",
    ),
    Named(
        f"{CONSUMER}/rebalance.py",
        "    if computation is None or computation.spec is not work.spec:\n",
        "    if computation is None:\n",
        "the target of a deleted group is installed in the next group of that name",
    ),
    Named(
        f"{CONSUMER}/rebalance.py",
        "    elif not _fits(shard, group, len(changed), size_bytes):\n",
        "    elif False:\n",
        "a target may be larger than what the storage accepts",
    ),
    Named(
        f"{CONSUMER}/group.py",
        "        self._reserve(keeps=record.epoch == self.epochs.target)\n",
        "",
        "targets take no room of the limit for all groups",
    ),
    Named(
        f"{CONSUMER}/classic_members.py",
        "    owned = owned_partitions(member.current)\n",
        "    owned = member.target\n",
        "after a downgrade and a restart, a member is told what another one still has",
    ),
    Named(
        HANDLER,
        " and last.version == exchange.version:",
        ":",
        "a cut body of one version is taken for the whole body of another",
    ),
    Named(
        HANDLER,
        "        if again.client is exchange.client:",
        "        if again.client:",
        "after a change of the client id, the member keeps the old one",
    ),
    Named(
        HANDLER,
        " and not services.denied and len(body) <= MAX_REPEATED_BYTES:",
        " and not services.denied:",
        "two long heartbeats that begin alike count as equal",
    ),
    Named(
        HANDLER,
        "steady is not None and not services.denied and",
        "steady is not None and",
        "a heartbeat that was never checked is repeated without a check",
    ),
    Named(
        HANDLER,
        "    if result is last.answer:",
        "    if last.answer is not None and result.member_epoch == last.answer.member_epoch:",
        "a member gets the answer to another one",
    ),
    Named(
        f"{CONSUMER}/behaviour.py",
        "        member.unchanged = None\n",
        "",
        "a member never learns that its heartbeat interval was changed",
    ),
    Named(
        f"{CONSUMER}/heartbeat.py",
        "    if answer is None or answer.member_epoch != request.member_epoch:",
        "    if answer is None:",
        "a member gets its epoch of an earlier time",
    ),
    Named(
        f"{CONSUMER}/heartbeat.py",
        "(request is member.repeated or _states_nothing(request))",
        "(member.repeated is not None or _states_nothing(request))",
        "what a member says after its first quiet heartbeat is not heard",
    ),
)
