//! The judge: holds what happened, counted from outside, against what the record says.

use std::collections::BTreeMap;

use portcullis::audit::{Options, verify};
use portcullis::domain::approval::Answer;
use portcullis::domain::event::{Body, LeaseCause};
use portcullis::domain::fold::RunState;
use portcullis::domain::ports::{
    Clock as _, EventFilter, Ledgers, MAX_PAGE, Page, Store, StoredEvent,
};
use portcullis::domain::question::{QuestionKind, QuestionStatus};
use portcullis::domain::recovery::Found;
use portcullis::domain::run::{EndReason, Run, RunStatus};
use portcullis::domain::scope::Scope;
use portcullis::domain::step::{Step, StepStatus};
use portcullis::store::sqlite::error::OpenError;
use portcullis::store::sqlite::open::OpenMode;
use portcullis::store::sqlite::{Committing, Opening, SqliteStore};
use portcullis::system::{OsEntropy, SystemClock};
use portcullis_testkit::block_on;

use super::cast::{keyring, only_run};
use super::place::{Kept, Place};
use super::story::{Line, Story};
use super::tools::changes;

/// What became of one change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Finding {
    /// It happened once.
    Once,
    /// It happened again because a person said so.
    Again,
    /// It did not happen, and the record agrees.
    NotDone,
    /// It may have happened, and a person is asked.
    Waits,
    /// It was started and its outcome is not recorded yet.
    Started,
    /// Its run ended while it was under way; it happened at most once.
    Unsettled,
    /// It happened more often than people allowed.
    Twice,
    /// The record says that it happened, and it did not.
    Lost,
    /// It happened, and the record says that it did not, or knows nothing of it.
    Unrecorded,
}

impl Finding {
    /// What is wrong about it, if anything is.
    const fn blame(self) -> Option<Blame> {
        match self {
            Self::Twice => Some(Blame::Double),
            Self::Lost | Self::Unrecorded => Some(Blame::Loss),
            _ => None,
        }
    }
}

/// What kind of wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Blame {
    /// An effect happened more often than people allowed.
    Double,
    /// An effect, or the record of one, is missing.
    Loss,
    /// Anything else that must not be.
    Other,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fault {
    pub(crate) blame: Blame,
    pub(crate) text: String,
}

impl Fault {
    pub(crate) fn new(blame: Blame, text: impl Into<String>) -> Self {
        Self { blame, text: text.into() }
    }

    pub(crate) fn other(text: impl Into<String>) -> Self {
        Self::new(Blame::Other, text)
    }
}

/// A place as the judge found it.
#[derive(Debug)]
pub(crate) struct Judged {
    /// By line of the script.
    pub(crate) changes: BTreeMap<u64, Finding>,
    /// The run, if it was begun.
    pub(crate) state: Option<RunState>,
    /// Events of all streams.
    pub(crate) events: u64,
    /// Whether a run has a holder: it, or the one that it started.
    pub(crate) held: bool,
    /// How many leases were come by with proof that their holder was dead.
    pub(crate) proven: usize,
    /// Lines whose change a person, or its probe, said did not happen.
    pub(crate) denied_by_people: Vec<u64>,
    /// What `verify` says is broken.
    pub(crate) breaks: Vec<String>,
}

impl Judged {
    pub(crate) fn reason(&self) -> Option<EndReason> {
        self.state.as_ref().and_then(|state| state.run.reason)
    }

    /// Whether the run waits for a person who says what became of a call.
    pub(crate) fn waits_for_outcome(&self) -> bool {
        self.state.as_ref().is_some_and(|state| {
            state.run.status == RunStatus::Waiting
                && state.question.as_ref().is_some_and(|question| {
                    question.kind == QuestionKind::UnknownOutcome
                        && question.status == QuestionStatus::Open
                })
        })
    }

    /// What no kill may lead to.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let wrong = self.changes.iter().filter_map(|(line, finding)| {
            Some(Fault::new(finding.blame()?, format!("line {line}: {finding:?}")))
        });
        let broken = self.breaks.iter().map(|found| Fault::other(format!("not intact: {found}")));
        wrong.chain(broken).collect()
    }

    /// The last change that the run had come to, or else its first.
    pub(crate) fn change_at_hand(&self) -> Option<Finding> {
        let step = self.state.as_ref().and_then(|state| state.step());
        let reached = step.map_or(0, |step| step.index);
        let last = self.changes.range(..=reached).next_back();
        last.or_else(|| self.changes.iter().next()).map(|(_, finding)| *finding)
    }
}

/// A store and what `verify` walks.
trait Record: Store + Ledgers {}

impl<T: Store + Ledgers> Record for T {}

/// Judges a place that no process uses.
pub(crate) fn judge(story: &Story, place: &Place) -> Judged {
    let store: Box<dyn Record> = match &place.kept {
        Kept::Memory(tables) => Box::new(tables.store.clone()),
        Kept::Sqlite { .. } => match read_only(place) {
            Some(store) => Box::new(store),
            None => return unbegun(story, place, 0),
        },
    };
    let store = store.as_ref();
    let (events, mut breaks) = verified(store);
    let scope = Scope::of_file_owner();
    let Some(run) = block_on(only_run(store, &scope)) else {
        return Judged { breaks, ..unbegun(story, place, events) };
    };
    let state = block_on(store.run(&scope, run)).unwrap().unwrap();
    let page = Page { offset: 0, limit: MAX_PAGE };
    let held = block_on(store.held_budgets(&scope, page)).unwrap().total;
    if state.run.status.is_terminal() && held > 0 {
        breaks.push(format!("the run has ended, and {held} budgets hold something for it"));
    }
    let runs = block_on(store.runs(&scope, None, page)).unwrap().rows;
    let runs: Vec<Run> = runs.into_iter().map(Result::unwrap).collect();
    if state.run.status.is_terminal() && runs.iter().any(|run| !run.status.is_terminal()) {
        breaks.push("the run has ended, and one that it started has not".to_owned());
    }
    let steps = block_on(store.steps(&scope, run, page)).unwrap().rows;
    let steps: Vec<Step> = steps.into_iter().map(Result::unwrap).collect();
    let record = Account { state: &state, steps: &steps, bodies: bodies(store, &scope) };
    let effects = place.effects.all();
    let changes = lines(story).map(|line| {
        let times = effects.get(&line).map_or(&[][..], Vec::as_slice);
        (line, record.finding(line, times))
    });
    Judged {
        changes: changes.collect(),
        events,
        held: runs.iter().any(|run| run.holder.is_some()),
        proven: record.proven(),
        denied_by_people: lines(story).filter(|line| record.said_not(*line)).collect(),
        breaks,
        state: Some(state),
    }
}

/// The store of a place, if it was made.
fn read_only(place: &Place) -> Option<SqliteStore> {
    if !place.db().exists() {
        return None;
    }
    let opening = Opening {
        now: SystemClock::new().now(),
        entropy: &OsEntropy,
        observers: Vec::new(),
        committing: Committing::Caller,
    };
    match SqliteStore::open(&place.db(), OpenMode::ReadOnly, opening) {
        Ok(store) => Some(store),
        // Killed while it was made, before it held an event: only a writer can finish that, and the next process
        // has to. Who calls this counts events, so that no database with events passes for one of these.
        Err(
            OpenError::NotADatabase { .. } | OpenError::NotWritable { .. } | OpenError::Busy { .. },
        ) => None,
        Err(error) => panic!("{error}"),
    }
}

/// The lines of a script that call a tool which changes something.
fn lines(story: &Story) -> impl Iterator<Item = u64> {
    let numbered = (0_u64..).zip(story.script);
    numbered.filter(|(_, line)| matches!(line, Line::Call(tool) if changes(tool))).map(|(n, _)| n)
}

/// Nothing may have happened before there is a run.
fn unbegun(story: &Story, place: &Place, events: u64) -> Judged {
    let effects = place.effects.all();
    let finding = |line| {
        if effects.contains_key(&line) { Finding::Unrecorded } else { Finding::NotDone }
    };
    Judged {
        changes: lines(story).map(|line| (line, finding(line))).collect(),
        state: None,
        events,
        held: false,
        proven: 0,
        denied_by_people: Vec::new(),
        breaks: Vec::new(),
    }
}

fn verified(store: &dyn Record) -> (u64, Vec<String>) {
    let ring = keyring();
    let options = Options { keys: &[&ring], ..Options::default() };
    let report = verify(store.begin().unwrap().as_mut(), options).unwrap();
    assert_eq!(report.intact, report.breaks.is_empty());
    (report.events, report.breaks.iter().map(ToString::to_string).collect())
}

fn bodies(store: &dyn Record, scope: &Scope) -> Vec<(Option<String>, Body)> {
    let filter = EventFilter { stream: None, after: 0, limit: MAX_PAGE };
    let events = block_on(store.events(scope, filter)).unwrap();
    assert!(events.len() < usize::try_from(MAX_PAGE).unwrap(), "a story fits a page");
    let read = |event: &StoredEvent| {
        let event = event.event(store.instance()).unwrap();
        (event.link.step.map(|step| step.to_string()), event.body)
    };
    events.iter().map(read).collect()
}

/// What the record says of the changes.
struct Account<'a> {
    state: &'a RunState,
    steps: &'a [Step],
    bodies: Vec<(Option<String>, Body)>,
}

impl Account<'_> {
    fn step(&self, line: u64) -> Option<&Step> {
        self.steps.iter().find(|step| step.index == line)
    }

    fn of_step(&self, line: u64) -> impl Iterator<Item = &Body> {
        let id = self.step(line).map(|step| step.id.to_string());
        self.bodies
            .iter()
            .filter(move |(step, _)| id.is_some() && *step == id)
            .map(|(_, body)| body)
    }

    fn answers(&self, line: u64, wanted: Answer) -> usize {
        let said = |body: &&Body| matches!(body, Body::QuestionAnswered(answered) if answered.statement.answer == wanted);
        self.of_step(line).filter(said).count()
    }

    fn said_not(&self, line: u64) -> bool {
        let found = |body: &Body| matches!(body, Body::ProbeFinished(probed) if probed.found == Found::DidNotHappen);
        self.answers(line, Answer::DidNotHappen) > 0 || self.of_step(line).any(found)
    }

    fn proven(&self) -> usize {
        let proven = |body: &Body| matches!(body, Body::LeaseAcquired(acquired) if acquired.cause == LeaseCause::HolderDead);
        self.bodies.iter().filter(|(_, body)| proven(body)).count()
    }

    /// `times` says of each start of the change how often it happened.
    fn finding(&self, line: u64, times: &[u64]) -> Finding {
        let happened: u64 = times.iter().sum();
        let again = u64::try_from(self.answers(line, Answer::RunAgain)).unwrap();
        if happened > 1 + again || times.iter().any(|start| *start > 1) {
            return Finding::Twice;
        }
        let Some(step) = self.step(line).filter(|step| step.starts > 0) else {
            return if happened == 0 { Finding::NotDone } else { Finding::Unrecorded };
        };
        match step.status {
            StepStatus::Done if happened == 0 => Finding::Lost,
            StepStatus::Done if happened > 1 => Finding::Again,
            StepStatus::Done => Finding::Once,
            // The last start did not happen, as a person found; an earlier one may have.
            StepStatus::Failed if self.said_not(line) => match happened {
                0 => Finding::NotDone,
                1 if step.starts > 1 => Finding::Once,
                _ => Finding::Unrecorded,
            },
            StepStatus::Failed | StepStatus::Interrupted | StepStatus::Advised if happened == 0 => {
                Finding::NotDone
            }
            // The end of the run closed the step, and nothing came back.
            StepStatus::Interrupted if self.state.run.status.is_terminal() => Finding::Unsettled,
            // What a host was told is no effect; one that happened all the same is not recorded.
            StepStatus::Failed | StepStatus::Interrupted | StepStatus::Advised => {
                Finding::Unrecorded
            }
            StepStatus::Executing | StepStatus::Probing => Finding::Started,
            StepStatus::Deciding | StepStatus::Awaiting => Finding::Waits,
        }
    }
}
