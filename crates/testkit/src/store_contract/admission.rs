//! Cases: what an append has to bring, and what is refused whole.

use portcullis_canon::{Digest, Kind};
use portcullis_domain::child;
use portcullis_domain::content::Content;
use portcullis_domain::event::{Body, JournalOpened, LeaseCause, ThreadLabelled, ThreadOpened};
use portcullis_domain::id::{JournalId, RunId, StepId, ThreadId};
use portcullis_domain::label::Labels;
use portcullis_domain::lease::Epoch;
use portcullis_domain::observation::ObservationKind;
use portcullis_domain::ports::{Append, Condition, Durability, StoreError};
use portcullis_domain::run::{EndReason, RunStatus};
use portcullis_domain::step::StepStatus;
use portcullis_domain::stream::{Stream, StreamKind};

use super::{Backend, fold, ok, plain, refused, scope};
use crate::block_on;
use crate::ports::SeededEntropy;
use crate::scenario::{Scenario, allow};

const NOT_ADMITTED: StoreError = StoreError::NotAdmitted;

/// An append whose last event does not fit is refused whole, its contents included; then a good one passes.
pub fn a_refused_append_stores_nothing(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = Scenario::new(1, store.instance());
    ok(&*store, run.begin());
    let mut bad = Scenario::new(1, store.instance());
    bad.begin();
    bad.step_opened();
    bad.proposed(b"{}");
    bad.started();
    let bad = bad.driver(Durability::Synced);
    let content = bad.contents[0].reference().digest;
    refused(&*store, bad, &NOT_ADMITTED);
    assert_eq!(block_on(store.content(&scope(), content)).unwrap(), None);
    refused(
        &*store,
        Append { events: Vec::new(), ..run.driver(Durability::Synced) },
        &NOT_ADMITTED,
    );
    run.step_opened();
    run.proposed(b"{}");
    ok(&*store, run.driver(Durability::Synced));
    fold::check(&*store);
}

/// Each content that is brought is named, each that is named is brought or there.
pub fn contents_are_named_and_brought(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = Scenario::new(2, store.instance());
    ok(&*store, run.begin());
    run.step_opened();
    run.proposed(b"{\"a\":1}");
    let good = run.driver(Durability::Synced);
    let stray = Content::seal(b"stray".to_vec(), &SeededEntropy::new(9));
    let extra = [good.contents.clone(), vec![stray.clone()]].concat();
    refused(&*store, Append { contents: Vec::new(), ..good.clone() }, &NOT_ADMITTED);
    refused(&*store, Append { contents: vec![stray], ..good.clone() }, &NOT_ADMITTED);
    refused(&*store, Append { contents: extra, ..good.clone() }, &NOT_ADMITTED);
    let mut resized = good.clone();
    for event in &mut resized.events {
        if let Body::StepProposed(body) = &mut event.body {
            body.proposal.size += 1;
        }
    }
    refused(&*store, resized, &NOT_ADMITTED);
    let content = good.contents[0].clone();
    ok(&*store, good);
    let read = block_on(store.content(&scope(), content.reference().digest)).unwrap();
    assert_eq!(read.as_ref(), Some(&content));
    // Known ones need not come again, and may.
    run.judged(allow());
    run.started();
    let mut observation = run.observation(ObservationKind::ToolResult, b"unused");
    observation.content = Some(content.reference());
    let body = portcullis_domain::event::StepFinished {
        status: StepStatus::Done,
        read: None,
        observation: Some(observation),
        active_us: 1,
    };
    run.push(Some(run.step), Body::StepFinished(body));
    let append = run.driver(Durability::Synced);
    ok(&*store, Append { contents: vec![content], ..append });
    fold::check(&*store);
}

/// Each spec that is named is brought or known.
pub fn specs_are_named_and_brought(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = Scenario::new(3, store.instance());
    let good = run.begin();
    let spec = run.tool.digest();
    refused(&*store, Append { specs: Vec::new(), ..good.clone() }, &NOT_ADMITTED);
    let stray = [good.specs.clone(), vec![b"{}".to_vec()]].concat();
    refused(&*store, Append { specs: stray, ..good.clone() }, &NOT_ADMITTED);
    assert_eq!(block_on(store.spec(spec)).unwrap(), None);
    ok(&*store, good);
    assert_eq!(block_on(store.spec(spec)).unwrap(), Some(run.tool.canonical()));
    // A second run of the same tool need not bring it again.
    let mut second = Scenario::new(4, store.instance());
    let begin = second.begin();
    ok(&*store, Append { specs: Vec::new(), ..begin });
    // Judged against a spec that nobody has seen.
    second.tool.description.push('!');
    second.step_opened();
    second.proposed(b"{}");
    second.judged(allow());
    refused(&*store, second.driver(Durability::Synced), &NOT_ADMITTED);
}

/// A run's thread and parent are there, and its root is its parent's.
pub fn a_run_needs_its_thread_and_parent(backend: &dyn Backend) {
    let store = plain(backend);
    let create = |run: &mut Scenario| {
        run.run_created();
        run.lease_acquired(LeaseCause::Begin);
        run.taking(false)
    };
    let mut run = Scenario::new(5, store.instance());
    refused(&*store, create(&mut run), &StoreError::NotFound("thread"));
    let mut run = Scenario::new(5, store.instance());
    ok(&*store, run.begin());

    let mut child = Scenario::new(6, store.instance());
    child.thread = run.thread;
    child.parent = Some(RunId::from_bytes([0xee; 16]));
    refused(&*store, create(&mut child), &StoreError::NotFound("parent run"));
    // The id of a run that a call may start one day is nobody else's.
    let begun = |id: Option<RunId>| {
        let mut begun = Scenario::new(17, store.instance());
        begun.thread = run.thread;
        begun.run = id.unwrap_or(begun.run);
        create(&mut begun)
    };
    let taken = child::id(run.run, StepId::from_bytes([9; 16]));
    refused(&*store, begun(Some(taken)), &NOT_ADMITTED);
    ok(&*store, begun(None));

    let child = |parent| {
        let mut child = Scenario::new(7, store.instance());
        child.thread = run.thread;
        child.parent = Some(parent);
        child
    };
    let mut elsewhere = create(&mut child(run.run));
    for event in &mut elsewhere.events {
        if let Body::RunCreated(body) = &mut event.body {
            body.root = RunId::from_bytes([0xee; 16]);
        }
    }
    refused(&*store, elsewhere, &NOT_ADMITTED);
    let mut foreign = create(&mut child(run.run));
    for event in &mut foreign.events {
        if let Body::RunCreated(body) = &mut event.body {
            body.owner = "somebody else".to_owned();
        }
    }
    refused(&*store, foreign, &NOT_ADMITTED);
    ok(&*store, create(&mut child(run.run)));
    let folded = fold::check(&*store);
    let child = folded.runs.values().find(|state| state.run.parent.is_some()).unwrap();
    assert_eq!(child.run.root, run.run);
}

/// A run or a thread that is there is not created again.
pub fn a_run_exists_once(backend: &dyn Backend) {
    let store = plain(backend);
    let begin = Scenario::new(8, store.instance()).begin();
    ok(&*store, begin.clone());
    refused(&*store, begin.clone(), &StoreError::Stale);
    let mut again = Scenario::new(8, store.instance());
    again.run = RunId::from_bytes([3; 16]);
    refused(&*store, again.begin(), &StoreError::Stale);
    let mut missing = Scenario::new(9, store.instance());
    missing.begin();
    missing.step_opened();
    refused(&*store, missing.driver(Durability::Synced), &StoreError::NotFound("run"));
    let mut early = Scenario::new(9, store.instance());
    early.step_opened();
    refused(&*store, early.driver(Durability::Synced), &NOT_ADMITTED);
    let mut headstrong = Scenario::new(9, store.instance()).begin();
    if let Condition::Driver { epoch, .. } = &mut headstrong.condition {
        *epoch = Epoch(1);
    }
    refused(&*store, headstrong, &NOT_ADMITTED);
}

/// The id of another run's step or question is not taken again.
pub fn ids_are_used_once(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = Scenario::new(10, store.instance());
    ok(&*store, run.begin());
    run.step_opened();
    ok(&*store, run.driver(Durability::Synced));
    let mut thief = Scenario::new(11, store.instance());
    ok(&*store, thief.begin());
    thief.step_opened();
    let mut append = thief.driver(Durability::Synced);
    let honest = append.clone();
    for event in &mut append.events {
        event.step = Some(run.step);
    }
    refused(&*store, append, &NOT_ADMITTED);
    ok(&*store, honest);
    fold::check(&*store);
}

/// Each condition admits only its own kinds of facts, and only of its own run.
pub fn kinds_keep_to_their_condition(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = Scenario::new(12, store.instance());
    ok(&*store, run.begin());
    let mut other = Scenario::new(13, store.instance());
    ok(&*store, other.begin());

    let step = StepId::from_bytes([1; 16]);
    let refuse = |condition: Option<Condition>, push: &mut dyn FnMut(&mut Scenario)| {
        let mut run = Scenario::new(12, store.instance());
        run.begin();
        push(&mut run);
        let append = match condition {
            Some(condition) => run.append(condition, Durability::Synced),
            None => run.driver(Durability::Synced),
        };
        refused(&*store, append, &NOT_ADMITTED);
    };
    let operator =
        || Condition::Operator { run: run.run, statuses: vec![RunStatus::Running], question: None };
    let journal = Body::JournalOpened(JournalOpened { journal: JournalId::from_bytes([1; 16]) });
    let system = Stream::from(store.instance());
    refuse(None, &mut |run| run.push_elsewhere(system, None, journal.clone()));
    refuse(None, &mut |run| run.outcome_late());
    refuse(None, &mut |run| run.lease_acquired(LeaseCause::Free));
    refuse(None, &mut |run| run.answered("ann", portcullis_domain::approval::Answer::Approve));
    refuse(Some(operator()), &mut |run| run.lease_released());
    refuse(Some(operator()), &mut |run| run.started());
    refuse(Some(Condition::Late), &mut |run| run.step_opened());
    refuse(Some(Condition::Late), &mut |run| run.run_finished(EndReason::InternalError));
    refuse(None, &mut |run| {
        let body = Body::ThreadOpened(ThreadOpened { owner: "owner".to_owned() });
        run.push_elsewhere(Stream { kind: StreamKind::Grant, id: [1; 16] }, None, body);
    });
    let stranger = Stream::from(other.run);
    refuse(None, &mut |run| {
        let body = portcullis_domain::event::StepOpened { index: 0, batch: 1, batch_index: 0 };
        run.push_elsewhere(stranger, Some(step), Body::StepOpened(body));
    });
    let labels =
        |run, step| Body::ThreadLabelled(ThreadLabelled { labels: Labels::none(), run, step });
    let (own, thread) = (run.run, Stream::from(run.thread));
    refuse(None, &mut |run| run.push_elsewhere(thread, None, labels(own, step)));
    refuse(None, &mut |run| {
        run.step_opened();
        run.push_elsewhere(thread, None, labels(other.run, run.step));
    });
    // The control: the same fact of the run's own step passes.
    run.step_opened();
    run.labelled();
    ok(&*store, run.driver(Durability::Synced));
    let gone = Stream::from(ThreadId::from_bytes([5; 16]));
    run.push_elsewhere(gone, None, labels(own, run.step));
    let append = run.driver(Durability::Synced);
    refused(&*store, append, &StoreError::NotFound("thread"));
    fold::check(&*store);
}

/// After its end a run takes late outcomes and nothing else.
pub fn nothing_follows_the_end(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = Scenario::new(14, store.instance());
    ok(&*store, run.begin());
    run.run_finished(EndReason::GoalFailed);
    ok(&*store, run.driver(Durability::Synced));
    let ended = StoreError::RunState { status: RunStatus::Failed };
    let after = |push: &dyn Fn(&mut Scenario), take: bool| {
        let mut run = Scenario::new(14, store.instance());
        run.begin();
        run.run_finished(EndReason::GoalFailed);
        run.driver(Durability::Synced);
        push(&mut run);
        if take { run.taking(true) } else { run.driver(Durability::Synced) }
    };
    refused(&*store, after(&|run| run.step_opened(), false), &ended);
    refused(&*store, after(&|run| run.lease_acquired(LeaseCause::Free), true), &ended);
    let mut cancel = Scenario::new(14, store.instance());
    cancel.begin();
    cancel.run_finished(EndReason::OperatorCancelled);
    let condition = Condition::Operator {
        run: run.run,
        statuses: vec![RunStatus::Running, RunStatus::Waiting],
        question: None,
    };
    refused(&*store, cancel.append(condition, Durability::Synced), &ended);
    let unknown = Digest::of(Kind::Content, b"never stored");
    let erased = block_on(store.erase(&scope(), unknown, "operator", run.at));
    assert_eq!(erased, Err(StoreError::NotFound("content")));
}
