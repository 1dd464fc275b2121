//! The peer: the rows of a step, written by SQLite alone.
//!
//! The rows are taken from a step that a gate recorded: the same columns with values of the same sizes, through
//! the same hardened connection, with prepared statements. Nothing is looked up, hashed, parsed or handed to
//! another thread. Keys are as random, or as ordered, as those of the gate.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use portcullis::domain::row::Row;
use portcullis::domain::run::Run;
use portcullis::domain::step::Step;
use portcullis::store::sqlite::MIGRATIONS;
use portcullis::store::sqlite::open::{OpenMode, open};
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, params_from_iter};

/// One commit of a step: the events and contents that it adds, and whether it opens the next step.
#[derive(Clone, Debug, Default)]
struct Part {
    events: Vec<Vec<Value>>,
    contents: Vec<Vec<Value>>,
    opens: bool,
}

/// The rows of one recorded step.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    parts: [Part; 3],
    run: Vec<Value>,
    step: Vec<Value>,
}

const EVENT_COLUMNS: [&str; 14] = [
    "journal_seq",
    "stream_seq",
    "journal",
    "tenant",
    "stream_kind",
    "stream_id",
    "step",
    "at",
    "kind",
    "version",
    "journal_prev",
    "stream_prev",
    "hash",
    "payload",
];
const CONTENT_COLUMNS: [&str; 7] =
    ["digest", "tenant", "owner_kind", "owner_id", "owner_seq", "salt", "bytes"];

/// Where these stand among [`EVENT_COLUMNS`].
const EVENT_STREAM: usize = 5;
const EVENT_STEP: usize = 6;

/// Where the id of the owning stream stands among [`CONTENT_COLUMNS`].
const CONTENT_OWNER: usize = 3;

fn list(columns: &[&str]) -> String {
    columns.iter().map(|column| format!("\"{column}\"")).collect::<Vec<_>>().join(", ")
}

fn insert(table: &str, columns: &[&str]) -> String {
    let places = vec!["?"; columns.len()].join(", ");
    format!("INSERT INTO {table} ({}) VALUES ({places})", list(columns))
}

/// The columns that a step changes in a row, with their places; a run's status, which an index lists, stays.
fn changing<R: Row>() -> impl Iterator<Item = (usize, &'static str)> {
    let all = R::COLUMNS.iter().copied().enumerate().skip(R::FIXED);
    all.filter(|(_, column)| !(R::TABLE == Run::TABLE && *column == "status"))
}

fn update<R: Row>() -> String {
    let changing: Vec<String> =
        changing::<R>().map(|(_, column)| format!("\"{column}\" = ?")).collect();
    format!("UPDATE {} SET {} WHERE id = ?", R::TABLE, changing.join(", "))
}

fn rows(conn: &Connection, query: &str, key: &[u8], width: usize) -> Result<Vec<Vec<Value>>> {
    let mut statement = conn.prepare(query)?;
    let rows =
        statement.query_map([key], |row| (0..width).map(|place| row.get(place)).collect())?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

impl Template {
    /// Takes the second step of the only run in the database at `path`; the first one also labels the thread.
    pub(crate) fn taken(path: &Path) -> Result<Self> {
        let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let step: Vec<u8> =
            conn.query_row(r#"SELECT id FROM steps WHERE "index" = 1"#, [], |row| row.get(0))?;
        let query =
            format!("SELECT {} FROM events WHERE step = ?1 ORDER BY 1", list(&EVENT_COLUMNS));
        let events = rows(&conn, &query, &step, EVENT_COLUMNS.len())?;
        let query = format!(
            "SELECT {} FROM contents WHERE (owner_id, owner_seq) IN
                 (SELECT stream_id, stream_seq FROM events WHERE step = ?1) ORDER BY owner_seq",
            list(&CONTENT_COLUMNS)
        );
        let contents = rows(&conn, &query, &step, CONTENT_COLUMNS.len())?;
        let [proposal, observation] = contents.as_slice() else {
            anyhow::bail!("a step brought {} contents", contents.len());
        };
        let of = |kind: &str| {
            let named = |row: &&Vec<Value>| row.get(8) == Some(&Value::Text(kind.to_owned()));
            events.iter().find(named).cloned().with_context(|| format!("a step without {kind}"))
        };
        let proposed = Part {
            events: vec![of("step.proposed")?],
            contents: vec![proposal.clone()],
            opens: false,
        };
        let started =
            Part { events: vec![of("step.judged")?, of("step.started")?], ..Part::default() };
        let finished = Part {
            events: vec![of("step.finished")?, of("step.opened")?],
            contents: vec![observation.clone()],
            opens: true,
        };
        ensure!(events.len() == 5, "a step of {} events", events.len());
        let one = |table: &str, columns: &[&str], key: &str| -> Result<Vec<Value>> {
            let query = format!("SELECT {} FROM {table} WHERE {key}", list(columns));
            Ok(conn.query_row(&query, [], |row| (0..columns.len()).map(|n| row.get(n)).collect())?)
        };
        Ok(Self {
            parts: [proposed, started, finished],
            run: one(Run::TABLE, Run::COLUMNS, "1")?,
            step: one(Step::TABLE, Step::COLUMNS, "\"index\" = 1")?,
        })
    }
}

/// What the three commits of one bare step took, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BareStep {
    pub(crate) written: f64,
    pub(crate) intent: f64,
    pub(crate) outcome: f64,
}

impl BareStep {
    /// The whole step.
    pub(crate) fn whole(self) -> f64 {
        self.written + self.intent + self.outcome
    }
}

/// A database that takes a template's rows again and again.
pub(crate) struct Bare {
    conn: Connection,
    template: Template,
    sql: Statements,
    runs: Vec<Own>,
    journal_seq: i64,
    digests: u64,
    /// Steps that were opened, of all runs.
    steps: u64,
}

/// A run, and how far it is.
struct Own {
    id: Value,
    stream_seq: i64,
    /// Its open step.
    step: Value,
    index: u64,
}

struct Statements {
    event: String,
    content: String,
    insert_step: String,
    update_step: String,
    update_run: String,
}

impl Bare {
    /// A new database with one run in `folder`.
    pub(crate) fn create(folder: &Path, template: &Template) -> Result<Self> {
        Self::of_many(folder, template, 1)
    }

    /// A new database with this many runs in `folder`.
    pub(crate) fn of_many(folder: &Path, template: &Template, runs: u64) -> Result<Self> {
        let opened = open(&folder.join("bare.db"), OpenMode::CreateOrOpen, MIGRATIONS)?;
        opened.conn.set_prepared_statement_cache_capacity(64);
        let sql = Statements {
            event: insert("events", &EVENT_COLUMNS),
            content: insert("contents", &CONTENT_COLUMNS),
            insert_step: insert(Step::TABLE, Step::COLUMNS),
            update_step: update::<Step>(),
            update_run: update::<Run>(),
        };
        let mut bare = Self {
            conn: opened.conn,
            template: template.clone(),
            sql,
            runs: Vec::new(),
            journal_seq: 0,
            digests: 0,
            steps: 0,
        };
        bare.run("BEGIN IMMEDIATE")?;
        for number in 0..runs {
            bare.begin(in_order(0x02, number))?;
        }
        bare.run("COMMIT")?;
        Ok(bare)
    }

    /// Adds a run with its first step.
    fn begin(&mut self, id: Value) -> Result<()> {
        let rest = self.template.run.iter().skip(1);
        let cells = std::iter::once(&id).chain(rest);
        let insert = insert(Run::TABLE, Run::COLUMNS);
        self.conn.prepare_cached(&insert)?.execute(params_from_iter(cells))?;
        self.runs.push(Own { id, stream_seq: 0, step: Value::Null, index: 0 });
        self.open_step(self.runs.len().saturating_sub(1))
    }

    /// Writes one step of the first run in its three commits: one that is only written, two that are synced.
    pub(crate) fn step(&mut self) -> Result<BareStep> {
        self.conn.execute_batch("PRAGMA main.synchronous = NORMAL")?;
        let written = self.commit(0)?;
        self.conn.execute_batch("PRAGMA main.synchronous = FULL")?;
        let intent = self.commit(1)?;
        let outcome = self.commit(2)?;
        let micros = crate::figures::micros;
        Ok(BareStep { written: micros(written), intent: micros(intent), outcome: micros(outcome) })
    }

    /// Writes this many steps of each run, the runs in turn, in synced commits of `most` parts each.
    pub(crate) fn batches(&mut self, steps: u64, most: u64) -> Result<Duration> {
        let begun = Instant::now();
        let mut in_batch = 0_u64;
        self.run("BEGIN IMMEDIATE")?;
        for part in (0..steps).flat_map(|_| 0..3) {
            for run in 0..self.runs.len() {
                self.write(run, part)?;
                in_batch = in_batch.saturating_add(1);
                if in_batch == most {
                    self.run("COMMIT")?;
                    self.run("BEGIN IMMEDIATE")?;
                    in_batch = 0;
                }
            }
        }
        self.run("COMMIT")?;
        Ok(begun.elapsed())
    }

    fn run(&self, sql: &str) -> Result<()> {
        self.conn.prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    fn commit(&mut self, part: usize) -> Result<Duration> {
        let begun = Instant::now();
        self.run("BEGIN IMMEDIATE")?;
        self.write(0, part)?;
        self.run("COMMIT")?;
        Ok(begun.elapsed())
    }

    /// Writes one part of a run's open step.
    fn write(&mut self, run: usize, part: usize) -> Result<()> {
        let stage = part.saturating_add(1);
        let (Some(part), Some(own)) = (self.template.parts.get(part), self.runs.get_mut(run))
        else {
            return Ok(());
        };
        let opens = part.opens;
        for row in &part.events {
            self.journal_seq = self.journal_seq.saturating_add(1);
            own.stream_seq = own.stream_seq.saturating_add(1);
            let mut row = row.clone();
            for (place, cell) in row.iter_mut().enumerate() {
                match place {
                    0 => *cell = Value::Integer(self.journal_seq),
                    1 => *cell = Value::Integer(own.stream_seq),
                    EVENT_STREAM => *cell = own.id.clone(),
                    EVENT_STEP => *cell = own.step.clone(),
                    _ => {}
                }
            }
            self.conn.prepare_cached(&self.sql.event)?.execute(params_from_iter(&row))?;
        }
        for row in &part.contents {
            self.digests = self.digests.saturating_add(1);
            let mut row = row.clone();
            for (place, cell) in row.iter_mut().enumerate() {
                match place {
                    0 => *cell = scattered(self.digests),
                    CONTENT_OWNER => *cell = own.id.clone(),
                    _ => {}
                }
            }
            self.conn.prepare_cached(&self.sql.content)?.execute(params_from_iter(&row))?;
        }
        self.update(run, stage)?;
        if opens { self.open_step(run) } else { Ok(()) }
    }

    /// Writes the rows of a run and of its open step.
    fn update(&self, run: usize, stage: usize) -> Result<()> {
        let Some(own) = self.runs.get(run) else { return Ok(()) };
        let cells = self.run_cells(own).chain(std::iter::once(own.id.clone()));
        self.conn.prepare_cached(&self.sql.update_run)?.execute(params_from_iter(cells))?;
        let cells = self.step_cells(stage).skip(Step::FIXED);
        let cells = cells.chain(std::iter::once(own.step.clone()));
        self.conn.prepare_cached(&self.sql.update_step)?.execute(params_from_iter(cells))?;
        Ok(())
    }

    /// The run's cells that change, other ones each time: SQLite leaves alone what is as it was.
    fn run_cells(&self, own: &Own) -> impl Iterator<Item = Value> {
        let (seq, index) = (own.stream_seq, i64::try_from(own.index).unwrap_or(i64::MAX));
        changing::<Run>().map(move |(place, column)| match column {
            "seq" => Value::Integer(seq),
            "step_count" => Value::Integer(index),
            "hash" => scattered(u64::MAX - self.journal_seq.unsigned_abs()),
            _ => self.template.run.get(place).cloned().unwrap_or(Value::Null),
        })
    }

    /// The step's cells as they are after this many commits: what comes later is absent.
    fn step_cells(&self, stage: usize) -> impl Iterator<Item = Value> {
        Step::COLUMNS.iter().zip(&self.template.step).map(move |(column, cell)| {
            let since = match *column {
                "proposal" => 1,
                "kind" | "origin" | "admitted" | "verdict" | "policy" | "started_at" => 2,
                "observation" | "finished_at" => 3,
                _ => 0,
            };
            if stage < since { Value::Null } else { cell.clone() }
        })
    }

    /// Adds the row of a run's next step as it is when it is opened.
    fn open_step(&mut self, run: usize) -> Result<()> {
        let id = in_order(0x01, self.steps);
        self.steps = self.steps.saturating_add(1);
        let Some(own) = self.runs.get_mut(run) else { return Ok(()) };
        let index = own.index;
        own.index = index.saturating_add(1);
        own.step = id.clone();
        let of = own.id.clone();
        let cells =
            Step::COLUMNS.iter().zip(self.step_cells(0)).map(|(column, cell)| match *column {
                "id" => id.clone(),
                "run" => of.clone(),
                "index" => Value::Integer(i64::try_from(index).unwrap_or(i64::MAX)),
                _ => cell,
            });
        self.conn.prepare_cached(&self.sql.insert_step)?.execute(params_from_iter(cells))?;
        Ok(())
    }
}

/// Ids begin with their time, so they are in order.
fn in_order(first: u8, number: u64) -> Value {
    let mut id = vec![first; 16];
    id.splice(0..8, number.to_be_bytes());
    Value::Blob(id)
}

/// A digest's bytes: anywhere in the index. The mixing is that of SplitMix64.
fn scattered(number: u64) -> Value {
    let mut bytes = Vec::with_capacity(32);
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for _ in 0..4 {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend((mixed ^ (mixed >> 31)).to_be_bytes());
    }
    Value::Blob(bytes)
}
