//! What a running `run` tells on standard error: one line for each fact, after it was committed, and the words of a
//! model while it says them.
//!
//! The store's writer hands events over and never waits for the terminal: a thread of its own writes the lines,
//! and lines that it cannot keep up with are counted instead.

use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use portcullis_canon::{Digest, Object, Value, sanitize};
use portcullis_domain::budget::Amounts;
use portcullis_domain::event::{Body, Event, LeaseCause, QuestionAsked};
use portcullis_domain::id::{RunId, StepId};
use portcullis_domain::observation::{Observation, ObservationKind};
use portcullis_domain::ports::{Observer, Shown, Watch};
use portcullis_domain::question::{Question, QuestionKind};
use portcullis_domain::scope::Scope;
use portcullis_domain::step::Step;
use portcullis_domain::verdict::Verdict;
use portcullis_models::show_amount;
use tokio::runtime::Handle;

use crate::again;
use crate::assemble::Database;
use crate::output::{asked, invalid};

/// Lines that may wait for the terminal.
const MAX_WAITING: usize = 4096;

/// Steps whose numbers are kept; only the last ones are still spoken of.
pub(crate) const MAX_STEPS: usize = 64;

/// How long the last lines are waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest line, in bytes.
const MAX_LINE: usize = 240;

/// The longest piece of a model's words that one line tells, in bytes; what it is introduced with fits beside it.
const MAX_SAID: usize = MAX_LINE - 8;

enum Item {
    Line(String),
    /// A line about a refused proposal, and the observation that holds its place.
    Invalid(String, Digest),
    /// The beginning of a line about a proposal, and its content.
    Asked(String, Digest),
    Settle(SyncSender<()>),
}

/// Tells what is committed.
pub(crate) struct Progress {
    lines: SyncSender<Item>,
    steps: Mutex<VecDeque<(StepId, u64)>>,
    /// The question with which the run was taken up.
    before: Mutex<Option<Question>>,
    lost: AtomicU64,
    /// The agent asks a model, so that what it asks for is told.
    asks: AtomicBool,
    /// What a model said of a line that is not over.
    said: Mutex<String>,
    /// What models cost in this run so far.
    spent: Arc<Mutex<Amounts>>,
    /// Where contents are looked up; not held, since the store holds this.
    contents: Arc<OnceLock<Weak<dyn Database>>>,
}

impl Progress {
    /// Starts the thread that writes, for a person or, `json`, for a program.
    pub(crate) fn start(json: bool) -> Arc<Self> {
        let (lines, items) = sync_channel(MAX_WAITING);
        let contents = Arc::new(OnceLock::new());
        let spent = Arc::new(Mutex::new(Amounts::NONE));
        let reader = Reader { runtime: Handle::current(), contents: Arc::clone(&contents) };
        let told = json.then(|| Arc::clone(&spent));
        // Without the thread the lines are counted as lost, and the run goes on.
        let writing = std::thread::Builder::new().name("progress".into());
        let _ = writing.spawn(move || write(&items, &reader, told.as_ref()));
        Arc::new(Self {
            lines,
            steps: Mutex::default(),
            before: Mutex::default(),
            lost: AtomicU64::new(0),
            asks: AtomicBool::new(false),
            said: Mutex::default(),
            spent,
            contents,
        })
    }

    /// Tells from now on what the agent asks for, and hands out what tells the words of its model.
    pub(crate) fn watch(self: &Arc<Self>) -> Watch {
        self.asks.store(true, Ordering::Relaxed);
        let progress = Arc::clone(self);
        Watch::new(move |piece| progress.hear(piece))
    }

    /// What the run's models cost before this process.
    pub(crate) fn spent_before(&self, spent: Amounts) {
        *self.spent.lock().unwrap_or_else(PoisonError::into_inner) = spent;
    }

    fn hear(&self, piece: Shown<'_>) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        match piece {
            Shown::Text(text) => said.push_str(text),
            Shown::Tool(_) => said.push('\n'),
            Shown::Thinking(_) => return,
        }
        let rest = spoken(&said, |line| self.speak(line)).to_owned();
        *said = rest;
    }

    fn speak(&self, line: &str) {
        if !line.trim().is_empty() {
            self.say(&format!("model: {}", line.trim()));
        }
    }

    /// A reply is over: what is left of its last line is told.
    fn heard(&self) {
        let rest = std::mem::take(&mut *self.said.lock().unwrap_or_else(PoisonError::into_inner));
        self.speak(&rest);
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

    /// What models cost in the run, this included.
    fn so_far(&self, used: Amounts) -> String {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        *spent = spent.plus(used);
        let tokens = spent.input_tokens.saturating_add(spent.output_tokens);
        let calls = if spent.calls == 1 { "call" } else { "calls" };
        let cost = show_amount(spent.cost_micros);
        format!("; so far {} {calls}, {tokens} tokens, cost {cost}", spent.calls)
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
            Body::StepAdvised(body) => format!("{}: advised {}", step(), body.advice.as_str()),
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
                let (how, cost) = (body.how.as_str(), show_amount(used.cost_micros));
                let so_far = self.so_far(used);
                format!(
                    "{}: model {how}: {input} tokens in, {output} out, cost {cost}{so_far}",
                    step()
                )
            }
            Body::BudgetOpened(_)
            | Body::BudgetReserved(_)
            | Body::LeaseReleased(_)
            | Body::StepProposed(_)
            | Body::ThreadOpened(_)
            | Body::ThreadLabelled(_)
            | Body::ThreadCounted(_)
            | Body::JournalOpened(_)
            | Body::ContentErased(_) => return None,
        })
    }
}

/// Tells the lines that are over, a long one in pieces, and returns what goes on. Each byte is looked at once: a provider
/// decides how many lines there are, and whoever awaits its reply waits for this.
fn spoken<'s>(said: &'s str, mut tell: impl FnMut(&'s str)) -> &'s str {
    let (over, mut rest) = said.rsplit_once('\n').unwrap_or(("", said));
    for mut line in over.split('\n') {
        while let Some((piece, more)) = first_piece(line) {
            tell(piece);
            line = more;
        }
        tell(line);
    }
    while let Some((piece, more)) = first_piece(rest) {
        tell(piece);
        rest = more;
    }
    rest
}

/// The beginning of a line that is too long to be told at once, up to a space where there is one, and what follows.
fn first_piece(line: &str) -> Option<(&str, &str)> {
    if line.len() <= MAX_SAID {
        return None;
    }
    let (most, _) = line.split_at_checked(line.floor_char_boundary(MAX_SAID))?;
    let end = most.rfind(' ').map_or(most.len(), |space| space.saturating_add(1));
    line.split_at_checked(end)
}

/// Whether the end of the same attempt stands before.
fn told_before<'a>(mut before: impl Iterator<Item = &'a Event>, event: &Event) -> bool {
    let Body::BudgetSettled(body) = &event.body else { return false };
    before.any(|other| matches!(&other.body, Body::BudgetSettled(o) if o.attempt == body.attempt))
}

/// Whether it is the proposal of a further step of a batch, which was told with the first.
fn stands_beside<'a>(mut before: impl Iterator<Item = &'a Event>, event: &Event) -> bool {
    let opens = |body: &Body| matches!(body, Body::StepOpened(opened) if opened.batch_index > 0);
    matches!(event.body, Body::StepProposed(_))
        && before.any(|other| other.link.step == event.link.step && opens(&other.body))
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
            if told_before(events.iter().take(place), event)
                || stands_beside(events.iter().take(place), event)
            {
                continue;
            }
            if let Body::BudgetSettled(_) = &event.body {
                self.heard();
            }
            if let (Body::StepProposed(body), true) =
                (&event.body, self.asks.load(Ordering::Relaxed))
            {
                self.send(Item::Asked(self.number(event.link.step), body.proposal.digest));
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
        invalid::place(&self.content(content)?)
    }

    fn content(&self, content: Digest) -> Option<Vec<u8>> {
        let database = self.contents.get()?.upgrade()?;
        let scope = Scope::of_file_owner();
        let found = self.runtime.block_on(database.content(&scope, content)).ok()??;
        Some(found.bytes().to_vec())
    }
}

/// One line for a program, with what models cost so far.
fn json(line: &str, spent: Amounts) -> String {
    let spent = Object::from_iter([
        ("calls", spent.calls),
        ("cost_micros", spent.cost_micros),
        ("input_tokens", spent.input_tokens),
        ("output_tokens", spent.output_tokens),
    ]);
    let line =
        Object::from_iter([("progress", Value::from(line)), ("spent", Value::Object(spent))]);
    Value::Object(line).to_canonical_string()
}

fn write(items: &Receiver<Item>, reader: &Reader, spent: Option<&Arc<Mutex<Amounts>>>) {
    let form = |line: &str| match spent {
        None => line.to_owned(),
        Some(spent) => json(line, *spent.lock().unwrap_or_else(PoisonError::into_inner)),
    };
    // Whoever closed standard error does not want to know.
    let tell = |line: &str| drop(writeln!(std::io::stderr().lock(), "{}", form(line)));
    for item in items {
        match item {
            Item::Line(line) => tell(&line),
            Item::Invalid(line, content) => match reader.place(content) {
                Some(place) => tell(&format!("{line} {place}")),
                None => tell(&line),
            },
            Item::Asked(step, content) => {
                if let Some(asked) = reader.content(content).and_then(|raw| asked::asked(&raw)) {
                    tell(&format!("{step}: {asked}"));
                }
            }
            Item::Settle(done) => drop(done.send(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_domain::ports::{Durability, Store as _};
    use portcullis_domain::time::Timestamp;
    use portcullis_store::memory::MemoryStore;
    use portcullis_testkit::block_on;
    use portcullis_testkit::ports::SeededEntropy;
    use portcullis_testkit::scenario::Scenario;

    #[test]
    fn a_model_s_words_are_told_in_lines_and_none_is_left_out() {
        #[track_caller]
        fn check(said: &str, lines: &[&str], rest: &str) {
            let mut told = Vec::new();
            assert_eq!(spoken(said, |line| told.push(line)), rest);
            told.retain(|line| !line.trim().is_empty());
            assert_eq!(told, lines);
        }
        check("", &[], "");
        check("half", &[], "half");
        check("one\ntwo", &["one"], "two");
        check("one\n \n\ntwo\n", &["one", "two"], "");
        for word in ["word ", "word", "w\u{f6}rd", "word\n", " "] {
            let said = word.repeat(1_000);
            let mut pieces = Vec::new();
            let rest = spoken(&said, |line| pieces.push(line));
            assert!(rest.len() <= MAX_SAID);
            for piece in &pieces {
                let line = format!("model: {}", piece.trim());
                assert!(line.len() <= MAX_LINE && safe(&line).len() <= MAX_LINE);
            }
            let told: String = pieces.iter().chain([&rest]).map(|piece| piece.trim()).collect();
            let bare = |text: &str| text.replace([' ', '\n'], "");
            assert_eq!(bare(&told), bare(&said));
        }
    }

    #[test]
    fn as_many_lines_as_a_reply_can_have_are_gone_through_once() {
        let said = "\n".repeat(8 << 20);
        let mut lines = 0_usize;
        assert_eq!(spoken(&said, |_| lines += 1), "");
        assert_eq!(lines, said.len());
    }

    #[test]
    fn what_a_batch_asks_for_is_told_with_its_first_step() {
        let store = MemoryStore::new(Timestamp::from_micros(1), &SeededEntropy::new(1));
        let mut run = Scenario::new(1, store.instance());
        let begin = run.begin();
        run.step_opened();
        run.proposed(br#"{"kind":"tool_calls","calls":[{"tool":"a"},{"tool":"b"},{"tool":"c"}]}"#);
        let proposed = run.driver(Durability::Written);
        run.batch_started(3);
        let started = run.driver(Durability::Synced);
        let mut told = Vec::new();
        for append in [begin, proposed, started] {
            let scope = Scope::of_file_owner();
            let events = block_on(store.append(&scope, append)).unwrap().events;
            let asks = events.iter().enumerate().filter_map(|(place, event)| {
                let proposed = matches!(event.body, Body::StepProposed(_));
                proposed.then(|| !stands_beside(events.iter().take(place), event))
            });
            told.extend(asks);
        }
        assert_eq!(told, [true, false, false]);
    }
}
