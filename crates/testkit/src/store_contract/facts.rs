//! Cases: which facts may be recorded under which condition, whatever the fold would make of them.

use std::time::Duration;

use portcullis_domain::approval::Answer;
use portcullis_domain::event::LeaseCause;
use portcullis_domain::id::StepId;
use portcullis_domain::observation::ObservationKind;
use portcullis_domain::ports::{Append, Condition, Durability, StoreError};
use portcullis_domain::question::{QuestionKind, QuestionStatus};
use portcullis_domain::run::{EndReason, RunStatus};

use super::{Backend, Subject, fold, ok, plain, refused};
use crate::scenario::{Scenario, ask};

/// What a driver does with a step, each alone.
const ACTS: [fn(&mut Scenario); 7] = [
    |run| run.step_opened(),
    |run| run.asked(QuestionKind::Approval, 1),
    |run| run.judged(ask()),
    |run| run.proposed(b"{}"),
    |run| run.started(),
    |run| run.used(),
    |run| run.lease_released(),
];

/// A run that waits for an answer, and the appends that lead there.
fn waiting(store: &dyn Subject) -> (Scenario, [Append; 2]) {
    let mut run = Scenario::new(16, store.instance());
    let begin = run.begin();
    run.step_opened();
    run.proposed(b"{}");
    run.judged(ask());
    run.asked(QuestionKind::Approval, 1);
    let asked = run.driver(Durability::Synced);
    (run, [begin, asked])
}

/// A store with that run.
fn waited(backend: &dyn Backend) -> std::sync::Arc<dyn Subject> {
    let store = plain(backend);
    for append in waiting(&*store).1 {
        ok(&*store, append);
    }
    store
}

fn reject(run: &mut Scenario) {
    run.answered("ann", Answer::Reject);
}

fn finish(run: &mut Scenario) {
    run.finished(ObservationKind::Denied);
}

fn expire(run: &mut Scenario) {
    run.closed(QuestionStatus::Expired);
}

/// A person answers and ends: a step ends by an answer, and only the step that waits.
pub fn a_person_records_answers_and_ends(backend: &dyn Backend) {
    let store = waited(backend);
    let append = |push: &dyn Fn(&mut Scenario)| {
        let (mut run, _) = waiting(&*store);
        let question = run.question;
        push(&mut run);
        let statuses = vec![RunStatus::Waiting];
        let condition = Condition::Operator { run: run.run, statuses, question };
        run.append(condition, Durability::Synced)
    };
    let refuse = |push: &dyn Fn(&mut Scenario)| {
        refused(&*store, append(push), &StoreError::NotAdmitted);
    };
    for act in ACTS {
        refuse(&act);
        refuse(&|run| {
            reject(run);
            finish(run);
            act(run);
        });
    }
    refuse(&finish);
    refuse(&|run| run.labelled());
    refuse(&expire);
    refuse(&|run| run.closed(QuestionStatus::Withdrawn));
    // A no without the end of its step, and one that ends the run without that end.
    refuse(&reject);
    refuse(&|run| {
        reject(run);
        finish(run);
    });
    refuse(&|run| {
        reject(run);
        run.step = StepId::from_bytes([1; 16]);
        finish(run);
    });
    // The control: an answer with all that it leads to.
    let whole = append(&|run| {
        reject(run);
        finish(run);
        run.labelled();
        run.run_finished(EndReason::ApprovalRejected);
    });
    ok(&*store, whole);
    fold::check(&*store);
}

/// Time ends the question that was due, and its run for that reason; nothing else, and no run without it.
pub fn time_records_the_end_of_its_question(backend: &dyn Backend) {
    let store = waited(backend);
    let append = |push: &dyn Fn(&mut Scenario)| {
        let (mut run, _) = waiting(&*store);
        let (due, question) = (run.expires_at.unwrap(), run.question.unwrap().0);
        run.tick(Duration::from_secs(3_601));
        push(&mut run);
        let status = QuestionStatus::Open;
        let condition = Condition::Sweep { run: run.run, question, status, now: run.at, due };
        run.append(condition, Durability::Synced)
    };
    let refuse = |push: &dyn Fn(&mut Scenario)| {
        refused(&*store, append(push), &StoreError::NotAdmitted);
    };
    for act in ACTS.into_iter().chain([reject as fn(&mut Scenario), finish, Scenario::labelled]) {
        refuse(&act);
        refuse(&|run| {
            expire(run);
            act(run);
        });
    }
    refuse(&|run| run.run_finished(EndReason::ApprovalExpired));
    refuse(&|run| run.closed(QuestionStatus::Withdrawn));
    // The end of the question without the end of the run that waited for it.
    refuse(&expire);
    refuse(&|run| {
        expire(run);
        run.run_finished(EndReason::GoalCompleted);
    });
    // The control.
    let whole = append(&|run| {
        expire(run);
        run.run_finished(EndReason::ApprovalExpired);
    });
    ok(&*store, whole);
    fold::check(&*store);
}

/// A driver neither answers a question nor calls it expired or taken back.
pub fn a_driver_says_nothing_for_people_and_time(backend: &dyn Backend) {
    let store = waited(backend);
    let append = |push: &dyn Fn(&mut Scenario)| {
        let (mut run, _) = waiting(&*store);
        push(&mut run);
        run.lease_acquired(LeaseCause::Free);
        run.taking(true)
    };
    let withdraw = |run: &mut Scenario| run.closed(QuestionStatus::Withdrawn);
    let approve = |run: &mut Scenario| run.answered("ann", Answer::Approve);
    for act in [&approve as &dyn Fn(&mut Scenario), &reject, &expire, &withdraw] {
        refused(&*store, append(act), &StoreError::NotAdmitted);
    }
    // The control: taking the run up by itself.
    ok(&*store, append(&|_| ()));
    fold::check(&*store);
}

/// A grant is used by the append that starts its call, or not at all.
pub fn a_grant_is_used_with_its_start(backend: &dyn Backend) {
    let store = plain(backend);
    let granted = || {
        let (mut run, [begin, asked]) = waiting(&*store);
        run.answered("ann", Answer::Approve);
        let answered = run.operator();
        run.lease_acquired(LeaseCause::Free);
        let taken = run.taking(false);
        run.judged(ask());
        run.used();
        (run, [begin, asked, answered, taken])
    };
    let (mut run, appends) = granted();
    for append in appends {
        ok(&*store, append);
    }
    refused(&*store, run.driver(Durability::Synced), &StoreError::NotAdmitted);
    let (mut run, _) = granted();
    run.run_finished(EndReason::GoalFailed);
    refused(&*store, run.driver(Durability::Synced), &StoreError::NotAdmitted);
    // The control.
    let (mut run, _) = granted();
    run.started();
    ok(&*store, run.driver(Durability::Synced));
    fold::check(&*store);
}
