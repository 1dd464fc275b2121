//! Verification: walks a whole store again and reports whatever does not follow from its events.
//!
//! Each journal is walked in pages: sequence, previous hash, payload digest, hash. Where a stream begins,
//! the whole stream is read, its chain checked, and folded again; each row that the fold names is then
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
//! Memory holds one page, one run's window, the digests of the tool specs and a bounded list of contents
//! whose erasure is still to be found. What a verification of the store alone cannot see is a tail that was
//! cut, or a record rewritten from some event on by somebody who can write the whole file: pass a
//! [`Head`] that was kept elsewhere.
//!
//! Soft state is not verified: lease terms and the oldest writer admitted.

mod approvals;
mod contents;
mod journal;
mod recovery;
mod report;
mod rows;
pub(crate) mod stored;
mod stream;

use std::collections::{BTreeMap, BTreeSet};

use portcullis_canon::Digest;
use portcullis_domain::ports::{Ledger, ReviewerKeys, StoreError};

pub use report::{Break, Grants, JournalReport, Place, Report, Signatures};

use crate::head::{Head, HeadResult, compare_head};
use crate::keys::PublicKey;

/// Events of one page.
const PAGE: u32 = 128;

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
}

/// Walks the whole snapshot.
///
/// # Errors
/// [`VerifyError`] when there is no result. A store that was changed is a result: see [`Report::breaks`].
pub fn verify(ledger: &mut dyn Ledger, options: Options<'_>) -> Result<Report, VerifyError> {
    let mut walk = Walk::new(ledger, options);
    match walk.all() {
        Ok(()) | Err(Stop::Enough) => {}
        Err(Stop::Error(error)) => return Err(error),
    }
    let mut report = walk.report;
    report.conclude();
    Ok(report)
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
    ledger: &'a mut dyn Ledger,
    options: Options<'a>,
    report: Report,
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
    fn new(ledger: &'a mut dyn Ledger, options: Options<'a>) -> Self {
        Self {
            report: Report::of(ledger.instance()),
            ledger,
            options,
            folded: Folded::default(),
            all_folded: true,
            in_streams: 0,
            owned: 0,
            specs: BTreeSet::new(),
            missing: BTreeMap::new(),
        }
    }

    fn all(&mut self) -> Result<(), Stop> {
        match self.ledger.sound() {
            Err(StoreError::Damaged { .. }) => self.broken(Break::Unsound)?,
            sound => sound?,
        }
        match self.ledger.journals() {
            Ok(journals) => journals.into_iter().try_for_each(|journal| self.journal(journal))?,
            Err(StoreError::Damaged { table }) => {
                self.broken(Break::RowDamaged { table, key: "the list of journals".to_owned() })?;
            }
            Err(error) => return Err(error.into()),
        }
        self.find_erasures()?;
        self.totals()?;
        self.heads()
    }

    /// Reports a break, once: the walks of a journal and of a stream may both come upon it.
    fn broken(&mut self, found: Break) -> Result<(), Stop> {
        if self.report.breaks.contains(&found) {
            return Ok(());
        }
        self.report.breaks.push(found);
        if self.report.breaks.len() < MAX_BREAKS {
            return Ok(());
        }
        self.report.cut_short = true;
        Err(Stop::Enough)
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
        let found = self.ledger.count(table)?;
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
            match compare_head(self.ledger, head)? {
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
