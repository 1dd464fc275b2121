//! The schema, step by step.

use super::migrate::Migration;

/// Every step so far. A released one never changes.
pub const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, sql: FIRST, oldest_writer: 1 },
    // A writer of before would start calls that an unknown outcome keeps from starting.
    Migration { version: 2, sql: UNKNOWN_OUTCOMES, oldest_writer: 2 },
    // A writer of before would leave runs without the name of what they wait for.
    Migration { version: 3, sql: WAITS, oldest_writer: 3 },
    // A writer of before would call no model, but take a run up without settling what it holds.
    Migration { version: 4, sql: BUDGETS, oldest_writer: 4 },
    // A writer of before would drive a run on whose parent has ended, and could not say what a run waits for.
    Migration { version: 5, sql: CHILDREN, oldest_writer: 5 },
    // A writer of before would begin calls of a conversation without counting them.
    Migration { version: 6, sql: TALLIES, oldest_writer: 6 },
];

/// The state tables have the columns of `domain::row`, in their order. Tables with wide rows keep their
/// rowid: it is the order in which rows were made, and a wide row then lies in one page.
///
/// `journal_seq` is the rowid, since a SQLite file has one journal: the newest events lie at the end of the
/// table, and the journal needs no index of its own. The payload comes last, so that an event's hash is read
/// without it.
const FIRST: &str = r#"
CREATE TABLE events (
    journal_seq INTEGER NOT NULL PRIMARY KEY,
    journal BLOB NOT NULL,
    tenant TEXT NOT NULL,
    stream_kind TEXT NOT NULL,
    stream_id BLOB NOT NULL,
    stream_seq INTEGER NOT NULL,
    step BLOB,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    version INTEGER NOT NULL,
    journal_prev BLOB NOT NULL,
    stream_prev BLOB NOT NULL,
    hash BLOB NOT NULL,
    payload BLOB NOT NULL,
    UNIQUE (stream_kind, stream_id, stream_seq)
) STRICT;

CREATE TABLE contents (
    digest BLOB NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    owner_kind TEXT NOT NULL,
    owner_id BLOB NOT NULL,
    owner_seq INTEGER NOT NULL,
    salt BLOB NOT NULL,
    bytes BLOB NOT NULL
) STRICT;

CREATE TABLE specs (
    digest BLOB NOT NULL PRIMARY KEY,
    bytes BLOB NOT NULL
) STRICT;

CREATE TABLE runs (
    id BLOB NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    thread BLOB NOT NULL,
    parent BLOB,
    root BLOB NOT NULL,
    goal TEXT NOT NULL,
    salt TEXT NOT NULL,
    limits TEXT NOT NULL,
    tools TEXT NOT NULL,
    policy BLOB NOT NULL,
    agent TEXT NOT NULL,
    unconfined_agent INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    status TEXT NOT NULL,
    reason TEXT,
    note TEXT,
    result TEXT,
    step_count INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    denials INTEGER NOT NULL,
    active_us INTEGER NOT NULL,
    question BLOB,
    epoch INTEGER NOT NULL,
    holder TEXT,
    finished_at INTEGER,
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL
) STRICT;
CREATE INDEX runs_by_tenant ON runs (tenant);
CREATE INDEX runs_by_status ON runs (tenant, status);

CREATE TABLE steps (
    id BLOB NOT NULL PRIMARY KEY,
    run BLOB NOT NULL,
    "index" INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    batch_index INTEGER NOT NULL,
    opened_at INTEGER NOT NULL,
    status TEXT NOT NULL,
    proposal TEXT,
    kind TEXT,
    origin TEXT,
    admitted TEXT,
    verdict TEXT,
    policy BLOB,
    question BLOB,
    attempts INTEGER NOT NULL,
    starts INTEGER NOT NULL,
    observation TEXT,
    started_at INTEGER,
    finished_at INTEGER,
    UNIQUE (run, "index")
) STRICT;

CREATE TABLE questions (
    id BLOB NOT NULL PRIMARY KEY,
    run BLOB NOT NULL,
    step BLOB NOT NULL,
    kind TEXT NOT NULL,
    digest BLOB NOT NULL,
    call BLOB NOT NULL,
    card TEXT NOT NULL,
    reviewers TEXT NOT NULL,
    on_rejection TEXT NOT NULL,
    uses INTEGER NOT NULL,
    expires_at INTEGER,
    grant_ttl_ms INTEGER,
    cause TEXT,
    detail TEXT,
    asked_at INTEGER NOT NULL,
    status TEXT NOT NULL,
    used INTEGER NOT NULL,
    yes INTEGER NOT NULL,
    granted_at INTEGER,
    closed_at INTEGER
) STRICT;
CREATE INDEX questions_by_run ON questions (run);
CREATE INDEX questions_by_status ON questions (status);

CREATE TABLE approvals (
    question BLOB NOT NULL,
    person TEXT NOT NULL,
    statement TEXT NOT NULL,
    signature BLOB NOT NULL,
    PRIMARY KEY (question, person)
) STRICT;

CREATE TABLE threads (
    id BLOB NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    opened_at INTEGER NOT NULL,
    labels TEXT NOT NULL,
    label_seq INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL
) STRICT;

CREATE TABLE leases (
    run BLOB NOT NULL PRIMARY KEY,
    epoch INTEGER NOT NULL,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"#;

/// The outcomes that nobody knows yet are few, and every call that changes something looks for one.
const UNKNOWN_OUTCOMES: &str = "
CREATE INDEX questions_unknown ON questions (run) WHERE kind = 'unknown_outcome' AND closed_at IS NULL;
";

/// A run that has not ended names what it waits for, and has what that name needs.
///
/// The runs of before are given the very cells that the fold gives them (`domain/src/wait.rs`); `verify` compares. The rowids
/// stay, since they are the order of the list. Soft state is what people were reminded of.
///
/// The end of a question or of a grant is an expression, spelled as in `super::read::DUE`; the index lists only what can still end.
const WAITS: &str = "
CREATE TABLE runs_waiting (
    id BLOB NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    thread BLOB NOT NULL,
    parent BLOB,
    root BLOB NOT NULL,
    goal TEXT NOT NULL,
    salt TEXT NOT NULL,
    limits TEXT NOT NULL,
    tools TEXT NOT NULL,
    policy BLOB NOT NULL,
    agent TEXT NOT NULL,
    unconfined_agent INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    status TEXT NOT NULL,
    reason TEXT,
    note TEXT,
    result TEXT,
    step_count INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    denials INTEGER NOT NULL,
    active_us INTEGER NOT NULL,
    question BLOB,
    epoch INTEGER NOT NULL,
    holder TEXT,
    waits TEXT,
    free_since INTEGER,
    finished_at INTEGER,
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL,
    CONSTRAINT what_a_run_waits_for CHECK (
        CASE
            WHEN status IN ('completed', 'failed', 'cancelled') THEN waits IS NULL AND free_since IS NULL
            WHEN waits = 'driver' THEN holder IS NOT NULL AND free_since IS NULL
            WHEN waits IN ('people', 'outcome')
                THEN status = 'waiting' AND question IS NOT NULL AND free_since IS NULL
            WHEN waits = 'grant' THEN status = 'waiting' AND question IS NOT NULL AND free_since IS NOT NULL
            WHEN waits = 'resume' THEN free_since IS NOT NULL
            ELSE 0
        END
    )
) STRICT;

INSERT INTO runs_waiting (rowid, id, tenant, owner, thread, parent, root, goal, salt, limits, tools, policy, agent,
    unconfined_agent, created_at, status, reason, note, result, step_count, failures, denials, active_us, question,
    epoch, holder, waits, free_since, finished_at, seq, hash)
SELECT place, id, tenant, owner, thread, parent, root, goal, salt, limits, tools, policy, agent,
    unconfined_agent, created_at, status, reason, note, result, step_count, failures, denials, active_us, question,
    epoch, holder, waits,
    CASE WHEN waits IN ('grant', 'resume') THEN coalesce((
        SELECT e.at FROM events e
        WHERE e.stream_kind = 'run' AND e.stream_id = w.id
          AND e.kind IN ('run.created', 'lease.released', 'question.answered', 'step.finished')
        ORDER BY e.stream_seq DESC LIMIT 1
    ), created_at) END,
    finished_at, seq, hash
FROM (
    SELECT r.rowid AS place, r.*,
        CASE
            WHEN r.status IN ('completed', 'failed', 'cancelled') THEN NULL
            WHEN q.status = 'open' AND q.kind = 'approval' THEN 'people'
            WHEN q.status = 'open' THEN 'outcome'
            WHEN r.holder IS NOT NULL THEN 'driver'
            WHEN q.status = 'granted' THEN 'grant'
            ELSE 'resume'
        END AS waits
    FROM runs r LEFT JOIN questions q ON q.id = r.question
) w
ORDER BY place;

DROP TABLE runs;
ALTER TABLE runs_waiting RENAME TO runs;
CREATE INDEX runs_by_tenant ON runs (tenant);
CREATE INDEX runs_by_status ON runs (tenant, status);

CREATE TABLE reminders (
    question BLOB NOT NULL,
    status TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (question, status)
) STRICT, WITHOUT ROWID;

CREATE INDEX questions_ending ON questions (
    CASE status WHEN 'open' THEN expires_at ELSE granted_at + grant_ttl_ms * 1000 END
) WHERE closed_at IS NULL;
";

/// Few budgets hold something, and recovery looks for them.
const BUDGETS: &str = "
CREATE TABLE budgets (
    id BLOB NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    scope TEXT NOT NULL,
    opened_at INTEGER NOT NULL,
    caps TEXT NOT NULL,
    spent TEXT NOT NULL,
    excess TEXT NOT NULL,
    unpriced INTEGER NOT NULL,
    holds TEXT NOT NULL,
    learned TEXT NOT NULL,
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL
) STRICT;
CREATE INDEX budgets_held ON budgets (tenant) WHERE holds <> '[]';
";

/// A run may wait for one that it started; the rest of the condition is that of [`WAITS`], and so are the rows. Children are
/// found by their parent, and few of those that have not ended have one that has.
const CHILDREN: &str = "
CREATE TABLE runs_of_trees (
    id BLOB NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    owner TEXT NOT NULL,
    thread BLOB NOT NULL,
    parent BLOB,
    root BLOB NOT NULL,
    goal TEXT NOT NULL,
    salt TEXT NOT NULL,
    limits TEXT NOT NULL,
    tools TEXT NOT NULL,
    policy BLOB NOT NULL,
    agent TEXT NOT NULL,
    unconfined_agent INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    status TEXT NOT NULL,
    reason TEXT,
    note TEXT,
    result TEXT,
    step_count INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    denials INTEGER NOT NULL,
    active_us INTEGER NOT NULL,
    question BLOB,
    epoch INTEGER NOT NULL,
    holder TEXT,
    waits TEXT,
    free_since INTEGER,
    finished_at INTEGER,
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL,
    CONSTRAINT what_a_run_waits_for CHECK (
        CASE
            WHEN status IN ('completed', 'failed', 'cancelled') THEN waits IS NULL AND free_since IS NULL
            WHEN waits = 'driver' THEN holder IS NOT NULL AND free_since IS NULL
            WHEN waits IN ('people', 'outcome')
                THEN status = 'waiting' AND question IS NOT NULL AND free_since IS NULL
            WHEN waits = 'child'
                THEN status = 'waiting' AND question IS NULL AND holder IS NULL AND free_since IS NULL
            WHEN waits = 'grant' THEN status = 'waiting' AND question IS NOT NULL AND free_since IS NOT NULL
            WHEN waits = 'resume' THEN free_since IS NOT NULL
            ELSE 0
        END
    )
) STRICT;

INSERT INTO runs_of_trees (rowid, id, tenant, owner, thread, parent, root, goal, salt, limits, tools, policy, agent,
    unconfined_agent, created_at, status, reason, note, result, step_count, failures, denials, active_us, question,
    epoch, holder, waits, free_since, finished_at, seq, hash)
SELECT rowid, id, tenant, owner, thread, parent, root, goal, salt, limits, tools, policy, agent,
    unconfined_agent, created_at, status, reason, note, result, step_count, failures, denials, active_us, question,
    epoch, holder, waits, free_since, finished_at, seq, hash
FROM runs ORDER BY rowid;

DROP TABLE runs;
ALTER TABLE runs_of_trees RENAME TO runs;
CREATE INDEX runs_by_tenant ON runs (tenant);
CREATE INDEX runs_by_status ON runs (tenant, status);
CREATE INDEX runs_by_parent ON runs (parent) WHERE parent IS NOT NULL;
CREATE INDEX runs_open_children ON runs (tenant) WHERE parent IS NOT NULL AND finished_at IS NULL;
";

/// Of a conversation from before nothing is counted yet.
const TALLIES: &str = "ALTER TABLE threads ADD COLUMN tally TEXT;";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use rusqlite::Connection;

    use super::*;
    use crate::tables::TABLES;

    fn newest(conn: &Connection) {
        for migration in MIGRATIONS {
            conn.execute_batch(migration.sql).unwrap();
        }
    }

    fn names(conn: &Connection, pragma: &str) -> Vec<(String, i64)> {
        let mut statement = conn.prepare(pragma).unwrap();
        let rows = statement.query_map([], |row| Ok((row.get("name")?, row.get("pk")?))).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn state_tables_have_the_columns_of_their_structs() {
        let conn = Connection::open_in_memory().unwrap();
        newest(&conn);
        for table in TABLES {
            let found = names(&conn, &format!("PRAGMA table_info({})", table.name));
            let columns: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(columns, table.columns, "{}", table.name);
            let key = found.iter().filter(|(_, place)| *place > 0).count();
            assert_eq!(key, table.key, "{}", table.name);
            assert!(found.iter().take(key).all(|(_, place)| *place > 0), "{}", table.name);
        }
    }

    #[test]
    fn what_an_index_lists_and_can_change_is_known() {
        let conn = Connection::open_in_memory().unwrap();
        newest(&conn);
        for table in TABLES {
            let query =
                "SELECT DISTINCT c.name FROM pragma_index_list(?1) l, pragma_index_info(l.name) c
                 WHERE c.cid >= 0";
            let mut statement = conn.prepare(query).unwrap();
            let indexed = statement.query_map([table.name], |row| row.get(0)).unwrap();
            let indexed: Vec<String> = indexed.collect::<Result<_, _>>().unwrap();
            let changing = table.columns.iter().skip(table.fixed).copied();
            let listed: Vec<&str> =
                changing.filter(|column| indexed.iter().any(|name| name == column)).collect();
            assert_eq!(listed, table.listed, "{}", table.name);
        }
    }

    #[test]
    fn the_look_for_unknown_outcomes_reads_none_but_those() {
        let conn = Connection::open_in_memory().unwrap();
        newest(&conn);
        let query = format!("EXPLAIN QUERY PLAN {}", super::super::lookup::OPEN_OUTCOMES);
        let mut statement = conn.prepare(&query).unwrap();
        let plan: Vec<String> = statement
            .raw_query()
            .mapped(|row| row.get("detail"))
            .collect::<Result<_, _>>()
            .unwrap();
        assert!(plan[0].contains("q USING INDEX questions_unknown"), "{plan:?}");
        assert!(plan[1..].iter().all(|row| row.contains("(id=?)")), "{plan:?}");
    }

    #[test]
    fn lists_use_an_index_and_sort_nothing() {
        let conn = Connection::open_in_memory().unwrap();
        newest(&conn);
        for list in super::super::read::LISTS {
            let query = format!("SELECT 1 {list}");
            let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {query}")).unwrap();
            let plan: Vec<String> = statement
                .raw_query()
                .mapped(|row| row.get("detail"))
                .collect::<Result<_, _>>()
                .unwrap();
            let plan = plan.join("; ");
            assert!(!plan.contains("TEMP B-TREE"), "{query}: {plan}");
            assert!(
                plan.contains("SEARCH") || query.contains("FROM questions q WHERE EXISTS"),
                "{query}: {plan}"
            );
        }
    }

    #[test]
    fn what_is_due_is_found_by_its_end() {
        let conn = Connection::open_in_memory().unwrap();
        newest(&conn);
        let query = format!("EXPLAIN QUERY PLAN SELECT 1 {}", super::super::read::DUE);
        let mut statement = conn.prepare(&query).unwrap();
        let plan: Vec<String> = statement
            .raw_query()
            .mapped(|row| row.get("detail"))
            .collect::<Result<_, _>>()
            .unwrap();
        let plan = plan.join("; ");
        assert!(plan.contains("q USING INDEX questions_ending (<expr><?)"), "{plan}");
        assert!(!plan.contains("TEMP B-TREE") && !plan.contains("SCAN"), "{plan}");
    }
}
