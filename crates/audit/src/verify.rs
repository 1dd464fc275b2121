//! Verification: walks a whole store again and reports whatever does not follow from its events.
//!
//! Each journal is walked in pages: sequence, previous hash, payload digest, hash. Where a stream begins,
//! the whole stream is read on another thread, its chain checked, and folded again; each row that the fold names is then
//! compared cell by cell with its table, each content and spec with its digest, each approval with the
//! question it answers and the key that signed it. Where a grant was used, the answers to it must have been
//! leave to run, as the gate itself asks: by enough different people of the role that the card names. Totals
//! find rows that no event accounts for.
//!
//! What a person may do is what the configuration says now, so it has to keep whoever answered once. A key that
//! went out of use stays with its roles and an end of its term (`not_after`): what it signed before still
//! counts. A revoked key counts for nothing, whatever time its answers state, since whoever stole it states any;
//! a call that was let run on its word is then a break.
//!
//! Memory holds a few pages, one run's window, the digests of the tool specs and a bounded list of contents
//! whose erasure is still to be found. What a verification of the store alone cannot see is a tail that was
//! cut, or a record rewritten from some event on by somebody who can write the whole file: pass a
//! [`Head`] that was kept elsewhere.
//!
//! Soft state is not verified: lease terms, the oldest writer admitted, and what people were reminded of.

mod approvals;
mod contents;
mod decode;
mod family;
mod journal;
mod readers;
mod recovery;
mod report;
mod rows;
pub(crate) mod stored;
mod stream;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::sync_channel;
use std::thread;

use portcullis_canon::Digest;
use portcullis_domain::id::InstanceId;
use portcullis_domain::ports::{Ledger, ReviewerKeys, StoreError};

pub use report::{Break, Grants, JournalReport, Place, Report, Signatures};

use crate::head::{Head, HeadResult, compare_head};
use crate::keys::PublicKey;
use decode::decode;
use journal::{Found, Journals};
use readers::Reader;
use report::Breaks;

/// How many threads walk a store at once, when it has as many readers; with fewer they take turns.
pub const THREADS: usize = 4;

/// Events of one page.
const PAGE: u32 = 128;

/// The most streams that the walk of the journals is ahead of that of the streams.
const MOST_BEGUN: usize = 64;

/// The most parts of streams that are decoded and not yet folded.
const MOST_PARTS: usize = 8;

/// After this many breaks the walk ends: the store is beyond doubt not what was written.
pub const MAX_BREAKS: usize = 100;

/// The most different tool specs that are told apart.
const MAX_SPECS: usize = 1 << 20;

/// What a verification is given beside the store.
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    /// The configured public keys; several sets where several configurations served the store. An answer counts that
    /// counts by one of them. A grant was leave when it was by one of them alone: people of two sets do not add up.
    /// Without any, signatures are counted as unchecked.
    pub keys: &'a [&'a dyn ReviewerKeys],
    /// Heads that were kept elsewhere; the store has to contain each.
    pub heads: &'a [Head],
    /// The key that signed them. Without it their signatures are not checked.
    pub head_key: Option<&'a PublicKey>,
}

/// Why a verification came to no result.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store gives events out of order, so that a walk would have no end.
    #[error("the store lists events out of order")]
    Disorder,
    /// More tool specs than are told apart.
    #[error(
        "the store names more than {MAX_SPECS} different tool specs, which is more than can be counted"
    )]
    TooManySpecs,
    /// The system starts no more threads.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

/// Walks the whole snapshot, on as many threads as the ledger has readers for; see [`Ledgers::begin_for`] and
/// [`THREADS`].
///
/// [`Ledgers::begin_for`]: portcullis_domain::ports::Ledgers::begin_for
///
/// # Errors
/// [`VerifyError`] when there is no result. A store that was changed is a result: see [`Report::breaks`].
pub fn verify(ledger: &mut dyn Ledger, options: Options<'_>) -> Result<Report, VerifyError> {
    let instance = ledger.instance();
    let mut others: Vec<_> = (1..THREADS).map_while(|_| ledger.another()).collect();
    let own = Reader::new(ledger);
    let others: Vec<_> = others.iter_mut().map(|other| Reader::new(other.as_mut())).collect();
    let other = |place: usize| others.get(place).unwrap_or(&own);
    let readers = [other(0), other(1), other(2)];
    let mut walk = Walk::new(&own, instance, options);
    match walk.all(readers) {
        Ok(()) | Err(Stop::Enough) => {}
        Err(Stop::Error(error)) => return Err(error),
    }
    let mut report = walk.report;
    report.cut_short = walk.breaks.cut_short;
    report.breaks = walk.breaks.into_vec();
    report.conclude();
    Ok(report)
}

/// What the threads came to.
struct Walked {
    sound: Result<(), StoreError>,
    found: Result<Found, VerifyError>,
    folded: Result<(), Stop>,
}

/// Walks on threads of their own: the check of the file, the journals, and the streams, whose events one thread
/// decodes and this one folds. What hands on waits for what takes, so that little is in memory between them.
fn on_threads<'l>(
    walk: &mut Walk<'_>,
    [file, journals, streams]: [&'l Reader<'l>; 3],
) -> Result<Walked, VerifyError> {
    let instance = walk.report.instance;
    thread::scope(|scope| {
        let (begun, beginnings) = sync_channel(MOST_BEGUN);
        let (decoded, parts) = sync_channel(MOST_PARTS);
        let start = |name: &str| thread::Builder::new().name(format!("portcullis-{name}"));
        let decoding = start("decode")
            .spawn_scoped(scope, move || decode(streams, instance, beginnings, &decoded))
            .map_err(VerifyError::Thread)?;
        let walking = start("journal")
            .spawn_scoped(scope, move || Journals::new(journals, instance, begun).walk())
            .map_err(VerifyError::Thread)?;
        let checking = start("check")
            .spawn_scoped(scope, move || file.read(|ledger| ledger.sound()))
            .map_err(VerifyError::Thread)?;
        let folded = walk.streams(&parts);
        // Whoever hands on learns that nothing more is taken.
        drop(parts);
        joined(decoding.join());
        Ok(Walked { sound: joined(checking.join()), found: joined(walking.join()), folded })
    })
}

/// What a thread came to; its panic is this thread's.
fn joined<T>(thread: thread::Result<T>) -> T {
    thread.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Why a walk ends before its end.
enum Stop {
    /// Enough breaks.
    Enough,
    /// No result.
    Error(VerifyError),
}

impl From<VerifyError> for Stop {
    fn from(error: VerifyError) -> Self {
        Self::Error(error)
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Error(error.into())
    }
}

/// Rows that the fold made, by table.
#[derive(Default)]
struct Folded {
    runs: u64,
    steps: u64,
    questions: u64,
    approvals: u64,
    threads: u64,
    budgets: u64,
}

struct Walk<'a> {
    reader: &'a Reader<'a>,
    options: Options<'a>,
    report: Report,
    breaks: Breaks,
    folded: Folded,
    /// True until a stream could not be folded to its end; totals of rows mean nothing then.
    all_folded: bool,
    /// Events that the walk met in streams.
    in_streams: u64,
    /// Contents whose owner is an event that names them.
    owned: u64,
    specs: BTreeSet<Digest>,
    /// Contents that are named and not there, and by which event.
    missing: BTreeMap<Digest, Place>,
}

impl<'a> Walk<'a> {
    fn new(reader: &'a Reader<'a>, instance: InstanceId, options: Options<'a>) -> Self {
        Self {
            reader,
            options,
            report: Report::of(instance),
            breaks: Breaks::default(),
            folded: Folded::default(),
            all_folded: true,
            in_streams: 0,
            owned: 0,
            specs: BTreeSet::new(),
            missing: BTreeMap::new(),
        }
    }

    fn all<'l>(&mut self, readers: [&'l Reader<'l>; 3]) -> Result<(), Stop> {
        let Walked { sound, found, folded } = on_threads(self, readers)?;
        let found = found?;
        if let Err(Stop::Error(error)) = folded {
            return Err(error.into());
        }
        let mut unsound = Breaks::default();
        match sound {
            Err(StoreError::Damaged { .. }) => unsound.add(Break::Unsound)?,
            sound => sound?,
        }
        self.report.journals = found.journals;
        self.report.events = found.events;
        self.breaks = Breaks::joined([unsound, found.breaks, std::mem::take(&mut self.breaks)]);
        if self.breaks.cut_short {
            return Err(Stop::Enough);
        }
        self.find_erasures()?;
        self.totals()?;
        self.heads()
    }

    fn broken(&mut self, found: Break) -> Result<(), Stop> {
        self.breaks.add(found)
    }

    fn totals(&mut self) -> Result<(), Stop> {
        let Folded { runs, steps, questions, approvals, threads, budgets } = self.folded;
        let events = self.report.events;
        if self.in_streams != events {
            self.broken(Break::EventsApart { journals: events, streams: self.in_streams })?;
        }
        let specs = u64::try_from(self.specs.len()).unwrap_or(u64::MAX);
        self.total("events", events)?;
        if self.all_folded {
            self.total("runs", runs)?;
            self.total("steps", steps)?;
            self.total("questions", questions)?;
            self.total("approvals", approvals)?;
            self.total("threads", threads)?;
            self.total("budgets", budgets)?;
            self.total("contents", self.owned)?;
            self.total("specs", specs)?;
        }
        self.report.rows = runs + steps + questions + approvals + threads + budgets;
        self.report.specs = specs;
        Ok(())
    }

    fn total(&mut self, table: &'static str, expected: u64) -> Result<(), Stop> {
        let found = self.reader.read(|ledger| ledger.count(table))?;
        match found.cmp(&expected) {
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Greater => self.broken(Break::RowExtra { table, expected, found }),
            std::cmp::Ordering::Less => self.broken(Break::RowLost { table, expected, found }),
        }
    }

    fn heads(&mut self) -> Result<(), Stop> {
        for head in self.options.heads {
            let (journal, seq) = (head.journal, head.seq);
            if self.options.head_key.is_some_and(|key| head.check(key).is_err()) {
                self.broken(Break::HeadSignature { journal, seq })?;
                continue;
            }
            match self.reader.read(|ledger| compare_head(ledger, head))? {
                HeadResult::Same | HeadResult::Grown => self.report.heads += 1,
                HeadResult::Cut => self.broken(Break::HeadCut { journal, seq })?,
                HeadResult::Diverged => self.broken(Break::HeadDiverged { journal, seq })?,
                HeadResult::OtherInstance => {
                    let expected = head.instance;
                    self.broken(Break::HeadOtherInstance { expected })?;
                }
            }
        }
        Ok(())
    }
}
