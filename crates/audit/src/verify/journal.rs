//! Journals: sequence, previous hash and hash of each event in the order in which they were committed.

use portcullis_canon::Digest;
use portcullis_domain::id::JournalId;
use portcullis_domain::ports::{StoreError, StoredEvent};
use portcullis_domain::stream::Tip;

use super::report::{Break, JournalReport};
use super::stored::Read;
use super::{PAGE, Stop, VerifyError, Walk};

impl Walk<'_> {
    pub(super) fn journal(&mut self, journal: JournalId) -> Result<(), Stop> {
        let index = self.report.journals.len();
        self.report.journals.push(JournalReport { id: journal, events: 0, tip: Digest::ZERO });
        let mut tip = Tip::START;
        let mut after = 0;
        loop {
            let page = match self.ledger.events_after(journal, after, PAGE) {
                Err(StoreError::Damaged { table }) => {
                    let key = format!("after event {after} of {journal}");
                    return self.broken(Break::RowDamaged { table, key });
                }
                page => page?,
            };
            let Some(last) = page.last() else { break };
            if last.journal_seq <= after {
                return Err(VerifyError::Disorder.into());
            }
            after = last.journal_seq;
            for stored in &page {
                self.report.events += 1;
                self.journal_event(journal, stored, &mut tip)?;
                if let Some(report) = self.report.journals.get_mut(index) {
                    report.events += 1;
                    report.tip = tip.hash;
                }
            }
        }
        Ok(())
    }

    fn journal_event(
        &mut self,
        journal: JournalId,
        stored: &StoredEvent,
        tip: &mut Tip,
    ) -> Result<(), Stop> {
        let expected = tip.seq.saturating_add(1);
        let found = u64::try_from(stored.journal_seq).unwrap_or(0);
        if found != expected {
            let found = stored.journal_seq;
            self.broken(Break::JournalGap { journal, expected, found })?;
        }
        // From here on the walk follows what is stored, so that one change is not reported again and again.
        tip.seq = found;
        let read = match Read::of(stored, self.report.instance, journal) {
            Ok(read) => read,
            Err(bad) => {
                tip.hash = Digest::ZERO;
                return self.broken(bad);
            }
        };
        let follows = read.link.journal_prev == tip.hash && read.link.journal == journal;
        tip.hash = read.hash;
        if !follows {
            self.broken(Break::JournalChain { at: read.at })?;
        }
        if let Err(bad) = read.check_hash() {
            self.broken(bad)?;
        }
        if read.link.stream_seq == 1 {
            self.stream(read.link.stream, journal)?;
        }
        Ok(())
    }
}
