//! What a verification found: counts of what was checked, and each break by a stable name.

use std::fmt;

use portcullis_canon::{Digest, sanitize};
use portcullis_domain::id::{BudgetId, InstanceId, JournalId, QuestionId, RunId, StepId, ThreadId};
use portcullis_domain::row::Cell;
use portcullis_domain::stream::Stream;
use serde::Serialize;

use super::{MAX_BREAKS, Stop};

/// The most bytes of a stored value that a break shows.
const MAX_SHOWN: usize = 160;

/// Which event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The journal.
    pub journal: JournalId,
    /// The sequence in it, as stored.
    pub seq: i64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {} of {}", self.seq, self.journal)
    }
}

/// One thing that does not follow from the events. The serialised `kind` is stable.
///
/// Stored text in it is sanitised and cut; contents are never in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Break {
    /// There is no event at all, and even a new store has one.
    #[error("the store holds no event; a new one has at least one")]
    Empty,
    /// The file's pages or indexes do not fit together: what is found depends on how one looks for it.
    #[error("the file's pages or indexes do not fit together")]
    Unsound,
    /// An event is missing, or stands where none belongs.
    #[error("{journal} goes on with event {found} where {expected} belongs")]
    JournalGap {
        /// The journal.
        journal: JournalId,
        /// The next sequence.
        expected: u64,
        /// What stands there.
        found: i64,
    },
    /// An event does not name the hash of the event before it in its journal.
    #[error("{at} does not follow the event before it in its journal")]
    JournalChain {
        /// Which event.
        at: Place,
    },
    /// An event is not what its hash says.
    #[error("{at} is not what its hash says")]
    HashMismatch {
        /// Which event.
        at: Place,
        /// The hash of what is stored.
        expected: Digest,
        /// The stored hash.
        found: String,
    },
    /// An event is missing in a stream, or stands where none belongs.
    #[error("{stream} goes on with event {found} where {expected} belongs")]
    StreamGap {
        /// The stream.
        stream: String,
        /// The next sequence.
        expected: u64,
        /// What stands there.
        found: i64,
    },
    /// An event does not name the hash of the event before it in its stream.
    #[error("{at} does not follow the event before it in its stream")]
    StreamChain {
        /// Which event.
        at: Place,
    },
    /// A column of an event does not have its form.
    #[error("column `{column}` of {at} does not have its form")]
    BadEvent {
        /// Which event.
        at: Place,
        /// The column.
        column: &'static str,
    },
    /// A payload does not have the form of its type.
    #[error("the payload of {at} does not have the form of a `{event}`")]
    BadPayload {
        /// Which event.
        at: Place,
        /// The type.
        event: String,
    },
    /// A type or version that this program does not know.
    #[error("{at} is a `{event}` version {version}, which is not known here")]
    UnknownEvent {
        /// Which event.
        at: Place,
        /// The type.
        event: String,
        /// The version.
        version: i64,
    },
    /// An event that cannot follow the ones before it.
    #[error("{at} cannot stand where it stands: {why}")]
    NotAdmitted {
        /// Which event.
        at: Place,
        /// Why not.
        why: String,
    },
    /// A stream that stops in the middle of what is recorded at once.
    #[error("{stream} stops where it cannot: {why}")]
    StreamUnfinished {
        /// The stream.
        stream: String,
        /// What is missing.
        why: String,
    },
    /// An event of another tenant than its stream.
    #[error("{at} belongs to another tenant than its stream")]
    TenantMismatch {
        /// Which event.
        at: Place,
    },
    /// A run and the one that is said to have started it do not name each other, or the one has what the other has not.
    #[error("{child} is not what {parent} started, or has more than that one may give")]
    FamilyMismatch {
        /// The run below.
        child: RunId,
        /// The run above.
        parent: RunId,
    },
    /// A cell is not what the events say.
    #[error("`{column}` of {key} in `{table}` is {found}, and the events say {expected}")]
    RowMismatch {
        /// The table.
        table: &'static str,
        /// The primary key.
        key: String,
        /// The column.
        column: &'static str,
        /// What the events say.
        expected: String,
        /// What is stored.
        found: String,
    },
    /// A row that cannot be read.
    #[error("row {key} of `{table}` cannot be read")]
    RowDamaged {
        /// The table.
        table: &'static str,
        /// The primary key, or where the reading stopped.
        key: String,
    },
    /// A row that the events make is not there.
    #[error("row {key} of `{table}` is missing")]
    RowMissing {
        /// The table.
        table: &'static str,
        /// The primary key.
        key: String,
    },
    /// A table has rows that no event accounts for.
    #[error("`{table}` has {found} rows, and the events account for {expected}")]
    RowExtra {
        /// The table.
        table: &'static str,
        /// Rows that the events account for.
        expected: u64,
        /// Rows in the table.
        found: u64,
    },
    /// A table has fewer rows than the events account for.
    #[error("`{table}` has {found} rows, and the events account for {expected}")]
    RowLost {
        /// The table.
        table: &'static str,
        /// Rows that the events account for.
        expected: u64,
        /// Rows in the table.
        found: u64,
    },
    /// The journals hold other events than the streams.
    #[error("the journals hold {journals} events, the streams that begin in them {streams}")]
    EventsApart {
        /// Events in journals.
        journals: u64,
        /// Events in streams.
        streams: u64,
    },
    /// A content is not there, and no event says that it was erased.
    #[error("a content that {at} names is missing, and its erasure is not recorded")]
    ContentMissing {
        /// Which event names it.
        at: Place,
        /// The content.
        content: Digest,
    },
    /// A content is not what its digest says, or belongs to something else.
    #[error("the {part} of a content that {at} names is not what the event says")]
    ContentMismatch {
        /// Which event names it.
        at: Place,
        /// The content.
        content: Digest,
        /// What differs: `bytes`, `size`, `salt`, `tenant`, `owner` or `row`.
        part: &'static str,
    },
    /// A content is there although its erasure is recorded.
    #[error("a content is there although {at} says that it was erased")]
    ContentExtra {
        /// The event that records the erasure.
        at: Place,
        /// The content.
        content: Digest,
    },
    /// A tool's spec is not there.
    #[error("a tool spec that {at} names is missing")]
    SpecMissing {
        /// Which event names it.
        at: Place,
        /// The spec.
        spec: Digest,
    },
    /// A tool's spec is not what its digest says.
    #[error("a tool spec that {at} names is not what its digest says")]
    SpecMismatch {
        /// Which event names it.
        at: Place,
        /// The spec.
        spec: Digest,
    },
    /// An answer is not signed by the key that it names.
    #[error("the answer in {at} is not signed by the key that it names")]
    BadSignature {
        /// Which event.
        at: Place,
        /// The question.
        question: QuestionId,
    },
    /// An answer is signed by another person's key.
    #[error("the answer in {at} is signed by the key of another person than it names")]
    PersonMismatch {
        /// Which event.
        at: Place,
        /// The question.
        question: QuestionId,
    },
    /// A digest that an answer rests on is not that of what it names.
    #[error("the {which} digest in {at} is not that of what was asked")]
    DigestMismatch {
        /// Which event.
        at: Place,
        /// The question.
        question: QuestionId,
        /// `question` or `call`.
        which: &'static str,
    },
    /// A question asks other people than its card says, or its card cannot be read.
    #[error("the question in {at} asks other people than its card says")]
    ReviewersMismatch {
        /// Which event.
        at: Place,
        /// The question.
        question: QuestionId,
    },
    /// A call was let run by answers that do not amount to leave, by the configured keys.
    #[error("the grant used in {at} was no leave to run: {why}")]
    NoLeave {
        /// Which event.
        at: Place,
        /// The question.
        question: QuestionId,
        /// What is wrong with it.
        why: String,
    },
    /// The journal ends before the head that was kept.
    #[error(
        "{journal} ends before event {seq}, which a kept head names: its tail was cut, or an old copy put back"
    )]
    HeadCut {
        /// The journal.
        journal: JournalId,
        /// The head's sequence.
        seq: u64,
    },
    /// The journal has another event where the head was.
    #[error(
        "event {seq} of {journal} is not the one that a kept head names: the record was rewritten"
    )]
    HeadDiverged {
        /// The journal.
        journal: JournalId,
        /// The head's sequence.
        seq: u64,
    },
    /// The head is of another installation.
    #[error("the kept head belongs to {expected}, another installation")]
    HeadOtherInstance {
        /// The head's installation.
        expected: InstanceId,
    },
    /// The head is not signed by the key that was given.
    #[error("the kept head of {journal} at event {seq} is not signed by the expected key")]
    HeadSignature {
        /// The journal.
        journal: JournalId,
        /// The head's sequence.
        seq: u64,
    },
}

/// One journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JournalReport {
    /// The journal.
    pub id: JournalId,
    /// Its events.
    pub events: u64,
    /// The hash of the last, as stored.
    pub tip: Digest,
}

/// What became of the signatures of answers, whether or not a call rests on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Signatures {
    /// Signed by the named key, which is configured for that person and was valid.
    pub checked: u64,
    /// Of those, by people who do not have the question's role in the configuration as it is today.
    pub other_role: u64,
    /// Not checked, since no keys were given.
    pub unchecked: u64,
    /// Not checked, since the key is not configured.
    pub unknown_key: u64,
    /// Signed by the named key, which is revoked or was outside its term.
    pub not_valid: u64,
}

/// What became of the grants that were used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Grants {
    /// Their answers were leave to run. Each that was not is a [`Break::NoLeave`].
    pub checked: u64,
    /// Not checked, since no keys were given.
    pub unchecked: u64,
}

/// The result of a verification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The installation.
    pub instance: InstanceId,
    /// The journals.
    pub journals: Vec<JournalReport>,
    /// Events whose hash was computed again.
    pub events: u64,
    /// Streams that were folded.
    pub streams: u64,
    /// Rows of state tables that were compared.
    pub rows: u64,
    /// Contents that were read and digested.
    pub contents: u64,
    /// Contents that are gone, with their erasure recorded.
    pub erased: u64,
    /// Different tool specs that were read and digested.
    pub specs: u64,
    /// The answers.
    pub signatures: Signatures,
    /// The grants that were used.
    pub grants: Grants,
    /// Questions whose call digest could not be computed again, since card or salt were erased.
    pub cards_unchecked: u64,
    /// Kept heads that the store contains.
    pub heads: u64,
    /// What does not hold, at most [`MAX_BREAKS`](super::MAX_BREAKS).
    pub breaks: Vec<Break>,
    /// True when the walk ended early, since there were that many.
    pub cut_short: bool,
    /// True when there is no break.
    pub intact: bool,
}

impl Report {
    pub(super) fn of(instance: InstanceId) -> Self {
        Self {
            instance,
            journals: Vec::new(),
            events: 0,
            streams: 0,
            rows: 0,
            contents: 0,
            erased: 0,
            specs: 0,
            signatures: Signatures::default(),
            grants: Grants::default(),
            cards_unchecked: 0,
            heads: 0,
            breaks: Vec::new(),
            cut_short: false,
            intact: false,
        }
    }

    /// A walk that met nothing proves nothing.
    pub(super) fn conclude(&mut self) {
        if self.events == 0 && self.breaks.is_empty() {
            self.breaks.push(Break::Empty);
        }
        self.intact = self.breaks.is_empty();
    }
}

/// Breaks as one walk finds them, each once.
#[derive(Debug, Default)]
pub(super) struct Breaks {
    found: Vec<Break>,
    /// True when there were enough to end the walk.
    pub(super) cut_short: bool,
}

impl Breaks {
    /// Adds a break. Walks of a journal and of a stream may both come upon it.
    pub(super) fn add(&mut self, found: Break) -> Result<(), Stop> {
        if !self.found.contains(&found) {
            self.found.push(found);
            self.cut_short |= self.found.len() >= MAX_BREAKS;
        }
        if self.cut_short { Err(Stop::Enough) } else { Ok(()) }
    }

    /// All of several walks, as far as there is room for them.
    pub(super) fn joined<const WALKS: usize>(walks: [Self; WALKS]) -> Self {
        let mut all = Self::default();
        let cut_short = walks.iter().any(|walk| walk.cut_short);
        let found = walks.into_iter().flat_map(|walk| walk.found);
        // More than there is room for cuts it short by itself.
        let _enough = found.map(|found| all.add(found)).find(Result::is_err);
        all.cut_short |= cut_short;
        all
    }

    pub(super) fn into_vec(self) -> Vec<Break> {
        self.found
    }
}

/// A stored cell as a break shows it.
pub(super) fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Null => "null".to_owned(),
        Cell::Int(value) => value.to_string(),
        Cell::Text(text) => format!("`{}`", sanitize::clip(&sanitize::line(text), MAX_SHOWN)),
        Cell::Blob(bytes) => bytes_shown(bytes),
    }
}

/// A primary key as a break shows it: an id as it is written everywhere, and what follows it.
pub(super) fn key(table: &str, cells: &[Cell]) -> String {
    let prefix = match table {
        "runs" => RunId::PREFIX,
        "steps" => StepId::PREFIX,
        "threads" => ThreadId::PREFIX,
        "budgets" => BudgetId::PREFIX,
        _ => QuestionId::PREFIX,
    };
    let part = |part: &Cell| match part {
        Cell::Blob(id) => format!("{prefix}_{}", hex(id, id.len())),
        other => cell(other),
    };
    cells.iter().map(part).collect::<Vec<_>>().join(" ")
}

/// Two cells that differ, shown so that one sees where: long ones from shortly before that place on.
pub(super) fn difference(expected: &Cell, found: &Cell) -> (String, String) {
    let whole = (cell(expected), cell(found));
    if whole.0 != whole.1 {
        return whole;
    }
    let (Some(left), Some(right)) = (bytes(expected), bytes(found)) else { return whole };
    let same = left.iter().zip(right).take_while(|(left, right)| left == right).count();
    let from = same.saturating_sub(MAX_SHOWN / 8);
    let shown = |bytes: &[u8]| {
        let rest = bytes.get(from..).unwrap_or_default();
        format!("byte {from} on: {}", bytes_shown(rest))
    };
    (shown(left), shown(right))
}

fn bytes(cell: &Cell) -> Option<&[u8]> {
    match cell {
        Cell::Text(text) => Some(text.as_bytes()),
        Cell::Blob(bytes) => Some(bytes),
        Cell::Null | Cell::Int(_) => None,
    }
}

/// Stored bytes as a break shows them.
fn bytes_shown(bytes: &[u8]) -> String {
    let more = if bytes.len() > MAX_SHOWN / 2 { sanitize::CLIP_MARKER } else { "" };
    format!("x'{}{more}'", hex(bytes, MAX_SHOWN / 2))
}

fn hex(bytes: &[u8], most: usize) -> String {
    bytes.iter().take(most).map(|byte| format!("{byte:02x}")).collect()
}

/// A stored type name as a break shows it.
pub(super) fn name(text: &str) -> String {
    sanitize::clip(&sanitize::line(text), 64)
}

/// A stream as a break shows it.
pub(super) fn stream(stream: &Stream) -> String {
    format!("{} stream {}", stream.kind.as_str(), hex(&stream.id, stream.id.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_always_visible() {
        let text = |text: &str| Cell::Text(text.to_owned());
        let long = "a".repeat(500);
        for (left, right) in [
            (text("a"), text("b")),
            (text("a\nb"), text("a b")),
            (text(&format!("{long}x")), text(&format!("{long}y"))),
            (text(&long), text(&format!("{long}y"))),
            (Cell::Blob(vec![0; 500]), Cell::Blob(vec![0; 501])),
            (Cell::Null, text("null")),
            (Cell::Int(1), text("1")),
        ] {
            let (expected, found) = difference(&left, &right);
            assert_ne!(expected, found);
            assert!(expected.len() < 2 * MAX_SHOWN && found.len() < 2 * MAX_SHOWN);
        }
    }
}
