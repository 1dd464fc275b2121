//! What a running `run` tells on standard error: one line for each fact, after it was committed.
//!
//! The store's writer hands events over and never waits for the terminal: a thread of its own writes the lines,
//! and lines that it cannot keep up with are counted instead.

use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use portcullis_canon::sanitize;
use portcullis_domain::event::{Body, Event, LeaseCause};
use portcullis_domain::id::{RunId, StepId};
use portcullis_domain::observation::Observation;
use portcullis_domain::ports::Observer;
use portcullis_domain::question::QuestionKind;
use portcullis_domain::verdict::Verdict;

/// Lines that may wait for the terminal.
const MAX_WAITING: usize = 4096;

/// Steps whose numbers are kept; only the last ones are still spoken of.
const MAX_STEPS: usize = 64;

/// How long the last lines are waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest line, in bytes.
const MAX_LINE: usize = 240;

enum Item {
    Line(String),
    Settle(SyncSender<()>),
}

/// Tells what is committed.
#[derive(Debug)]
pub(crate) struct Progress {
    lines: SyncSender<Item>,
    steps: Mutex<VecDeque<(StepId, u64)>>,
    lost: AtomicU64,
}

impl Progress {
    /// Starts the thread that writes.
    pub(crate) fn start() -> Arc<Self> {
        let (lines, items) = sync_channel(MAX_WAITING);
        // Without the thread the lines are counted as lost, and the run goes on.
        let _ = std::thread::Builder::new().name("progress".into()).spawn(move || write(&items));
        Arc::new(Self { lines, steps: Mutex::default(), lost: AtomicU64::new(0) })
    }

    /// Tells one more thing.
    pub(crate) fn say(&self, line: &str) {
        let line = sanitize::clip(&sanitize::line(line), MAX_LINE);
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            self.lines.try_send(Item::Line(line))
        {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until everything is written, but not for ever.
    pub(crate) fn settle(&self) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            self.say(&format!("{lost} lines were left out; see `portcullis events`"));
        }
        let (done, settled) = sync_channel(1);
        if self.lines.try_send(Item::Settle(done)).is_ok() {
            let _ = settled.recv_timeout(PATIENCE);
        }
    }

    fn number(&self, step: Option<StepId>) -> String {
        let steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let index = steps.iter().find(|(id, _)| Some(*id) == step).map(|(_, index)| index);
        index.map_or_else(|| "step".to_owned(), |index| format!("step {index}"))
    }

    fn opened(&self, step: Option<StepId>, index: u64) {
        let Some(step) = step else { return };
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        steps.push_back((step, index));
        if steps.len() > MAX_STEPS {
            steps.pop_front();
        }
    }

    fn line(&self, event: &Event) -> Option<String> {
        let step = || self.number(event.link.step);
        Some(match &event.body {
            Body::RunCreated(_) => {
                format!("{} begins", RunId::from_bytes(event.link.stream.id))
            }
            Body::LeaseAcquired(body) => match body.cause {
                LeaseCause::Begin | LeaseCause::Free => return None,
                LeaseCause::Expired => "taken up: the lease of the last driver ran out".to_owned(),
                LeaseCause::HolderDead => "taken up: the last driver is dead".to_owned(),
            },
            Body::StepOpened(body) => {
                self.opened(event.link.step, body.index);
                return None;
            }
            Body::StepJudged(body) => {
                let what = match &body.verdict {
                    Verdict::Allow { .. } => "allowed".to_owned(),
                    Verdict::Ask { reviewers, .. } => {
                        format!("asks {} of {}", reviewers.count, reviewers.role)
                    }
                    Verdict::Deny { reason, .. } => format!("denied ({})", reason.as_str()),
                    Verdict::Abort { reason, .. } => format!("ends the run ({})", reason.as_str()),
                };
                format!("{}: {} {what}", step(), body.admitted.tool)
            }
            Body::ApprovalUsed(_) => format!("{}: the approval is used", step()),
            Body::StepStarted(_) => format!("{}: started", step()),
            Body::StepFinished(body) => {
                let what = body.observation.as_ref().map_or_else(|| "done".to_owned(), observed);
                format!("{}: {what}", step())
            }
            Body::OutcomeLate(body) => format!("{}: late, {}", step(), observed(&body.observation)),
            Body::QuestionAsked(body) => match body.kind {
                QuestionKind::Approval => format!("{}: waits for {}", step(), body.question),
                QuestionKind::UnknownOutcome => {
                    format!(
                        "{}: it is not known what happened; waits for {}",
                        step(),
                        body.question
                    )
                }
            },
            Body::QuestionAnswered(body) => {
                format!("{}: {} says {}", step(), body.person, body.statement.answer.as_str())
            }
            Body::QuestionClosed(body) => {
                format!("{}: the question is {}", step(), body.status.as_str())
            }
            Body::RunFinished(body) => {
                format!("{} ({})", body.reason.status().as_str(), body.reason.as_str())
            }
            Body::LeaseReleased(_)
            | Body::StepProposed(_)
            | Body::ThreadOpened(_)
            | Body::ThreadLabelled(_)
            | Body::JournalOpened(_)
            | Body::ContentErased(_) => return None,
        })
    }
}

fn observed(observation: &Observation) -> String {
    let kind = observation.kind.as_str().replace('_', " ");
    let refusal = observation.refusal.map(|refusal| refusal.as_str());
    match refusal.or(observation.failure.map(|failure| failure.as_str())) {
        Some(why) => format!("{kind} ({why})"),
        None => kind,
    }
}

impl Observer for Progress {
    fn committed(&self, events: &[Event]) {
        for event in events {
            if let Some(line) = self.line(event) {
                self.say(&line);
            }
        }
    }
}

fn write(items: &Receiver<Item>) {
    for item in items {
        match item {
            // Whoever closed standard error does not want to know.
            Item::Line(line) => drop(writeln!(std::io::stderr().lock(), "{line}")),
            Item::Settle(done) => drop(done.send(())),
        }
    }
}
