//! Rows: how the fold's structs lie in tables, cell by cell.
//!
//! A store writes these cells and nothing else into the state tables, and `verify` compares them one by
//! one with a fresh fold. A new field of a struct does not compile until it has a column here.

use portcullis_canon::{Digest, Limits as JsonLimits, from_slice, to_text};
use serde::{Serialize, de::DeserializeOwned};

use crate::approval::{Approval, Signature};
use crate::budget::Budget;
use crate::content::ContentRef;
use crate::id::{BudgetId, QuestionId, RunId, StepId, ThreadId};
use crate::lease::Epoch;
use crate::question::Question;
use crate::run::Run;
use crate::scope::Tenant;
use crate::step::Step;
use crate::thread::Thread;
use crate::time::Timestamp;

/// One cell of a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cell {
    /// Absent.
    Null,
    /// An integer.
    Int(i64),
    /// Text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

/// A row that does not have the form of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column `{column}` of a row in `{table}` is damaged")]
pub struct RowError {
    /// The table.
    pub table: &'static str,
    /// The column.
    pub column: &'static str,
}

/// A struct that the fold names, as a row.
pub trait Row: Sized {
    /// The table.
    const TABLE: &'static str;
    /// The columns in order. The first [`Row::KEY`] are the primary key; the first [`Row::FIXED`] never change.
    const COLUMNS: &'static [&'static str];
    /// How many columns make the primary key.
    const KEY: usize;
    /// How many columns are written once.
    const FIXED: usize;

    /// The cells, in the order of [`Row::COLUMNS`].
    fn cells(&self) -> Vec<Cell>;

    /// The first [`Row::KEY`] cells.
    fn key_cells(&self) -> Vec<Cell>;

    /// The cells after the first [`Row::FIXED`].
    fn changing_cells(&self) -> Vec<Cell>;

    /// The struct that has these cells.
    ///
    /// # Errors
    /// [`RowError`] names the first column that does not fit.
    fn from_cells(cells: &[Cell]) -> Result<Self, RowError>;
}

/// A value that has one cell.
trait Column: Sized {
    fn cell(&self) -> Cell;
    fn read(cell: &Cell) -> Option<Self>;
}

/// Structure without a column of its own: canonical JSON text.
struct Json<T>(T);

impl<T: Serialize + DeserializeOwned> Json<T> {
    fn cell(value: &T) -> Cell {
        match to_text(value) {
            Ok(text) => Cell::Text(text),
            // The structs hold only what their wire forms can write, so this is a bug, and one that reads
            // back as a damaged row instead of as another value.
            _ => Cell::Blob(Vec::new()),
        }
    }

    fn read(cell: &Cell) -> Option<Self> {
        let Cell::Text(text) = cell else { return None };
        let value: T = from_slice(text.as_bytes(), &JsonLimits::ENVELOPE).ok()?;
        // One spelling only, so that equal structs are equal cells.
        (Self::cell(&value) == *cell).then_some(Self(value))
    }
}

impl<T: Column> Column for Option<T> {
    fn cell(&self) -> Cell {
        self.as_ref().map_or(Cell::Null, T::cell)
    }

    fn read(cell: &Cell) -> Option<Self> {
        if *cell == Cell::Null { Some(None) } else { T::read(cell).map(Some) }
    }
}

macro_rules! integer_columns {
    ($($name:ty),*) => {$(
        impl Column for $name {
            fn cell(&self) -> Cell {
                // Counters of a run cannot reach 2^63; a value that did would read back as damaged.
                Cell::Int(i64::try_from(*self).unwrap_or(-1))
            }

            fn read(cell: &Cell) -> Option<Self> {
                let Cell::Int(value) = cell else { return None };
                Self::try_from(*value).ok()
            }
        }
    )*};
}

integer_columns!(u64, u32);

macro_rules! id_columns {
    ($($name:ident),*) => {$(
        impl Column for $name {
            fn cell(&self) -> Cell {
                Cell::Blob(self.as_bytes().to_vec())
            }

            fn read(cell: &Cell) -> Option<Self> {
                let Cell::Blob(bytes) = cell else { return None };
                bytes.as_slice().try_into().ok().map(Self::from_bytes)
            }
        }
    )*};
}

id_columns!(RunId, StepId, ThreadId, QuestionId, BudgetId, Digest);

/// Enums and newtypes whose wire form is one text.
macro_rules! text_columns {
    ($($name:ty),* $(,)?) => {$(
        impl Column for $name {
            fn cell(&self) -> Cell {
                match portcullis_canon::to_value(self) {
                    Ok(portcullis_canon::Value::String(text)) => Cell::Text(text),
                    _ => Cell::Blob(Vec::new()),
                }
            }

            fn read(cell: &Cell) -> Option<Self> {
                let Cell::Text(text) = cell else { return None };
                portcullis_canon::from_value(&portcullis_canon::Value::String(text.clone())).ok()
            }
        }
    )*};
}

text_columns!(
    Tenant,
    crate::run::RunStatus,
    crate::run::EndReason,
    crate::step::StepStatus,
    crate::proposal::ProposalKind,
    crate::proposal::ProposalOrigin,
    crate::question::QuestionKind,
    crate::observation::Failure,
    crate::question::QuestionStatus,
    crate::verdict::OnRejection,
    crate::wait::Wait,
);

/// Structs that lie in one cell as canonical JSON.
macro_rules! json_columns {
    ($($name:ty),* $(,)?) => {$(
        impl Column for $name {
            fn cell(&self) -> Cell {
                Json::cell(self)
            }

            fn read(cell: &Cell) -> Option<Self> {
                Json::read(cell).map(|json| json.0)
            }
        }
    )*};
}

json_columns!(
    ContentRef,
    crate::lease::Holder,
    crate::limits::Limits,
    Vec<crate::run::FrozenTool>,
    crate::step::Admitted,
    crate::verdict::Verdict,
    crate::verdict::Reviewers,
    crate::observation::Observation,
    crate::label::Labels,
    crate::tally::Tally,
    crate::approval::Statement,
    crate::budget::BudgetScope,
    crate::budget::Caps,
    crate::budget::Amounts,
    Vec<crate::budget::Hold>,
    std::collections::BTreeMap<String, crate::budget::Learned>,
);

impl Column for String {
    fn cell(&self) -> Cell {
        Cell::Text(self.clone())
    }

    fn read(cell: &Cell) -> Option<Self> {
        let Cell::Text(text) = cell else { return None };
        Some(text.clone())
    }
}

impl Column for bool {
    fn cell(&self) -> Cell {
        Cell::Int(i64::from(*self))
    }

    fn read(cell: &Cell) -> Option<Self> {
        match cell {
            Cell::Int(0) => Some(false),
            Cell::Int(1) => Some(true),
            _ => None,
        }
    }
}

impl Column for Timestamp {
    fn cell(&self) -> Cell {
        Cell::Int(self.micros())
    }

    fn read(cell: &Cell) -> Option<Self> {
        let Cell::Int(micros) = cell else { return None };
        let instant = Self::from_micros(*micros);
        (instant.micros() == *micros).then_some(instant)
    }
}

impl Column for Epoch {
    fn cell(&self) -> Cell {
        self.0.cell()
    }

    fn read(cell: &Cell) -> Option<Self> {
        u64::read(cell).map(Self)
    }
}

impl Column for Signature {
    fn cell(&self) -> Cell {
        Cell::Blob(self.0.to_vec())
    }

    fn read(cell: &Cell) -> Option<Self> {
        let Cell::Blob(bytes) = cell else { return None };
        bytes.as_slice().try_into().ok().map(Self)
    }
}

macro_rules! rows {
    ($($name:ident in $table:literal, key $key:literal, fixed $fixed:literal { $($field:ident),* $(,)? })*) => {$(
        impl Row for $name {
            const TABLE: &'static str = $table;
            const COLUMNS: &'static [&'static str] = &[$(stringify!($field)),*];
            const KEY: usize = $key;
            const FIXED: usize = $fixed;

            fn cells(&self) -> Vec<Cell> {
                let Self { $($field),* } = self;
                vec![$($field.cell()),*]
            }

            fn key_cells(&self) -> Vec<Cell> {
                let mut cells = Vec::with_capacity($key);
                let mut places = 0_usize..;
                $(if places.next() < Some($key) {
                    cells.push(self.$field.cell());
                })*
                cells
            }

            // Apart from `cells`, since this is on the path of each append and some fixed cells are large.
            fn changing_cells(&self) -> Vec<Cell> {
                let mut cells = Vec::with_capacity(Self::COLUMNS.len());
                let mut places = 0_usize..;
                $(if places.next() >= Some($fixed) {
                    cells.push(self.$field.cell());
                })*
                cells
            }

            fn from_cells(cells: &[Cell]) -> Result<Self, RowError> {
                let mut cells = cells.iter();
                $(
                    let $field = cells.next().and_then(Column::read)
                        .ok_or(RowError { table: $table, column: stringify!($field) })?;
                )*
                Ok(Self { $($field),* })
            }
        }
    )*};
}

rows! {
    Run in "runs", key 1, fixed 14 {
        id, tenant, owner, thread, parent, root, goal, salt, limits, tools, policy, agent, unconfined_agent,
        created_at, status, reason, note, result, step_count, failures, denials, active_us, question, epoch,
        holder, waits, free_since, finished_at, seq, hash,
    }
    Step in "steps", key 1, fixed 3 {
        id, run, index, batch, batch_index, opened_at, status, proposal, kind, origin, admitted, verdict, policy,
        question, attempts, starts, observation, started_at, finished_at,
    }
    Question in "questions", key 1, fixed 15 {
        id, run, step, kind, digest, call, card, reviewers, on_rejection, uses, expires_at, grant_ttl_ms, cause, detail,
        asked_at, status,
        used, yes, granted_at, closed_at,
    }
    Approval in "approvals", key 2, fixed 4 {
        question, person, statement, signature,
    }
    Thread in "threads", key 1, fixed 4 {
        id, tenant, owner, opened_at, labels, label_seq, seq, hash, tally,
    }
    Budget in "budgets", key 1, fixed 4 {
        id, tenant, scope, opened_at, caps, spent, excess, unpriced, holds, learned, seq, hash,
    }
}
