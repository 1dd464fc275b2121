//! The raw tables of both stores as plain rows of cells, as somebody with an editor sees them.

use portcullis_audit::{Options, Report, verify};
use portcullis_domain::approval::Approval;
use portcullis_domain::budget::Budget;
use portcullis_domain::ports::{Ledgers, StoredContent, StoredEvent};
use portcullis_domain::question::Question;
use portcullis_domain::row::{Cell, Row};
use portcullis_domain::run::Run;
use portcullis_domain::step::Step;
use portcullis_domain::thread::Thread;
use portcullis_store::memory::MemoryStore;

/// One table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) columns: Vec<String>,
    /// Which columns make the primary key.
    pub(crate) key: Vec<usize>,
    pub(crate) rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn column(&self, name: &str) -> usize {
        self.columns.iter().position(|column| column == name).unwrap()
    }
}

/// Every table that verification covers.
pub(crate) const COVERED: [&str; 9] = [
    "approvals",
    "budgets",
    "contents",
    "events",
    "questions",
    "runs",
    "specs",
    "steps",
    "threads",
];

/// A store whose tables a test can write behind its back.
pub(crate) trait Editable {
    /// All covered tables, each with its rows.
    fn tables(&self) -> Vec<Table>;

    /// Replaces the rows of one table; says why when the table cannot hold such rows, and then changes nothing.
    fn write(&self, table: &Table) -> Result<(), String>;

    fn ledgers(&self) -> &dyn Ledgers;

    fn verify(&self, options: Options<'_>) -> Report {
        verify(&mut *self.ledgers().begin().unwrap(), options).unwrap()
    }

    fn table(&self, name: &str) -> Table {
        self.tables().into_iter().find(|table| table.name == name).unwrap()
    }
}

fn blob(bytes: &[u8]) -> Cell {
    Cell::Blob(bytes.to_vec())
}

fn text(text: &str) -> Cell {
    Cell::Text(text.to_owned())
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Takes an event apart. A new field does not compile until it stands here.
fn event_cells(event: StoredEvent) -> Vec<Cell> {
    let StoredEvent {
        journal,
        journal_seq,
        tenant,
        stream_kind,
        stream_id,
        stream_seq,
        step,
        at,
        kind,
        version,
        payload,
        journal_prev,
        stream_prev,
        hash,
    } = event;
    vec![
        Cell::Blob(journal),
        Cell::Int(journal_seq),
        Cell::Text(tenant),
        Cell::Text(stream_kind),
        Cell::Blob(stream_id),
        Cell::Int(stream_seq),
        step.map_or(Cell::Null, Cell::Blob),
        Cell::Int(at),
        Cell::Text(kind),
        Cell::Int(version),
        Cell::Blob(payload),
        Cell::Blob(journal_prev),
        Cell::Blob(stream_prev),
        Cell::Blob(hash),
    ]
}

const EVENT_COLUMNS: [&str; 14] = [
    "journal",
    "journal_seq",
    "tenant",
    "stream_kind",
    "stream_id",
    "stream_seq",
    "step",
    "at",
    "kind",
    "version",
    "payload",
    "journal_prev",
    "stream_prev",
    "hash",
];

/// Cells that are taken one after the other, each as the type that its field has.
struct Cells<'a>(std::slice::Iter<'a, Cell>);

impl Cells<'_> {
    fn int(&mut self) -> Option<i64> {
        match self.0.next()? {
            Cell::Int(value) => Some(*value),
            _ => None,
        }
    }

    fn text(&mut self) -> Option<String> {
        match self.0.next()? {
            Cell::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    fn blob(&mut self) -> Option<Vec<u8>> {
        self.maybe_blob()?
    }

    fn maybe_blob(&mut self) -> Option<Option<Vec<u8>>> {
        match self.0.next()? {
            Cell::Null => Some(None),
            Cell::Blob(bytes) => Some(Some(bytes.clone())),
            _ => None,
        }
    }
}

fn event_of(cells: &[Cell]) -> Option<StoredEvent> {
    let mut cells = Cells(cells.iter());
    Some(StoredEvent {
        journal: cells.blob()?,
        journal_seq: cells.int()?,
        tenant: cells.text()?,
        stream_kind: cells.text()?,
        stream_id: cells.blob()?,
        stream_seq: cells.int()?,
        step: cells.maybe_blob()?,
        at: cells.int()?,
        kind: cells.text()?,
        version: cells.int()?,
        payload: cells.blob()?,
        journal_prev: cells.blob()?,
        stream_prev: cells.blob()?,
        hash: cells.blob()?,
    })
}

fn content_cells(content: StoredContent) -> Vec<Cell> {
    let StoredContent { digest, tenant, owner: (kind, id, seq), salt, bytes } = content;
    vec![
        Cell::Blob(digest),
        Cell::Text(tenant),
        Cell::Text(kind),
        Cell::Blob(id),
        Cell::Int(seq),
        Cell::Blob(salt),
        Cell::Blob(bytes),
    ]
}

const CONTENT_COLUMNS: [&str; 7] =
    ["digest", "tenant", "owner_kind", "owner_id", "owner_seq", "salt", "bytes"];

fn content_of(cells: &[Cell]) -> Option<StoredContent> {
    let mut cells = Cells(cells.iter());
    Some(StoredContent {
        digest: cells.blob()?,
        tenant: cells.text()?,
        owner: (cells.text()?, cells.blob()?, cells.int()?),
        salt: cells.blob()?,
        bytes: cells.blob()?,
    })
}

fn state_table<R: Row>(store: &MemoryStore) -> Table {
    Table {
        name: R::TABLE.to_owned(),
        columns: strings(R::COLUMNS),
        key: (0..R::KEY).collect(),
        rows: store.tamper(|raw| raw.table(R::TABLE).to_vec()).unwrap(),
    }
}

impl Editable for MemoryStore {
    fn tables(&self) -> Vec<Table> {
        let (events, contents, specs) = self
            .tamper(|raw| (raw.events.clone(), raw.contents.clone(), raw.specs.clone()))
            .unwrap();
        vec![
            state_table::<Approval>(self),
            state_table::<Budget>(self),
            Table {
                name: "contents".to_owned(),
                columns: strings(&CONTENT_COLUMNS),
                key: vec![0],
                rows: contents.into_values().map(content_cells).collect(),
            },
            Table {
                name: "events".to_owned(),
                columns: strings(&EVENT_COLUMNS),
                key: vec![0, 1],
                rows: events.into_iter().map(event_cells).collect(),
            },
            state_table::<Question>(self),
            state_table::<Run>(self),
            Table {
                name: "specs".to_owned(),
                columns: strings(&["digest", "bytes"]),
                key: vec![0],
                rows: specs
                    .into_iter()
                    .map(|(digest, bytes)| vec![blob(&digest), blob(&bytes)])
                    .collect(),
            },
            state_table::<Step>(self),
            state_table::<Thread>(self),
        ]
    }

    fn write(&self, table: &Table) -> Result<(), String> {
        let unfit = || "a field of another type".to_owned();
        match table.name.as_str() {
            "events" => {
                let events: Option<Vec<_>> = table.rows.iter().map(|row| event_of(row)).collect();
                let events = events.ok_or_else(unfit)?;
                self.tamper(|raw| raw.events = events).unwrap();
            }
            "contents" => {
                let rows: Option<Vec<_>> = table.rows.iter().map(|row| content_of(row)).collect();
                let rows = rows.ok_or_else(unfit)?;
                let keyed = rows.into_iter().map(|row| (row.digest.clone(), row)).collect();
                self.tamper(|raw| raw.contents = keyed).unwrap();
            }
            "specs" => {
                let pair = |row: &Vec<Cell>| {
                    let mut cells = Cells(row.iter());
                    Some((cells.blob()?, cells.blob()?))
                };
                let keyed: Option<_> = table.rows.iter().map(pair).collect();
                let keyed = keyed.ok_or_else(unfit)?;
                self.tamper(|raw| raw.specs = keyed).unwrap();
            }
            name => {
                self.tamper(|raw| *raw.rows.get_mut(name).unwrap() = table.rows.clone()).unwrap();
            }
        }
        Ok(())
    }

    fn ledgers(&self) -> &dyn Ledgers {
        self
    }
}

/// Values that could stand in the place of this one: changed, absent, or taken from elsewhere.
pub(crate) fn others(cell: &Cell, column: &[&Cell]) -> Vec<Cell> {
    match cell {
        Cell::Int(value) => vec![Cell::Int(value.wrapping_add(1)), Cell::Int(-1), Cell::Null],
        Cell::Text(value) => {
            let mut longer = value.clone();
            longer.push('x');
            let borrowed = column.iter().find(|other| **other != cell && ***other != Cell::Null);
            let mut values = vec![Cell::Text(longer), text(""), Cell::Null];
            values.extend(borrowed.map(|other| (**other).clone()));
            values
        }
        Cell::Blob(bytes) => {
            let mut flipped = bytes.clone();
            match flipped.last_mut() {
                Some(last) => *last ^= 1,
                None => flipped.push(0),
            }
            vec![Cell::Blob(flipped), Cell::Blob(Vec::new()), Cell::Null]
        }
        Cell::Null => {
            let borrowed = column.iter().find(|other| ***other != Cell::Null);
            let mut values = vec![Cell::Int(1), text("x"), blob(&[7; 16])];
            values.extend(borrowed.map(|other| (**other).clone()));
            values
        }
    }
}
