//! Cases: answers, sweeps and late outcomes.

use std::time::Duration;

use portcullis_canon::{Digest, Kind};
use portcullis_domain::approval::Answer;
use portcullis_domain::event::LeaseCause;
use portcullis_domain::id::QuestionId;
use portcullis_domain::observation::ObservationKind;
use portcullis_domain::ports::{Append, Condition, Durability, Notice, Page, Reminder, StoreError};
use portcullis_domain::question::{QuestionKind, QuestionStatus};
use portcullis_domain::run::{EndReason, RunStatus};
use portcullis_domain::time::Timestamp;

use super::{Backend, Subject, fold, ok, plain, refused, scope};
use crate::block_on;
use crate::scenario::{Scenario, ask};

/// A run that waits for `count` people, with everything appended.
fn waiting(seed: u64, store: &dyn Subject, count: u32) -> Scenario {
    let mut run = Scenario::new(seed, store.instance());
    for append in until_waiting(&mut run, count) {
        ok(store, append);
    }
    run
}

fn until_waiting(run: &mut Scenario, count: u32) -> Vec<Append> {
    let begin = run.begin();
    run.step_opened();
    run.proposed(b"{}");
    run.judged(ask());
    run.asked(QuestionKind::Approval, count);
    vec![begin, run.driver(Durability::Synced)]
}

/// The same run again, to build another append on the same state.
fn again(seed: u64, store: &dyn Subject, count: u32) -> Scenario {
    let mut run = Scenario::new(seed, store.instance());
    until_waiting(&mut run, count);
    run
}

fn with_question(mut append: Append, shown: Option<(QuestionId, Digest)>) -> Append {
    if let Condition::Operator { question, .. } = &mut append.condition {
        *question = shown;
    }
    append
}

/// An answer is stored only for the open question and the digest that the person saw.
pub fn an_answer_names_what_was_shown(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = waiting(1, &*store, 1);
    run.answered("ann", Answer::Approve);
    let good = run.operator();
    let (id, digest) = run.question.unwrap();
    let other = Digest::of(Kind::Question, b"something else");
    let unknown = QuestionId::from_bytes([1; 16]);
    let refuse = |shown, error| refused(&*store, with_question(good.clone(), shown), &error);
    refuse(Some((id, other)), StoreError::DigestChanged);
    refuse(Some((unknown, digest)), StoreError::NotFound("question"));
    refuse(None, StoreError::NotAdmitted);
    let mut elsewhere = good.clone();
    if let Condition::Operator { statuses, .. } = &mut elsewhere.condition {
        *statuses = vec![RunStatus::Running];
    }
    refused(&*store, elsewhere, &StoreError::RunState { status: RunStatus::Waiting });
    // A statement that covers another digest does not count, whatever the condition says.
    let mut replayed = again(1, &*store, 1);
    replayed.question = Some((id, other));
    replayed.answered("ann", Answer::Approve);
    let replayed = with_question(replayed.operator(), Some((id, digest)));
    refused(&*store, replayed, &StoreError::NotAdmitted);
    ok(&*store, good);
    let folded = fold::check(&*store);
    let question = folded.runs[&run.run].question.clone().unwrap();
    assert_eq!((question.status, question.yes), (QuestionStatus::Granted, 1));
}

/// A question that was answered takes no second answer, and neither does one that another replaced.
pub fn an_answer_comes_once(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = waiting(2, &*store, 1);
    run.answered("ann", Answer::Approve);
    ok(&*store, run.operator());
    let mut second = again(2, &*store, 1);
    second.answered("bea", Answer::Reject);
    let second = second.operator();
    let granted = StoreError::QuestionState { status: QuestionStatus::Granted };
    refused(&*store, second.clone(), &granted);
    // The driver asks anew; the first question is withdrawn.
    run.lease_acquired(LeaseCause::Free);
    run.judged(ask());
    run.asked(QuestionKind::Approval, 1);
    ok(&*store, run.taking(false));
    let withdrawn = StoreError::QuestionState { status: QuestionStatus::Withdrawn };
    refused(&*store, second.clone(), &withdrawn);
    run.answered("bea", Answer::Reject);
    run.finished(ObservationKind::Denied);
    run.run_finished(EndReason::ApprovalRejected);
    ok(&*store, run.operator());
    let status = RunStatus::Cancelled;
    refused(&*store, second, &StoreError::RunState { status });
    fold::check(&*store);
}

/// Two people have to say yes, and one person cannot say it twice.
pub fn two_people_answer(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = waiting(3, &*store, 2);
    run.answered("ann", Answer::Approve);
    ok(&*store, run.operator());
    let mut twice = again(3, &*store, 2);
    twice.tick(Duration::from_secs(1));
    twice.answered("ann", Answer::Approve);
    refused(&*store, twice.operator(), &StoreError::NotAdmitted);
    run.answered("bea", Answer::Approve);
    ok(&*store, run.operator());
    let folded = fold::check(&*store);
    let (id, _) = run.question.unwrap();
    let read = block_on(store.approvals(&scope(), id)).unwrap();
    assert_eq!(read, folded.runs[&run.run].approvals);
    assert_eq!(read.iter().map(|a| a.person.as_str()).collect::<Vec<_>>(), ["ann", "bea"]);
    let nobody = block_on(store.approvals(&scope(), QuestionId::from_bytes([1; 16]))).unwrap();
    assert_eq!(nobody, []);
}

/// An answer at the instant of expiry is in time; one microsecond later it is not.
pub fn an_answer_comes_in_time(backend: &dyn Backend) {
    let store = plain(backend);
    let run = waiting(4, &*store, 1);
    let expiry = run.expires_at.unwrap();
    let answer = |at: Timestamp| {
        let mut run = again(4, &*store, 1);
        run.at = at;
        run.answered("ann", Answer::Approve);
        run.operator()
    };
    let expired = StoreError::QuestionState { status: QuestionStatus::Expired };
    refused(&*store, answer(Timestamp::from_micros(expiry.micros() + 1)), &expired);
    ok(&*store, answer(expiry));
}

/// A sweep ends a question strictly after it was due, in the status that the sweep saw.
pub fn a_sweep_comes_when_due(backend: &dyn Backend) {
    let store = plain(backend);
    let run = waiting(5, &*store, 1);
    let (question, expiry) = (run.question.unwrap().0, run.expires_at.unwrap());
    let sweep = |now: Timestamp, due: Timestamp, status| {
        let mut run = again(5, &*store, 1);
        run.at = now;
        run.closed(QuestionStatus::Expired);
        run.run_finished(EndReason::ApprovalExpired);
        let condition = Condition::Sweep { run: run.run, question, status, now, due };
        run.append(condition, Durability::Synced)
    };
    let after = Timestamp::from_micros(expiry.micros() + 1);
    let early = Timestamp::from_micros(expiry.micros() - 1);
    let open = StoreError::QuestionState { status: QuestionStatus::Open };
    refused(&*store, sweep(expiry, expiry, QuestionStatus::Open), &StoreError::NotDue);
    refused(&*store, sweep(expiry, early, QuestionStatus::Open), &StoreError::NotDue);
    refused(&*store, sweep(after, expiry, QuestionStatus::Granted), &open);
    let mut gone = sweep(after, expiry, QuestionStatus::Open);
    if let Condition::Sweep { question, .. } = &mut gone.condition {
        *question = QuestionId::from_bytes([1; 16]);
    }
    refused(&*store, gone, &StoreError::NotAdmitted);
    ok(&*store, sweep(after, expiry, QuestionStatus::Open));
    let expired = StoreError::QuestionState { status: QuestionStatus::Expired };
    refused(&*store, sweep(after, expiry, QuestionStatus::Open), &expired);
    let mut late = again(5, &*store, 1);
    late.answered("ann", Answer::Approve);
    let cancelled = StoreError::RunState { status: RunStatus::Cancelled };
    refused(&*store, late.operator(), &cancelled);
    fold::check(&*store);
}

/// A grant that is not used in time ends strictly after its own time, not a question's.
pub fn a_sweep_ends_a_grant_when_due(backend: &dyn Backend) {
    let store = plain(backend);
    let granted = |seed: u64| {
        let mut run = Scenario::new(seed, store.instance());
        run.limits.grant_ttl_ms = Some(60_000);
        let mut appends = until_waiting(&mut run, 1);
        run.tick(Duration::from_secs(5));
        run.answered("ann", Answer::Approve);
        appends.push(run.operator());
        (run, appends)
    };
    let (run, appends) = granted(9);
    for append in appends {
        ok(&*store, append);
    }
    let due = run.at.after(Duration::from_secs(60));
    let sweep = |now: Timestamp, due: Timestamp, status| {
        let (mut run, _) = granted(9);
        run.at = now;
        run.closed(QuestionStatus::Expired);
        run.run_finished(EndReason::ApprovalExpired);
        let question = run.question.unwrap().0;
        let condition = Condition::Sweep { run: run.run, question, status, now, due };
        run.append(condition, Durability::Synced)
    };
    let after = |at: Timestamp| Timestamp::from_micros(at.micros() + 1);
    let state = StoreError::QuestionState { status: QuestionStatus::Granted };
    refused(&*store, sweep(after(due), due, QuestionStatus::Open), &state);
    refused(&*store, sweep(due, due, QuestionStatus::Granted), &StoreError::NotDue);
    refused(&*store, sweep(after(due), run.at, QuestionStatus::Granted), &StoreError::NotDue);
    ok(&*store, sweep(after(due), due, QuestionStatus::Granted));
    fold::check(&*store);
}

/// A question and a grant without a term stay as they are, however long ago the sweep calls them due.
pub fn what_has_no_term_is_never_due(backend: &dyn Backend) {
    let store = plain(backend);
    let begun = |grant: bool| {
        let mut run = Scenario::new(10, store.instance());
        run.question_ttl = None;
        let mut appends = until_waiting(&mut run, 1);
        if grant {
            run.answered("ann", Answer::Approve);
            appends.push(run.operator());
        }
        (run, appends)
    };
    let sweep = |grant: bool, due: Timestamp| {
        let (mut run, _) = begun(grant);
        assert_eq!((run.expires_at, run.limits.grant_ttl_ms), (None, None));
        run.tick(Duration::from_secs(1_000_000));
        run.closed(QuestionStatus::Expired);
        run.run_finished(EndReason::ApprovalExpired);
        let question = run.question.unwrap().0;
        let status = if grant { QuestionStatus::Granted } else { QuestionStatus::Open };
        let condition = Condition::Sweep { run: run.run, question, status, now: run.at, due };
        run.append(condition, Durability::Synced)
    };
    let (run, mut appends) = begun(true);
    let answer = appends.pop().unwrap();
    for append in appends {
        ok(&*store, append);
    }
    let long_ago = Timestamp::from_micros(0);
    for due in [long_ago, run.at, run.at.after(Duration::from_secs(999_999))] {
        refused(&*store, sweep(false, due), &StoreError::NotDue);
    }
    ok(&*store, answer);
    for due in [long_ago, run.at, run.at.after(Duration::from_secs(999_999))] {
        refused(&*store, sweep(true, due), &StoreError::NotDue);
    }
    let folded = fold::check(&*store);
    let question = folded.runs[&run.run].question.clone().unwrap();
    assert_eq!(question.status, QuestionStatus::Granted);
}

/// A late outcome is recorded in its run's stream and changes nothing else, before and after the end.
pub fn a_late_outcome_changes_nothing(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = Scenario::new(6, store.instance());
    ok(&*store, run.begin());
    for append in run.whole_step() {
        ok(&*store, append);
    }
    let page = Page { offset: 0, limit: 10 };
    let steps = || block_on(store.steps(&scope(), run.run, page)).unwrap().rows;
    let state = || block_on(store.run(&scope(), run.run)).unwrap().unwrap();
    let (steps_before, before) = (steps(), state());
    let mut late = Scenario::new(6, store.instance());
    late.begin();
    late.whole_step();
    late.outcome_late();
    let committed = ok(&*store, late.late());
    let mut after = state();
    assert_eq!((after.run.seq, after.run.hash), (before.run.seq + 1, committed.events[0].hash));
    (after.run.seq, after.run.hash) = (before.run.seq, before.run.hash);
    assert_eq!((steps(), after), (steps_before, before));
    late.run_finished(EndReason::GoalFailed);
    ok(&*store, late.driver(Durability::Synced));
    late.outcome_late();
    ok(&*store, late.late());
    late.step = portcullis_domain::id::StepId::from_bytes([1; 16]);
    late.outcome_late();
    refused(&*store, late.late(), &StoreError::NotAdmitted);
    let mut nowhere = Scenario::new(7, store.instance());
    nowhere.outcome_late();
    refused(&*store, nowhere.late(), &StoreError::NotFound("run"));
    fold::check(&*store);
}

/// A person can end a run that somebody drives; the driver's next append is told so.
pub fn a_person_ends_a_run_that_somebody_drives(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = Scenario::new(8, store.instance());
    ok(&*store, run.begin());
    let mut person = Scenario::new(8, store.instance());
    person.begin();
    person.run_finished(EndReason::OperatorCancelled);
    let condition = Condition::Operator {
        run: run.run,
        statuses: vec![RunStatus::Running, RunStatus::Waiting],
        question: None,
    };
    ok(&*store, person.append(condition, Durability::Synced));
    run.step_opened();
    let status = RunStatus::Cancelled;
    refused(&*store, run.driver(Durability::Synced), &StoreError::RunState { status });
    assert_eq!(block_on(store.lease(&scope(), run.run)).unwrap(), None);
    fold::check(&*store);
}

/// What ends soon is listed until people were reminded of it, once for a question and once for its grant; what is
/// over is listed until it is closed. Both in the order of their ends.
pub fn people_are_reminded_once(backend: &dyn Backend) {
    let store = plain(backend);
    let mut first = Scenario::new(11, store.instance());
    first.limits.grant_ttl_ms = Some(60_000);
    for append in until_waiting(&mut first, 1) {
        ok(&*store, append);
    }
    let mut second = Scenario::new(12, store.instance());
    second.question_ttl = Some(Duration::from_secs(1_800));
    for append in until_waiting(&mut second, 1) {
        ok(&*store, append);
    }
    let mut never = Scenario::new(13, store.instance());
    never.question_ttl = None;
    for append in until_waiting(&mut never, 1) {
        ok(&*store, append);
    }
    let (sooner, later) = (second.question.unwrap().0, first.question.unwrap().0);
    let page = Page { offset: 0, limit: 10 };
    let due = |now: Timestamp, until: Timestamp, page| {
        let rows = block_on(store.due(&scope(), Notice { now, until }, page)).unwrap();
        rows.into_iter().map(|row| row.unwrap().id).collect::<Vec<_>>()
    };
    let at = first.at;
    let remind = |question, status| {
        let reminder = Reminder { question, status, at };
        block_on(store.remind(&scope(), reminder))
    };
    let (soon, far) = (second.expires_at.unwrap(), first.expires_at.unwrap());
    let before = Timestamp::from_micros(soon.micros() - 1);
    assert_eq!(due(second.at, before, page), []);
    assert_eq!(due(second.at, soon, page), [sooner]);
    assert_eq!(due(second.at, far, page), [sooner, later]);
    assert_eq!(due(second.at, far, Page { offset: 1, limit: 1 }), [later]);
    assert_eq!(remind(sooner, QuestionStatus::Open), Ok(()));
    assert_eq!(remind(sooner, QuestionStatus::Open), Err(StoreError::Stale));
    assert_eq!(due(second.at, far, page), [later]);
    // Its time over, it is listed again: it is to be closed.
    let over = Timestamp::from_micros(soon.micros() + 1);
    assert_eq!(due(soon, far, page), [later]);
    assert_eq!(due(over, far, page), [sooner, later]);
    let open = StoreError::QuestionState { status: QuestionStatus::Open };
    assert_eq!(remind(later, QuestionStatus::Granted), Err(open));
    let unknown = QuestionId::from_bytes([1; 16]);
    let nothing = Err(StoreError::NotFound("question"));
    assert_eq!(remind(unknown, QuestionStatus::Open), nothing);
    let endless = StoreError::QuestionState { status: QuestionStatus::Open };
    assert_eq!(remind(never.question.unwrap().0, QuestionStatus::Open), Err(endless));
    assert_eq!(remind(later, QuestionStatus::Open), Ok(()));
    first.answered("ann", Answer::Approve);
    ok(&*store, first.operator());
    let end = first.at.after(Duration::from_secs(60));
    assert_eq!(due(first.at, end, page), [later], "its grant is another thing");
    assert_eq!(
        block_on(store.remind(
            &scope(),
            Reminder { question: later, status: QuestionStatus::Granted, at: end }
        )),
        Ok(())
    );
    assert_eq!(due(first.at, end, page), []);
    // No event, and nothing of the fold.
    fold::check(&*store);
}
