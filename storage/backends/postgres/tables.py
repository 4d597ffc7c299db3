"""The tables of a store in PostgreSQL, and the statements over them.

A *life* is the registration of a process with the store. The other words are explained in
``storage.backends.journal.driver``.
"""

from __future__ import annotations

from typing import Final, NamedTuple

FORMAT_VERSION: Final = 1

CLEAN: Final = r"regexp_replace({}, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\u2400', 'g')::json"
"""SQL that converts a text to JSON. It replaces U+0000 with its visible symbol, U+2400: PostgreSQL
refuses U+0000 in JSON, and some clients append it to the metadata of their offsets."""

TABLES: Final = (
    "CREATE TABLE store (key text PRIMARY KEY, value text NOT NULL)",
    # A life. An append changes only columns without an index, so the row stays in its page.
    """CREATE TABLE lives (
        life_id text PRIMARY KEY,
        number bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
        node_id integer NOT NULL,
        began timestamptz NOT NULL DEFAULT now(),
        next_seq bigint NOT NULL,
        log_id text,
        ts_ms bigint NOT NULL,
        is_over boolean NOT NULL DEFAULT false,
        is_freed boolean NOT NULL DEFAULT false
    ) WITH (fillfactor = 20)""",
    # The lives that have not ended. Not in ``lives``, so that no beat waits for an append.
    """CREATE TABLE nodes (
        life_id text PRIMARY KEY REFERENCES lives,
        node_id integer NOT NULL,
        name text NOT NULL,
        counter bigint NOT NULL
    ) WITH (fillfactor = 20)""",
    """CREATE TABLE shards (
        shard integer PRIMARY KEY, life_id text REFERENCES lives, epoch bigint NOT NULL
    )""",
    """CREATE TABLE journal (
        life_id text NOT NULL,
        row bigint NOT NULL,
        first_seq bigint NOT NULL,
        event_count integer NOT NULL,
        log_id text NOT NULL,
        ts_ms bigint NOT NULL,
        payload bytea NOT NULL,
        PRIMARY KEY (life_id, row)
    )""",
    # To compress a payload takes longer than to write it.
    "ALTER TABLE journal ALTER COLUMN payload SET STORAGE EXTERNAL",
    """CREATE TABLE groups (
        shard integer NOT NULL,
        key text NOT NULL,
        group_id text NOT NULL,
        state text NOT NULL,
        PRIMARY KEY (shard, key)
    )""",
    """CREATE TABLE keyed (
        shard integer NOT NULL,
        key text NOT NULL,
        name text NOT NULL,
        state text NOT NULL,
        PRIMARY KEY (shard, key)
    )""",
    """CREATE TABLE event_log (
        log_id text NOT NULL,
        seq bigint NOT NULL,
        day date NOT NULL,
        ts_ms bigint NOT NULL,
        key text NOT NULL,
        event text NOT NULL,
        PRIMARY KEY (log_id, seq)
    )""",
    "CREATE INDEX event_log_by_group ON event_log (key, seq)",
    "CREATE INDEX event_log_by_day ON event_log (day)",
    f"""CREATE VIEW offsets AS
        SELECT g.shard, g.group_id, topic.key AS topic, part.key::integer AS partition,
               (part.value->>0)::bigint AS committed_offset,
               (part.value->>1)::integer AS leader_epoch,
               part.value->>2 AS metadata,
               (part.value->>3)::bigint AS commit_time_ms,
               (part.value->>4)::bigint AS expire_time_ms,
               part.value->>5 AS topic_id
        FROM groups AS g, json_each(({CLEAN.format("g.state")})->'offsets') AS topic,
             json_each(topic.value) AS part""",  # noqa: S608 - no value of others
    f"""CREATE VIEW members AS
        SELECT g.shard, g.group_id, state->'metadata'->>'protocol_type' AS protocol_type,
               member AS member
        FROM (SELECT shard, group_id, {CLEAN.format("state")} AS state FROM groups) AS g,
             json_array_elements(CASE json_typeof(state->'metadata'->'members')
                 WHEN 'array' THEN state->'metadata'->'members' ELSE '[]' END) AS member""",  # noqa: S608
)
"""The tables and views, in the order of their creation. The views show folded values, so they
usually lack the changes of the last half second."""

APPEND: Final = """WITH mine AS (
        UPDATE lives SET next_seq = $2 + $3, log_id = $4, ts_ms = $5
        WHERE life_id = $1 AND next_seq = $2 AND NOT is_over RETURNING life_id)
    INSERT INTO journal (life_id, first_seq, event_count, log_id, ts_ms, row, payload)
    SELECT $1, $2, $3, $4, $5, $6, $7 FROM mine"""
"""SQL of an append: one round trip, and one transaction. It locks the row of the writer's life, so
the life cannot end during the append. If the life has ended before, nothing is inserted."""

BEAT: Final = """WITH beaten AS (
        UPDATE nodes SET counter = counter + 1 WHERE life_id = $1 RETURNING life_id)
    SELECT (SELECT count(*) FROM beaten) AS beaten,
           (SELECT json_agg(json_build_array(node_id, life_id, name, counter)) FROM nodes) AS lives,
           (SELECT json_agg(json_build_array(shard, life_id, epoch)) FROM shards) AS owners,
           (SELECT next_seq FROM lives WHERE life_id = $1) AS next_seq"""

END_LIFE: Final = """WITH gone AS (
        DELETE FROM nodes WHERE life_id = $1 AND ($2::bigint IS NULL OR counter = $2)
        RETURNING life_id)
    UPDATE lives SET is_over = true FROM gone WHERE lives.life_id = gone.life_id"""

GOES_ON: Final = "SELECT 1 FROM nodes WHERE life_id = $1 FOR KEY SHARE"
"""SQL that checks and locks the row of a life. The life cannot end before the transaction ends.
Beats and appends of this life do not wait for this lock."""

LIVES: Final = "SELECT node_id, life_id, name, counter FROM nodes ORDER BY life_id"

ACQUIRE: Final = """INSERT INTO shards (shard, life_id, epoch)
    SELECT shard, $1, 1 FROM unnest($2::integer[]) AS shard ORDER BY shard
    ON CONFLICT (shard) DO UPDATE SET life_id = $1, epoch = shards.epoch + 1
    WHERE shards.life_id IS NULL OR shards.life_id = $1
    RETURNING shard, epoch"""

SAVE_GROUPS: Final = """INSERT INTO groups (shard, key, group_id, state)
    SELECT * FROM unnest($1::integer[], $2::text[], $3::text[], $4::text[])
    ON CONFLICT (shard, key) DO UPDATE SET state = excluded.state"""
SAVE_KEYED: Final = SAVE_GROUPS.replace("groups", "keyed").replace("group_id", "name")
REMOVE_GROUPS: Final = """DELETE FROM groups USING unnest($1::integer[], $2::text[]) AS gone (s, k)
    WHERE shard = s AND key = k"""
REMOVE_KEYED: Final = REMOVE_GROUPS.replace("groups", "keyed")


class Page(NamedTuple):
    """The statements that read the values of a range of shards, in portions."""

    first: str
    """The statement that begins at a shard and a key."""
    next: str
    """The statement that continues after a shard and a key."""


_PAGE: Final = """SELECT shard, key, {name} AS name, state FROM {table}
    WHERE (shard, key) {after} ($1, $2) AND shard <= $3 ORDER BY shard, key LIMIT 200"""
"""SQL that reads the next portion of the values of a range of shards. It needs one look-up in the
primary key, and continues after the last portion. With a list of shards instead of ``shard <= $3``,
PostgreSQL before 17 looks up every shard again for each portion, and may sort all remaining
rows."""


def _page(table: str, name: str) -> Page:
    first, following = (_PAGE.format(table=table, name=name, after=sign) for sign in (">=", ">"))
    return Page(first, following)


GROUPS_PAGE: Final = _page("groups", "group_id")
KEYED_PAGE: Final = _page("keyed", "name")

MAY_STAGE: Final = "SELECT has_database_privilege(current_database(), 'TEMPORARY')"
"""SQL that returns whether this role may create temporary tables. Nearly every role may. Otherwise
a large group is sent as a whole, not in pieces."""
STAGE: Final = """CREATE TEMPORARY TABLE IF NOT EXISTS pieces_of_a_state
    (number integer, piece text) ON COMMIT DELETE ROWS"""
STAGE_PIECE: Final = "INSERT INTO pg_temp.pieces_of_a_state VALUES ($1, $2)"
SAVE_STAGED: Final = """INSERT INTO groups (shard, key, group_id, state)
    SELECT $1, $2, $3, string_agg(piece, '' ORDER BY number) FROM pg_temp.pieces_of_a_state
    ON CONFLICT (shard, key) DO UPDATE SET state = excluded.state"""
CLEAR_STAGE: Final = "DELETE FROM pg_temp.pieces_of_a_state"

OLD_LIVES: Final = """SELECT node_id, count(*) AS lives FROM lives AS old
    WHERE is_freed AND EXISTS (
        SELECT 1 FROM lives WHERE lives.node_id = old.node_id AND lives.number > old.number)
    GROUP BY node_id ORDER BY node_id"""
"""SQL that counts, for each node, the ended lives that can be deleted. The newest life of a node
must stay: it has the end of the node's log, which the next life continues."""

DELETE_OLD_LIVES: Final = """DELETE FROM lives AS old
    WHERE is_freed AND EXISTS (
        SELECT 1 FROM lives WHERE lives.node_id = old.node_id AND lives.number > old.number)"""

DELETED_AT_ONCE: Final = 50_000
"""The largest number of events that one statement deletes: less than a second. A busy day has
millions."""

DELETE_EVENTS: Final = f"""DELETE FROM event_log WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM event_log
    WHERE day < (to_timestamp($1::bigint / 1000) AT TIME ZONE 'UTC')::date
    LIMIT {DELETED_AT_ONCE}))"""  # noqa: S608 - no value of others

LOG_EVENTS: Final = """INSERT INTO event_log (log_id, seq, day, ts_ms, key, event)
    SELECT log_id, seq, (to_timestamp(ts_ms / 1000) AT TIME ZONE 'UTC')::date, ts_ms, key, event
    FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[])
        AS new (log_id, seq, ts_ms, key, event)
    ON CONFLICT DO NOTHING"""

EVENT_LOGS: Final = """WITH RECURSIVE logs AS (
        (SELECT log_id FROM event_log ORDER BY log_id LIMIT 1)
        UNION ALL
        SELECT (SELECT log_id FROM event_log WHERE log_id > logs.log_id ORDER BY log_id LIMIT 1)
        FROM logs WHERE logs.log_id IS NOT NULL)
    SELECT logs.log_id, begin.event, begin.seq AS first_seq, last.seq AS last_seq,
           last.ts_ms AS last_ts_ms
    FROM logs,
         LATERAL (SELECT seq, event FROM event_log WHERE event_log.log_id = logs.log_id
                  ORDER BY seq LIMIT 1) AS begin,
         LATERAL (SELECT seq, ts_ms FROM event_log WHERE event_log.log_id = logs.log_id
                  ORDER BY seq DESC LIMIT 1) AS last"""
"""SQL that returns the logs in the event log. Each log is found by look-ups in an index, without a
scan of the table."""

EVENTS: Final = """SELECT event FROM event_log
    WHERE log_id = $1 AND seq > $2 ORDER BY seq LIMIT 500"""

ENDS: Final = """SELECT DISTINCT ON (node_id) node_id, log_id, next_seq, ts_ms FROM lives
    ORDER BY node_id, number DESC"""

SEAL_NOTES: Final = "SELECT key, value FROM store WHERE key LIKE 'sealed/%'"
WRITE_SEAL_NOTE: Final = """INSERT INTO store VALUES ($1, $2)
    ON CONFLICT (key) DO UPDATE SET value = excluded.value"""
