//! The judge of a history. It was written apart from the engine and is naive on purpose: it sees effects that the world
//! counted, answers that people gave, and the events, and knows what must hold between them.

mod batch;
mod naive;
mod person;
mod step;
mod unknown;

use portcullis_audit::{Options, verify};
use portcullis_domain::event::Event;
use portcullis_domain::fold::RunState;
use portcullis_domain::id::RunId;
use portcullis_domain::ports::{Ledgers as _, Store as _};
use portcullis_domain::question::{Question, QuestionKind, QuestionStatus};
use portcullis_domain::run::RunStatus;
use portcullis_domain::stream::{Stream, StreamKind};
use portcullis_domain::wait::Wait;
use portcullis_testkit::block_on;

use crate::log::{Entry, What};
use crate::seen::Seen;
use crate::world::World;
use naive::Naive;

/// The rules, each in one sentence.
pub(crate) mod rule {
    /// Effects against leave.
    pub(crate) const LEAVE: &str = "a call has no more effects than it has leave";
    /// Intent before effect.
    pub(crate) const INTENT: &str = "no effect without a durable intent before it";
    /// A no is a no.
    pub(crate) const NO: &str = "nothing starts after a no, an expiry or an end";
    /// Start needs leave.
    pub(crate) const GRANT: &str = "nothing starts without leave for exactly that call";
    /// Only the holder writes.
    pub(crate) const HOLDER: &str = "only the holder of the lease moves its run on";
    /// Batches.
    pub(crate) const BATCH: &str =
        "calls that come together only look, are allowed, and are begun and ended as a whole";
    /// The term.
    pub(crate) const TERM: &str = "nothing starts when the lease is over, and no call ends";
    /// A second call.
    pub(crate) const AGAIN: &str =
        "only a call that its receiver knows by its key is made again by itself, and once";
    /// Keys.
    pub(crate) const KEY: &str = "a key is that of one step, and a step has one key";
    /// Probes and hosts.
    pub(crate) const PROBE: &str = "what was found is what the tool's own probe, or the host, said of a call whose outcome is unknown";
    /// Open outcomes.
    pub(crate) const OPEN: &str = "while an outcome is open, its tool changes nothing else";
    /// Outcomes are true.
    pub(crate) const TRUE: &str =
        "the record claims of an effect what the world shows, or a person said";
    /// Late outcomes.
    pub(crate) const LATE: &str = "a late outcome is that of a call that was started";
    /// Answers.
    pub(crate) const ANSWERS: &str =
        "the answers in the record are those that people gave and heard taken";
    /// Able people.
    pub(crate) const PEOPLE: &str = "those who answer are those who were asked";
    /// Uses.
    pub(crate) const USES: &str = "a grant is used as often as it may be, and in time";
    /// Waiting.
    pub(crate) const WAITS: &str = "every run that has not ended names what it waits for";
    /// Ends.
    pub(crate) const ENDS: &str = "every run can be brought to an end";
    /// Fold.
    pub(crate) const FOLD: &str = "the tables are the fold of the events";
    /// Verify.
    pub(crate) const INTACT: &str = "the record verifies";
    /// Bugs.
    pub(crate) const NO_BUG: &str = "the gate meets no state that cannot be";
}

/// What a history broke: the rule, and how.
pub(crate) type Broken = (&'static str, String);

/// Judges a log, and counts what only it can see.
pub(crate) fn judge(world: &World, log: &[Entry], seen: &mut Seen) -> Vec<Broken> {
    let mut naive = Naive::new(seen);
    for entry in log {
        naive.read(entry);
    }
    let mut broken = naive.end();
    broken.extend(folds(world, log));
    broken.extend(intact(world));
    broken
}

/// Each run's events, folded anew, are its tables.
fn folds(world: &World, log: &[Entry]) -> Vec<Broken> {
    let mut broken = Vec::new();
    let mut runs: Vec<(Stream, Vec<&Event>)> = Vec::new();
    let commits = log.iter().filter_map(|entry| match &entry.what {
        What::Committed { events, .. } => Some(events),
        _ => None,
    });
    for event in commits.flatten().filter(|event| event.link.stream.kind == StreamKind::Run) {
        match runs.iter_mut().find(|(stream, _)| *stream == event.link.stream) {
            Some((_, events)) => events.push(event),
            None => runs.push((event.link.stream, vec![event])),
        }
    }
    for (stream, events) in runs {
        let run = RunId::from_bytes(stream.id);
        let stored = block_on(world.record.run(&world.scope, run));
        let folded = fold(&events);
        if !matches!((&stored, &folded), (Ok(Some(stored)), Some(folded)) if stored == folded) {
            broken.push((rule::FOLD, format!("{} is not its events folded", world.name(run))));
        }
    }
    broken
}

fn fold(events: &[&Event]) -> Option<RunState> {
    let (first, rest) = events.split_first()?;
    let mut state = RunState::begin(first).ok()?;
    for event in rest {
        state.apply(event).ok()?;
    }
    state.complete().ok()?;
    Some(state)
}

fn intact(world: &World) -> Vec<Broken> {
    let options = Options { keys: &[&world.ring], ..Options::default() };
    let verified = match world.record.begin() {
        Ok(mut ledger) => verify(ledger.as_mut(), options).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match verified {
        Ok(report) => report.breaks.iter().map(|found| (rule::INTACT, found.to_string())).collect(),
        Err(error) => vec![(rule::INTACT, error)],
    }
}

/// Each run that has not ended names what it waits for: a person, a holder with a term, or anybody who resumes it.
pub(crate) fn waits(world: &World, runs: &[RunState]) {
    for state in runs.iter().filter(|state| !state.run.status.is_terminal()) {
        let run = state.run.id;
        let term = block_on(world.record.lease(&world.scope, run)).ok().flatten();
        let question = state.question.as_ref().filter(|q| state.run.question == Some(q.id));
        let asked = question.is_some_and(|question| {
            matches!(question.status, QuestionStatus::Open | QuestionStatus::Granted)
        });
        let held = term.is_some_and(|term| term.epoch == state.run.epoch);
        let named = match (state.run.status, state.run.holder.is_some()) {
            (RunStatus::Waiting, false) => asked,
            // Taken up to use a grant: both the question and the holder are there.
            (RunStatus::Waiting, true) => asked && held,
            (RunStatus::Running, true) => held,
            (RunStatus::Running, false) => true,
            _ => false,
        };
        if !named || !row_says(state, question) {
            let name = world.name(run);
            world.broke(
                rule::WAITS,
                format!("{name} is {} and waits for nothing", state.run.status.as_str()),
            );
        }
    }
}

/// Whether the row's own word for the wait is the one that its other columns and its question come to.
fn row_says(state: &RunState, question: Option<&Question>) -> bool {
    let run = &state.run;
    let wait = match (question.map(|q| (q.status, q.kind)), run.holder.is_some()) {
        (Some((QuestionStatus::Open, QuestionKind::Approval)), _) => Wait::People,
        (Some((QuestionStatus::Open, QuestionKind::UnknownOutcome)), _) => Wait::Outcome,
        (_, true) => Wait::Driver,
        (Some((QuestionStatus::Granted, _)), false) => Wait::Grant,
        (_, false) => Wait::Resume,
    };
    run.waits == Some(wait) && run.free_since.is_some() == wait.is_free()
}
