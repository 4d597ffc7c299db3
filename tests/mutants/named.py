"""The mutants that a person thought of: what a coordinator must not get wrong.

The text that is replaced stands exactly once in its file; when the code changes, the run says so.
A call without its name is a tuple that nobody uses: so a statement is dropped without its lines.

This file is long because it is one table, and every row has two texts and a reason.
"""

from __future__ import annotations

from typing import Final

from tests.mutants.check import Named
from tests.mutants.named_consumers import CONSUMERS

CORE: Final = "coordinator/core"
RUNTIME: Final = "coordinator/runtime"
HANDLERS: Final = "coordinator/handlers"

TIMERS: Final = (
    Named(
        f"{CORE}/classic/membership.py",
        "    shard.restart_session(member)\n    shard.step.answer = HEARTBEAT_ANSWER[group.state]",
        "    shard.step.answer = HEARTBEAT_ANSWER[group.state]",
        "a heartbeat does not restart the session: members that live are evicted",
    ),
    Named(
        f"{CORE}/state.py",
        "        elif self.deadlines.arm(session, at_ms):\n"
        "            self.step.sets_alarm = True\n",
        "        else:\n            self.deadlines.arm(session, at_ms)\n",
        "a heartbeat that shortens a session sets no alarm: the member is evicted when something "
        "else is due",
    ),
    Named(
        f"{CORE}/deadlines.py",
        "                self._push(deadline, deadline.at)\n                continue",
        "                continue",
        "a deadline that was moved later is forgotten when its old entry comes up",
    ),
    Named(
        f"{CORE}/classic/rebalance.py",
        "            _arm_join_phase(shard, group, group.largest_rebalance_timeout_ms())\n"
        "            return",
        "            return",
        "the join phase is not armed again while static members are awaited: it never ends",
    ),
    Named(
        f"{CORE}/classic/rebalance.py",
        "        _answer_joins(shard, group)\n        shard.arm(",
        "        _answer_joins(shard, group)\n        (",
        "the sync phase is not armed: a member that never syncs holds its group for ever",
    ),
    Named(
        f"{CORE}/classic/joining.py",
        "        shard.arm(pending, ",
        "        (pending, ",
        "an id that was handed out never expires, and the group waits for it",
    ),
    Named(
        f"{CORE}/offsets/retention.py",
        "NEXT_PORTION_MS)\n    else:\n        arm(shard)",
        "NEXT_PORTION_MS)",
        "the pass over expired offsets runs once and never again",
    ),
    Named(
        f"{RUNTIME}/lane.py",
        "            self._limit_time(append, left_ms)\n            return",
        "            return",
        "an append that outlives a stopped clock is never given up",
    ),
    Named(
        f"{RUNTIME}/clock.py",
        "min(reading_ns - self._last_ns, MAX_ADVANCE_NS)",
        "reading_ns - self._last_ns",
        "a process that was stopped evicts everyone before it reads its sockets",
    ),
)

FENCES: Final = (
    Named(
        f"{CORE}/classic/group.py",
        "        if generation_id != self.generation_id:",
        "        if generation_id > self.generation_id:",
        "a member of an old generation overwrites what the new owner committed",
    ),
    Named(
        f"{CORE}/classic/group.py",
        "        error = self.identity_error(request.member_id, request.group_instance_id)\n"
        "        if not error and request.generation_id",
        "        error = self.identity_error(request.member_id, None)\n"
        "        if not error and request.generation_id",
        "a static member that was replaced goes on beside the one that replaced it",
    ),
    Named(
        f"{RUNTIME}/recovery.py",
        "            slot.needs_lease = True\n        self.drop(slots)",
        "            slot.needs_lease = False\n        self.drop(slots)",
        "shards are loaded again under the old epoch: a late append is accepted",
    ),
    Named(
        "storage/backends/memory.py",
        "if self._epochs.get(item.shard) != item.fence]",
        "if self._epochs.get(item.shard, 0) < item.fence]",
        "a store accepts appends of an owner that lost its lease",
    ),
    Named(
        "storage/backends/sqlite/tables.py",
        '"row" DESC LIMIT 1) AS last, lease\n    WHERE lease.epoch = ?',
        '"row" DESC LIMIT 1) AS last, lease\n    WHERE lease.epoch >= ?',
        "SQLite accepts an append of an older epoch",
    ),
    Named(
        "storage/backends/sqlite/store.py",
        "        if epoch != append.epoch:\n            return None\n        self._write_fold",
        "        self._write_fold",
        "an append that only folds does not look at the epoch",
    ),
    Named(
        "storage/backends/sqlite/store.py",
        "        self._check_files()\n        rows = ",
        "        rows = ",
        "a lease is taken on a store that was moved away",
    ),
    Named(
        "storage/backends/sqlite/store.py",
        "        self._check_files()\n        writer = self._writer()\n        ((epoch,),) = ",
        "        writer = self._writer()\n        ((epoch,),) = ",
        "a store that was moved away is folded into",
    ),
    Named(
        "storage/file_lock.py",
        "    for fds in _spare.values():\n        for fd in fds:\n            os.close(fd)\n",
        "",
        "a forked child keeps descriptors of databases for ever",
    ),
)

FOLDS: Final = (
    Named(
        "storage/backends/sqlite/fold.py",
        "        if self._large is not None:\n            rows.append(self._large.row)",
        "",
        "a group of which some parts are written counts as folded",
    ),
    Named(
        "storage/backends/sqlite/fold.py",
        "            self._put_off[key] = min(row, self._put_off.pop(key, row))",
        "            pass",
        "what a failed fold did not write counts as folded",
    ),
    Named(
        "storage/backends/sqlite/fold.py",
        "min(row, self._put_off.pop(key, row))",
        "row",
        "a group whose folds fail twice counts as folded up to its second change",
    ),
    Named(
        "storage/backends/sqlite/fold.py",
        "large is None or large.is_waiting or",
        "large is None or",
        "the parts behind one that is lost are written all the same",
    ),
    Named(
        "storage/backends/sqlite/fold_write.py",
        "        work.has_keyed = bool(self._left)",
        "        work.has_keyed = False",
        "a topic that its table lacks counts as folded",
    ),
    Named(
        "storage/backends/sqlite/fold_write.py",
        "        left = MAX_DELETED_PARTS\n",
        "        left = 1_000_000\n",
        "all parts of a deleted group go at once, and the append behind them times out",
    ),
    Named(
        "storage/backends/sqlite/tables.py",
        "SELECT ?1, ?2, (?3 = 0) + coalesce(",
        "SELECT ?1, ?2, 1 + 0 * (?3 = 0) * coalesce(",
        "a new set of parts has the number of one that is not deleted yet",
    ),
    Named(
        "storage/event_log/sealing/storage.py",
        "    done = work()\n    place.check()\n",
        "    done = work()\n",
        "rows are deleted although log.dir was replaced while their segment was written",
    ),
    Named(
        "storage/backends/sqlite/tables.py",
        "state = excluded.state, part_set = 0",
        "state = excluded.state",
        "the parts of a group that has become small go on counting",
    ),
)

LIMITS: Final = (
    Named(
        f"{CORE}/offsets/room.py",
        "        if grows_by > 0 and room_bytes < grows_by:",
        "        if room_bytes < grows_by:",
        "a commit that makes a group at its bound smaller is refused",
    ),
    Named(
        f"{CORE}/offsets/room.py",
        "growth[key] = max(grows_by, growth.get(key, grows_by))",
        "growth[key] = min(grows_by, growth.get(key, grows_by))",
        "an offset that a commit names small and large counts with the small one: a group grows "
        "beyond its bound",
    ),
    Named(
        f"{CORE}/state.py",
        '                    _count_metadata(group, gone, "")',
        "                    pass",
        "an offset that is deleted leaves no room for another",
    ),
    Named(
        f"{CORE}/offsets/commit.py",
        "> shard.limits.max_step_bytes:",
        ">= shard.limits.max_step_bytes:",
        "a commit of exactly the largest size is refused",
    ),
    Named(
        f"{CORE}/offsets/room.py",
        "            room_bytes -= topic_bytes(topic.topic)",
        "            pass",
        "names of new topics take no room: a group grows beyond its bound",
    ),
    Named(
        f"{CORE}/classic/joining.py",
        "    if group.size_bytes + added_bytes > most:",
        "    if group.size_bytes + added_bytes >= most:",
        "a member that fills its group to exactly the largest size is refused",
    ),
    Named(
        f"{CORE}/classic/joining.py",
        "    if group.size_bytes + added_bytes > most:",
        "    if group.saved_bytes() + added_bytes > most:",
        "what is committed keeps consumers out of their group",
    ),
    Named(
        f"{CORE}/offsets/commit.py",
        "        return length > limit\n",
        "        return length >= limit\n",
        "metadata of exactly the allowed length is refused",
    ),
    Named(
        f"{CORE}/classic/joining.py",
        "member is not None or len(group.members) < limit",
        "member is not None or len(group.members) <= limit",
        "a group takes one member more than group.max.size",
    ),
    Named(
        f"{CORE}/offsets/retention.py",
        "return wall_ms - since_ms >= retention_ms",
        "return wall_ms - since_ms > retention_ms",
        "an offset outlives its retention by a millisecond",
    ),
    Named(
        "storage/backends/sqlite/store.py",
        "self._busy_timeout_s = append_timeout_ms / 2 / 1000",
        "self._busy_timeout_s = append_timeout_ms / 1000",
        "SQLite still waits for another's lock when the append is given up",
    ),
)

DURABILITY: Final = (
    Named(
        f"{CORE}/offsets/commit.py",
        "(stored.topic_id != topic_id and stored.topic_id and topic_id)",
        "stored.topic_id != topic_id",
        "a commit over an offset without an id lowers it, and the end falls back after a restart",
    ),
    Named(
        f"{RUNTIME}/slot.py",
        "        write = self.unfinished\n        records, events",
        "        write = None\n        records, events",
        "an answer that rests on a write in flight is given before it is durable",
    ),
    Named(
        f"{RUNTIME}/slot.py",
        "                if self.unfinished is None or not reply.waits:",
        "                if True:",
        "a read shows a commit that is not durable yet",
    ),
    Named(
        f"{RUNTIME}/slot.py",
        "        if self.unfinished is write:\n            self.unfinished = None",
        "        self.unfinished = None",
        "what waits for the next append is answered with this one",
    ),
    Named(
        f"{RUNTIME}/lane.py",
        "                self._observer.durable(write)\n                slot.release(write)",
        "                slot.release(write)\n                self._observer.durable(write)",
        "an answer goes out before the ends of partitions know of it: a fetch after it sees less",
    ),
    Named(
        f"{CORE}/classic/membership.py",
        "GroupState.STABLE, shard.now.wall_ms)\n    record_group",
        "GroupState.STABLE, shard.now.wall_ms)\n    True or record_group",
        "an assignment is told and not stored: after a crash the group is gone",
    ),
    Named(
        f"{CORE}/offsets/commit.py",
        "    for end in lowered:\n        shard.record(end)",
        "    lowered.clear()",
        "the end of a partition falls back when an offset is lowered and the process restarts",
    ),
    Named(
        "storage/backends/sqlite/tables.py",
        'last."row" + 1, last.first_seq + last.count, ?',
        'last."row" + 1, last.first_seq + max(last.count - 1, 0), ?',
        "a seq of the event log is used twice",
    ),
    Named(
        "storage/backends/sqlite/store.py",
        "        self._fold = load.fold\n        self._log_clock.resume(",
        "        self._fold = load.fold\n        (",
        "the clock of an append that failed stays in the log",
    ),
    Named(
        "coordinator/embed/bare_coordinator.py",
        "            or any(lane.is_writing(OffsetsAdopted) for lane in self._owner.lanes)\n",
        "",
        "a topic is deleted while an append of another lane may still lose the ids that its "
        "offsets have taken: the next topic of its name gets them",
    ),
    Named(
        "storage/event_log/log_clock.py",
        "        if log_id in self._minted:",
        "        if True:",
        "a start that has written nothing goes on with the log before it",
    ),
)

DISK: Final = (
    Named(
        "storage/event_log/sealing/segment_writer.py",
        "        os.fsync(self._file.fileno())\n        self._file.close()",
        "        self._file.close()",
        "rows go though a power cut may take the content of their segment",
    ),
    Named(
        "storage/event_log/manifest.py",
        "        os.fsync(file.fileno())\n        if is_new:",
        "        if is_new:",
        "files go though a power cut may take the line that says so",
    ),
    Named(
        "storage/event_log/sealing/segment_writer.py",
        "        sync_path(path.parent)\n",
        "",
        "rows go though a power cut may take the name of their segment",
    ),
    Named(
        "storage/event_log/sealing/retention.py",
        "            manifest.remove(directory, [segment.file for segment in segments])\n"
        '            self._hook("removal_listed")\n'
        "            remove_files(directory, [segment.name for segment in segments])\n",
        "            remove_files(directory, [segment.name for segment in segments])\n"
        "            manifest.remove(directory, [segment.file for segment in segments])\n"
        '            self._hook("removal_listed")\n',
        "files go before the manifest says so",
    ),
    Named(
        "storage/backends/sqlite/log.py",
        """        WHERE "row" <= ? AND first_seq + count - 1 <= sealed_seq\n""",
        """        WHERE "row" <= ?\n""",
        "rows go that are in no file",
    ),
    Named(
        "storage/backends/sqlite/store.py",
        "            if is_failed_sync(error.__cause__):\n",
        "            if False:\n",
        "appends go on after a failed sync: a power cut takes those that follow unwritten pages",
    ),
    Named(
        "storage/backends/sqlite/failed_sync.py",
        '        reader.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()\n',
        "",
        "SQLite makes a checkpoint after a failed sync, and deletes the only good copy",
    ),
    Named(
        "storage/backends/sqlite/store_files.py",
        "            complete.unmark(descriptor)\n",
        "            pass\n",
        "a start leaves the mark of a complete file: after a kill its commits are set aside",
    ),
    Named(
        "storage/backends/sqlite/store_files.py",
        "            if not file_bytes(self._wal):\n",
        "            if True:\n",
        "a file is marked as complete although its WAL has changes that it lacks",
    ),
    Named(
        "storage/backends/sqlite/store.py",
        "            if is_copied:\n",
        "            if True:\n",
        "a store that another process uses is marked as complete",
    ),
    Named(
        "storage/backends/sqlite/failed_sync.py",
        "            _invalidate_index(index, identity)\n",
        "            pass\n",
        "a start does not write pages again that never reached the disk",
    ),
    Named(
        "storage/backends/sqlite/tables.py",
        '    connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()\n',
        "",
        "SQLite makes checkpoints whose failed syncs nobody notices",
    ),
)

WIRE: Final = (
    Named(
        f"{HANDLERS}/sync_group.py",
        "    if result.error not in REPEATED_AT_ONCE:\n        return reply",
        "    if True:\n        return reply",
        "a leader of librdkafka whose assignments find no room sends 8,000 requests a second",
    ),
    Named(
        f"{CORE}/requests/membership.py",
        "    while_loading = ErrorCode.REBALANCE_IN_PROGRESS",
        "    while_loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS",
        "a Java client that syncs while we load dies of it",
    ),
    Named(
        f"{HANDLERS}/fetch.py",
        "if not 0 <= wire.fetch_offset <= end:",
        "if not 0 <= wire.fetch_offset < end:",
        "a consumer at the end of its partition is told that it is out of range",
    ),
)

HTTP: Final = (
    Named(
        "coordinator/web/gate.py",
        "        self.gate.enter(self)\n        self._limit_to(REQUEST_TIMEOUT)\n",
        "        self.gate.enter(self)\n",
        "an HTTP peer that sends nothing stays connected for ever",
    ),
    Named(
        "coordinator/web/gate.py",
        "if self._limit is None and not self.transport.is_closing():",
        "if not self.transport.is_closing():",
        "an HTTP peer that sends a byte now and then stays connected for ever",
    ),
)

LATE: Final = (
    Named(
        f"{RUNTIME}/group_loading.py",
        "            task.cancel()\n            self._refuse(place",
        "            self._refuse(place",
        "a read of a group goes on after the stop, and ends in an error that nobody sees",
    ),
    Named(
        f"{RUNTIME}/group_loading.py",
        "if shard is None or shard.saved(group_id) is not None:",
        "if shard is None:",
        "a group that a load brought is read over it: its shard is dropped as if by a bug",
    ),
    Named(
        f"{RUNTIME}/group_loading.py",
        "        if slot.shard is not shard:\n",
        "        if slot.shard is shard is None:\n",
        "ends of partitions are learned from a group that could not be applied",
    ),
    Named(
        f"{HANDLERS}/offset_fetch.py",
        "exchange.error = exchange.error or _first_error(result, version)",
        "exchange.error = _first_error(result, version)",
        "an OffsetFetch of several groups is counted by its last answer, not by an error",
    ),
    Named(
        f"{HANDLERS}/gather.py",
        "exchange.on_closed = exchange.channel.later(0, self.begin)",
        "exchange.channel.later(0, self.begin)",
        "groups are asked for after the connection that wanted them has closed",
    ),
)

NAMED: Final = (
    *TIMERS,
    *FENCES,
    *FOLDS,
    *LIMITS,
    *DURABILITY,
    *DISK,
    *WIRE,
    *HTTP,
    *LATE,
    *CONSUMERS,
)
