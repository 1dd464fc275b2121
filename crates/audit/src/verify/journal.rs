//! Journals: sequence, previous hash and hash of each event in the order in which they were committed.

use std::sync::mpsc::SyncSender;

use portcullis_canon::Digest;
use portcullis_domain::id::{InstanceId, JournalId};
use portcullis_domain::ports::{StoreError, StoredEvent};
use portcullis_domain::stream::Tip;

use super::decode::Begun;
use super::readers::Reader;
use super::report::{Break, Breaks, JournalReport};
use super::stored::Read;
use super::{PAGE, Stop, VerifyError};

/// The walk of all journals. It names each stream where that begins.
pub(super) struct Journals<'a> {
    reader: &'a Reader<'a>,
    instance: InstanceId,
    streams: SyncSender<Begun>,
    found: Found,
}

/// What the walk found.
#[derive(Default)]
pub(super) struct Found {
    pub(super) journals: Vec<JournalReport>,
    pub(super) events: u64,
    pub(super) breaks: Breaks,
}

impl<'a> Journals<'a> {
    pub(super) fn new(
        reader: &'a Reader<'a>,
        instance: InstanceId,
        streams: SyncSender<Begun>,
    ) -> Self {
        Self { reader, instance, streams, found: Found::default() }
    }

    /// Walks all; what was found until the breaks were enough is a result too.
    pub(super) fn walk(mut self) -> Result<Found, VerifyError> {
        let journals = self.reader.read(|ledger| ledger.journals());
        let walked = match journals {
            Ok(journals) => journals.into_iter().try_for_each(|journal| self.journal(journal)),
            Err(StoreError::Damaged { table }) => {
                let key = "the list of journals".to_owned();
                self.found.breaks.add(Break::RowDamaged { table, key })
            }
            Err(error) => Err(error.into()),
        };
        match walked {
            Ok(()) | Err(Stop::Enough) => Ok(self.found),
            Err(Stop::Error(error)) => Err(error),
        }
    }

    fn journal(&mut self, journal: JournalId) -> Result<(), Stop> {
        let index = self.found.journals.len();
        self.found.journals.push(JournalReport { id: journal, events: 0, tip: Digest::ZERO });
        let mut tip = Tip::START;
        let mut after = 0;
        loop {
            let page = match self.reader.read(|ledger| ledger.events_after(journal, after, PAGE)) {
                Err(StoreError::Damaged { table }) => {
                    let key = format!("after event {after} of {journal}");
                    return self.found.breaks.add(Break::RowDamaged { table, key });
                }
                page => page?,
            };
            let Some(last) = page.last() else { break };
            if last.journal_seq <= after {
                return Err(VerifyError::Disorder.into());
            }
            after = last.journal_seq;
            for stored in &page {
                self.found.events += 1;
                self.event(journal, stored, &mut tip)?;
                if let Some(report) = self.found.journals.get_mut(index) {
                    report.events += 1;
                    report.tip = tip.hash;
                }
            }
        }
        Ok(())
    }

    fn event(
        &mut self,
        journal: JournalId,
        stored: &StoredEvent,
        tip: &mut Tip,
    ) -> Result<(), Stop> {
        let breaks = &mut self.found.breaks;
        let expected = tip.seq.saturating_add(1);
        let found = u64::try_from(stored.journal_seq).unwrap_or(0);
        if found != expected {
            let found = stored.journal_seq;
            breaks.add(Break::JournalGap { journal, expected, found })?;
        }
        // From here on the walk follows what is stored, so that one change is not reported again and again.
        tip.seq = found;
        let read = match Read::of(stored, self.instance, journal) {
            Ok(read) => read,
            Err(bad) => {
                tip.hash = Digest::ZERO;
                return breaks.add(bad);
            }
        };
        let follows = read.link.journal_prev == tip.hash && read.link.journal == journal;
        tip.hash = read.hash;
        if !follows {
            breaks.add(Break::JournalChain { at: read.at })?;
        }
        if let Err(bad) = read.check_hash() {
            breaks.add(bad)?;
        }
        if read.link.stream_seq == 1 {
            // Nobody takes it any more when the breaks elsewhere are enough, or the streams cannot be read.
            return self.streams.send((read.link.stream, journal)).map_err(|_| Stop::Enough);
        }
        Ok(())
    }
}
