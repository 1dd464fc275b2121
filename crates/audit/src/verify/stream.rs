//! Streams: the chain of each, folded from its first event as [`super::decode`] hands them on.

use std::sync::mpsc::Receiver;

use portcullis_canon::Digest;
use portcullis_domain::budget::Budget;
use portcullis_domain::event::{Body, Event};
use portcullis_domain::fold::FoldError;
use portcullis_domain::ports::StoreError;
use portcullis_domain::scope::Tenant;
use portcullis_domain::stream::{Stream, StreamKind, Tip};
use portcullis_domain::thread::Thread;

use super::decode::{Checked, Part, Seen};
use super::report::{self, Break, Place};
use super::rows::RunFold;
use super::{Stop, VerifyError, Walk};

/// What the events of one stream have added up to.
enum State {
    /// Nothing yet.
    Start,
    Run(Box<RunFold>),
    Thread(Box<Thread>),
    Budget(Box<Budget>),
    System,
    /// An event did not fit; nothing after it is folded.
    Failed,
}

/// One stream while it is walked.
struct Walked {
    stream: Stream,
    tip: Tip,
    tenant: Option<Tenant>,
    state: State,
}

impl Walked {
    fn begin(stream: Stream) -> Self {
        Self { stream, tip: Tip::START, tenant: None, state: State::Start }
    }
}

impl Walk<'_> {
    /// Folds streams as their parts come.
    pub(super) fn streams(
        &mut self,
        parts: &Receiver<Result<Part, VerifyError>>,
    ) -> Result<(), Stop> {
        let mut walking: Option<Walked> = None;
        for part in parts {
            match (part?, walking.as_mut()) {
                (Part::Begin((stream, _)), _) => {
                    self.report.streams += 1;
                    walking = Some(Walked::begin(stream));
                }
                (Part::Events(events), Some(walked)) => {
                    for event in events {
                        self.in_streams += 1;
                        self.stream_event(event, walked)?;
                    }
                }
                (Part::Damaged { table, after }, Some(walked)) => {
                    self.all_folded = false;
                    let key = format!("after event {after} of {}", report::stream(&walked.stream));
                    self.broken(Break::RowDamaged { table, key })?;
                }
                (Part::End, Some(_)) => {
                    if let Some(walked) = walking.take() {
                        self.end_of_stream(walked)?;
                    }
                }
                (Part::Events(_) | Part::Damaged { .. } | Part::End, None) => {}
            }
        }
        Ok(())
    }

    fn end_of_stream(&mut self, walked: Walked) -> Result<(), Stop> {
        match walked.state {
            State::Run(fold) => self.end_of_run(*fold),
            State::Thread(thread) => {
                self.folded.threads += 1;
                self.compare(&*thread)
            }
            State::Budget(budget) => {
                self.folded.budgets += 1;
                self.compare(&*budget)
            }
            State::Start | State::System => Ok(()),
            State::Failed => {
                self.all_folded = false;
                Ok(())
            }
        }
    }

    fn stream_event(&mut self, seen: Seen, walked: &mut Walked) -> Result<(), Stop> {
        let expected = walked.tip.seq.saturating_add(1);
        let found = u64::try_from(seen.stream_seq).unwrap_or(0);
        if found != expected {
            let (stream, found) = (report::stream(&walked.stream), seen.stream_seq);
            self.broken(Break::StreamGap { stream, expected, found })?;
        }
        walked.tip.seq = found;
        let journal_seq = seen.journal_seq;
        let event = match self.read(seen, walked)? {
            Ok(event) => event,
            Err(bad) => {
                walked.state = State::Failed;
                return self.broken(bad);
            }
        };
        let at = Place { journal: event.link.journal, seq: journal_seq };
        self.contents(&event, at)?;
        self.specs(&event, at)?;
        self.fold(&event, at, walked)
    }

    /// Chain and form of one event of the stream.
    fn read(&mut self, seen: Seen, walked: &mut Walked) -> Result<Result<Event, Break>, Stop> {
        let Checked { at, link, hash, fault, body } = match seen.read {
            Ok(read) => read,
            Err(bad) => {
                walked.tip.hash = Digest::ZERO;
                return Ok(Err(bad));
            }
        };
        if let Some(bad) = fault {
            self.broken(bad)?;
        }
        let follows = link.stream_prev == walked.tip.hash && link.stream == walked.stream;
        walked.tip.hash = hash;
        if !follows {
            self.broken(Break::StreamChain { at })?;
        }
        let tenant = walked.tenant.get_or_insert_with(|| link.tenant.clone());
        // The installation's own stream records what is done for each tenant.
        if *tenant != link.tenant && walked.stream.kind != StreamKind::System {
            self.broken(Break::TenantMismatch { at })?;
        }
        Ok(body.map(|body| Event { link, body, hash }))
    }

    fn fold(&mut self, event: &Event, at: Place, walked: &mut Walked) -> Result<(), Stop> {
        let state = std::mem::replace(&mut walked.state, State::Failed);
        let next = match (state, walked.stream.kind) {
            (State::Failed, _) => return Ok(()),
            (State::Start, StreamKind::Run) => {
                RunFold::begin(event).map(|fold| State::Run(Box::new(fold)))
            }
            (State::Start, StreamKind::Thread) => {
                Thread::begin(event).map(|thread| State::Thread(Box::new(thread)))
            }
            (State::Start, StreamKind::Budget) => {
                Budget::begin(event).map(|budget| State::Budget(Box::new(budget)))
            }
            (State::Start | State::System, StreamKind::System) => {
                self.system_event(event, at)?.map(|()| State::System)
            }
            (State::Run(mut fold), _) => {
                self.run_event(&mut fold, event, at)?.map(|()| State::Run(fold))
            }
            (State::Thread(mut thread), _) => thread.apply(event).map(|()| State::Thread(thread)),
            (State::Budget(mut budget), _) => budget.apply(event).map(|()| State::Budget(budget)),
            (State::Start | State::System, _) => Err(FoldError::WrongStream(event.body.name())),
        };
        match next {
            Ok(state) => {
                walked.state = state;
                Ok(())
            }
            Err(error) => self.broken(Break::NotAdmitted { at, why: error.to_string() }),
        }
    }

    /// The installation's stream has no row: each journal is opened by its own first event, and erased
    /// contents are gone.
    fn system_event(&mut self, event: &Event, at: Place) -> Result<Result<(), FoldError>, Stop> {
        let (name, link) = (event.body.name(), &event.link);
        if link.stream != Stream::from(self.report.instance) {
            return Ok(Err(FoldError::WrongStream(name)));
        }
        let fits = match &event.body {
            Body::JournalOpened(body) => body.journal == link.journal && link.journal_seq == 1,
            Body::ContentErased(body) => {
                self.check_erased(body.content, at)?;
                link.stream_seq > 1
            }
            _ => return Ok(Err(FoldError::WrongStream(name))),
        };
        Ok(if fits { Ok(()) } else { Err(FoldError::WrongPlace(name)) })
    }

    /// What is left of an erased content is its empty row, which keeps it from being brought again.
    fn check_erased(&mut self, content: Digest, at: Place) -> Result<(), Stop> {
        let found = match self.reader.read(|ledger| ledger.content(content)) {
            // A row that cannot be read is there as well.
            Err(StoreError::Damaged { .. }) => {
                return self.broken(Break::ContentExtra { at, content });
            }
            found => found?,
        };
        match found {
            Some(stored) if stored.is_erased() => Ok(()),
            Some(_) => self.broken(Break::ContentExtra { at, content }),
            None => self.broken(Break::RowMissing { table: "contents", key: content.to_string() }),
        }
    }
}
