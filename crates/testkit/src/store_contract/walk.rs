//! Random histories of one run, each append of which is admitted.

use std::time::Duration;

use portcullis_domain::approval::Answer;
use portcullis_domain::event::LeaseCause;
use portcullis_domain::id::InstanceId;
use portcullis_domain::limits::Limits;
use portcullis_domain::observation::ObservationKind;
use portcullis_domain::ports::{Append, Condition, Durability, Entropy};
use portcullis_domain::question::{QuestionKind, QuestionStatus};
use portcullis_domain::recovery::Found;
use portcullis_domain::run::EndReason;

use crate::ports::SeededEntropy;
use crate::scenario::{Scenario, TERM, allow, ask};

/// Where the run of a walk stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Between,
    Opened,
    Proposed,
    Allowed,
    Executing,
    ExecutingAll,
    Probing,
    Waiting(QuestionKind),
    Answered(Answer),
    Let,
    Ended,
}

/// A history of about `length` appends; the seed decides everything.
#[must_use]
pub fn history(seed: u64, instance: InstanceId, length: usize) -> Vec<Append> {
    let dice = SeededEntropy::new(seed.wrapping_mul(977));
    let mut run = Scenario::new(seed.wrapping_add(50_000), instance);
    // What one history leaves unknown keeps no other one from anything.
    run.owner = format!("owner-{seed}");
    run.limits = Limits { loop_threshold: 1 + seed % 3, ..Limits::default() };
    let mut appends = vec![run.begin()];
    let mut place = Place::Between;
    while appends.len() < length && place != Place::Ended {
        let mut roll = [0_u8; 1];
        dice.fill(&mut roll);
        run.tick(Duration::from_millis(u64::from(roll[0])));
        let (next, append) = turn(&mut run, place, roll[0]);
        place = next;
        appends.extend(append.filter(|append| !append.events.is_empty()));
    }
    if place == Place::Ended {
        run.outcome_late();
        appends.push(run.late());
    }
    appends
}

/// One append from a place, as the roll has it.
fn turn(run: &mut Scenario, place: Place, roll: u8) -> (Place, Option<Append>) {
    let written = if roll.is_multiple_of(3) { Durability::Written } else { Durability::Synced };
    let next = match place {
        Place::Between if roll < 6 => return finish(run, EndReason::GoalFailed),
        Place::Between if roll < 30 => return let_go(run),
        Place::Between => {
            run.step_opened();
            Place::Opened
        }
        Place::Opened | Place::Proposed if roll < 4 => return finish(run, EndReason::PolicyAbort),
        Place::Opened => {
            run.proposed(&[b'{', roll, b'}']);
            Place::Proposed
        }
        Place::Proposed if roll < 40 => {
            run.finished(ObservationKind::InvalidProposal);
            Place::Between
        }
        Place::Proposed if roll < 70 => return let_go(run),
        Place::Proposed if roll < 160 => {
            run.judged(ask());
            run.asked(QuestionKind::Approval, 1 + u32::from(roll % 2));
            Place::Waiting(QuestionKind::Approval)
        }
        Place::Proposed if roll < 190 => return batch(run, roll, written),
        Place::Proposed => {
            run.judged(allow());
            Place::Allowed
        }
        Place::ExecutingAll if roll < 20 => return finish(run, EndReason::OperatorCancelled),
        Place::ExecutingAll => return batch_end(run, roll, written),
        Place::Allowed if roll < 30 => {
            run.finished(ObservationKind::Denied);
            Place::Between
        }
        Place::Allowed => {
            run.started();
            Place::Executing
        }
        Place::Executing if roll < 90 => {
            run.probe_started(roll.is_multiple_of(2));
            Place::Probing
        }
        Place::Probing if roll < 80 => {
            run.probe_finished(Found::Unknown);
            Place::Executing
        }
        Place::Probing if roll < 160 => {
            run.probe_finished(Found::Happened);
            run.finished(result(roll));
            Place::Between
        }
        // The process died while it asked, and the next one asks a person.
        Place::Executing | Place::Probing if roll < 200 => {
            run.asked(QuestionKind::UnknownOutcome, 1);
            Place::Waiting(QuestionKind::UnknownOutcome)
        }
        Place::Executing | Place::Probing => {
            run.finished(result(roll));
            if roll % 4 == 1 {
                run.labelled();
            }
            Place::Between
        }
        Place::Waiting(kind) => return wait(run, kind, roll),
        Place::Answered(answer) => return go_on(run, answer),
        Place::Let => {
            run.tick(TERM);
            run.lease_acquired(LeaseCause::Free);
            return (after_take(run), Some(run.taking(roll.is_multiple_of(2))));
        }
        Place::Ended => return (Place::Ended, None),
    };
    (next, Some(run.driver(written)))
}

fn batch(run: &mut Scenario, roll: u8, written: Durability) -> (Place, Option<Append>) {
    run.batch_started(2 + u32::from(roll % 4));
    (Place::ExecutingAll, Some(run.driver(written)))
}

fn batch_end(run: &mut Scenario, roll: u8, written: Durability) -> (Place, Option<Append>) {
    run.batch_finished(result(roll));
    (Place::Between, Some(run.driver(written)))
}

fn result(roll: u8) -> ObservationKind {
    match roll % 5 {
        0 => ObservationKind::ToolError,
        1 => ObservationKind::Interrupted,
        _ => ObservationKind::ToolResult,
    }
}

fn finish(run: &mut Scenario, reason: EndReason) -> (Place, Option<Append>) {
    run.run_finished(reason);
    (Place::Ended, Some(run.driver(Durability::Synced)))
}

fn let_go(run: &mut Scenario) -> (Place, Option<Append>) {
    run.lease_released();
    (Place::Let, Some(run.driver(Durability::Synced)))
}

/// Whoever takes a run up finishes the open step, which had got no further than its proposal, so that the walk
/// can go on between two steps.
fn after_take(run: &mut Scenario) -> Place {
    if run.open {
        run.finished(ObservationKind::InvalidProposal);
    }
    Place::Between
}

fn wait(run: &mut Scenario, kind: QuestionKind, roll: u8) -> (Place, Option<Append>) {
    if roll < 40 {
        run.tick(Duration::from_secs(4_000));
        run.closed(QuestionStatus::Expired);
        run.run_finished(EndReason::ApprovalExpired);
        let due = run.expires_at.unwrap_or(run.at);
        let question = run.question.map(|(id, _)| id);
        let Some(question) = question else { return (Place::Ended, None) };
        let condition = Condition::Sweep {
            run: run.run,
            question,
            status: QuestionStatus::Open,
            now: run.at,
            due,
        };
        return (Place::Ended, Some(run.append(condition, Durability::Synced)));
    }
    let answer = match (kind, roll % 3) {
        (QuestionKind::Approval, 0) => Answer::Reject,
        (QuestionKind::Approval, _) => Answer::Approve,
        (QuestionKind::UnknownOutcome, 0) => Answer::Happened,
        (QuestionKind::UnknownOutcome, 1) => Answer::DidNotHappen,
        (QuestionKind::UnknownOutcome, _) => Answer::RunAgain,
    };
    run.answered("ann", answer);
    let place = match answer {
        Answer::Approve | Answer::RunAgain => Place::Answered(answer),
        Answer::Happened => {
            run.finished(ObservationKind::ToolResult);
            Place::Let
        }
        Answer::DidNotHappen => {
            run.finished(ObservationKind::ToolError);
            Place::Let
        }
        Answer::Reject => {
            run.finished(ObservationKind::Denied);
            run.run_finished(EndReason::ApprovalRejected);
            Place::Ended
        }
    };
    (place, Some(run.operator()))
}

fn go_on(run: &mut Scenario, answer: Answer) -> (Place, Option<Append>) {
    run.lease_acquired(LeaseCause::Free);
    if answer.grants() && run.reviewers == 1 {
        run.judged(ask());
        run.used();
        run.started();
        return (Place::Executing, Some(run.taking(false)));
    }
    run.finished(ObservationKind::Denied);
    (Place::Between, Some(run.taking(false)))
}
