//! What a running `run` tells on standard error: one line for each fact, after it was committed.
//!
//! The store's writer hands events over and never waits for the terminal: a thread of its own writes the lines,
//! and lines that it cannot keep up with are counted instead.

use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use portcullis_canon::{Digest, sanitize};
use portcullis_domain::event::{Body, Event, LeaseCause, QuestionAsked};
use portcullis_domain::id::{RunId, StepId};
use portcullis_domain::observation::{Observation, ObservationKind};
use portcullis_domain::ports::Observer;
use portcullis_domain::question::{Question, QuestionKind};
use portcullis_domain::scope::Scope;
use portcullis_domain::step::Step;
use portcullis_domain::verdict::Verdict;
use tokio::runtime::Handle;

use crate::again;
use crate::assemble::Database;
use crate::output::invalid;
use crate::output::text::money;

/// Lines that may wait for the terminal.
const MAX_WAITING: usize = 4096;

/// Steps whose numbers are kept; only the last ones are still spoken of.
pub(crate) const MAX_STEPS: usize = 64;

/// How long the last lines are waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest line, in bytes.
const MAX_LINE: usize = 240;

enum Item {
    Line(String),
    /// A line about a refused proposal, and the observation that holds its place.
    Invalid(String, Digest),
    Settle(SyncSender<()>),
}

/// Tells what is committed.
pub(crate) struct Progress {
    lines: SyncSender<Item>,
    steps: Mutex<VecDeque<(StepId, u64)>>,
    /// The question with which the run was taken up.
    before: Mutex<Option<Question>>,
    lost: AtomicU64,
    /// Where contents are looked up; not held, since the store holds this.
    contents: Arc<OnceLock<Weak<dyn Database>>>,
}

impl Progress {
    /// Starts the thread that writes.
    pub(crate) fn start() -> Arc<Self> {
        let (lines, items) = sync_channel(MAX_WAITING);
        let contents = Arc::new(OnceLock::new());
        let reader = Reader { runtime: Handle::current(), contents: Arc::clone(&contents) };
        // Without the thread the lines are counted as lost, and the run goes on.
        let writing = std::thread::Builder::new().name("progress".into());
        let _ = writing.spawn(move || write(&items, &reader));
        Arc::new(Self {
            lines,
            steps: Mutex::default(),
            before: Mutex::default(),
            lost: AtomicU64::new(0),
            contents,
        })
    }

    /// From now on contents are looked up in this database.
    pub(crate) fn reads(&self, database: &Arc<dyn Database>) {
        // One progress tells of one database: the first one stays.
        let _ = self.contents.set(Arc::downgrade(database));
    }

    /// Goes on with a run that was begun before: these are its last steps, and the question that it comes with.
    pub(crate) fn goes_on<'s>(
        &self,
        steps: impl IntoIterator<Item = &'s Step>,
        question: Option<Question>,
    ) {
        for step in steps {
            self.opened(Some(step.id), step.index);
        }
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = question;
    }

    /// Tells one more thing.
    pub(crate) fn say(&self, line: &str) {
        self.send(Item::Line(safe(line)));
    }

    fn send(&self, item: Item) {
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            self.lines.try_send(item)
        {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Why a question takes the place of one that was granted, where it does.
    fn again(&self, step: Option<StepId>, body: &QuestionAsked) -> Option<&'static str> {
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let granted = before.as_ref().filter(|before| {
            Some(before.step) == step
                && body.kind == QuestionKind::Approval
                && again::was_granted(before)
        });
        granted.map(|before| again::why(before, &body.reviewers, body.call))
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

    fn asked(&self, asked: Option<StepId>, body: &QuestionAsked) -> String {
        let step = self.number(asked);
        let waits = format!("waits for {}", body.question);
        match (body.kind, self.again(asked, body)) {
            (QuestionKind::Approval, Some(why)) => format!("{step}: asks again, {why}; {waits}"),
            (QuestionKind::Approval, None) => format!("{step}: {waits}"),
            (QuestionKind::UnknownOutcome, _) => {
                format!("{step}: it is not known what happened; {waits}")
            }
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
            Body::ChildAwaited(body) => format!("{}: waits for {}", step(), body.child),
            Body::StepRestarted(_) => format!("{}: started again, with the same key", step()),
            Body::ProbeStarted(body) => {
                let who = body.call.as_ref().map(|call| call.admitted.tool.as_str());
                format!("{}: asks {} what happened", step(), who.unwrap_or("the host"))
            }
            Body::ProbeFinished(body) => format!("{}: found: {}", step(), body.found.as_str()),
            Body::StepFinished(body) => {
                let what = body.observation.as_ref().map_or_else(|| "done".to_owned(), observed);
                format!("{}: {what}", step())
            }
            Body::OutcomeLate(body) => format!("{}: late, {}", step(), observed(&body.observation)),
            Body::QuestionAsked(body) => self.asked(event.link.step, body),
            Body::QuestionAnswered(body) => {
                format!("{}: {} says {}", step(), body.person, body.statement.answer.as_str())
            }
            Body::QuestionClosed(body) => {
                format!("{}: the question is {}", step(), body.status.as_str())
            }
            Body::RunFinished(body) => {
                format!("{} ({})", body.reason.status().as_str(), body.reason.as_str())
            }
            Body::BudgetSettled(body) => {
                let used = body.charged.plus(body.excess);
                let (input, output) = (used.input_tokens, used.output_tokens);
                let (how, cost) = (body.how.as_str(), money(used.cost_micros));
                format!("{}: model {how}: {input} tokens in, {output} out, cost {cost}", step())
            }
            Body::BudgetOpened(_)
            | Body::BudgetReserved(_)
            | Body::LeaseReleased(_)
            | Body::StepProposed(_)
            | Body::ThreadOpened(_)
            | Body::ThreadLabelled(_)
            | Body::JournalOpened(_)
            | Body::ContentErased(_) => return None,
        })
    }
}

/// Whether the end of the same attempt stands before.
fn told_before<'a>(mut before: impl Iterator<Item = &'a Event>, event: &Event) -> bool {
    let Body::BudgetSettled(body) = &event.body else { return false };
    before.any(|other| matches!(&other.body, Body::BudgetSettled(o) if o.attempt == body.attempt))
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
        for (place, event) in events.iter().enumerate() {
            // An attempt is settled in several budgets at once, and told once.
            if told_before(events.iter().take(place), event) {
                continue;
            }
            let Some(line) = self.line(event) else { continue };
            self.send(match refused(event) {
                Some(content) => Item::Invalid(safe(&line), content),
                None => Item::Line(safe(&line)),
            });
        }
    }
}

/// The observation of a proposal that was not admitted.
fn refused(event: &Event) -> Option<Digest> {
    let Body::StepFinished(body) = &event.body else { return None };
    let observation = body.observation.as_ref()?;
    let invalid = observation.kind == ObservationKind::InvalidProposal;
    observation.content.filter(|_| invalid).map(|content| content.digest)
}

fn safe(line: &str) -> String {
    sanitize::clip(&sanitize::line(line), MAX_LINE)
}

/// How the thread that writes looks contents up.
struct Reader {
    runtime: Handle,
    contents: Arc<OnceLock<Weak<dyn Database>>>,
}

impl Reader {
    /// The place and the rule that an observation holds, where they can be read.
    fn place(&self, content: Digest) -> Option<String> {
        let database = self.contents.get()?.upgrade()?;
        let scope = Scope::of_file_owner();
        let found = self.runtime.block_on(database.content(&scope, content)).ok()??;
        invalid::place(found.bytes())
    }
}

fn write(items: &Receiver<Item>, reader: &Reader) {
    // Whoever closed standard error does not want to know.
    let tell = |line: &str| drop(writeln!(std::io::stderr().lock(), "{line}"));
    for item in items {
        match item {
            Item::Line(line) => tell(&line),
            Item::Invalid(line, content) => match reader.place(content) {
                Some(place) => tell(&format!("{line} {place}")),
                None => tell(&line),
            },
            Item::Settle(done) => drop(done.send(())),
        }
    }
}
