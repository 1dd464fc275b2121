//! People: they are shown a question, think, and answer; some are strangers, some are too late, some answer twice.

use std::collections::BTreeSet;

use portcullis_domain::approval::{Answer, Statement};
use portcullis_domain::ports::{Clock as _, Store as _, StoreError};
use portcullis_domain::question::{Question, QuestionKind, QuestionStatus};
use portcullis_engine::operator::{self, Answered, SignedAnswer};
use portcullis_engine::{ApprovalFault, GateError};
use portcullis_testkit::block_on;

use crate::executor::Pid;
use crate::log::{Heard, Said, What};
use crate::world::{PEOPLE, Site, World};

/// What is wrong with an answer, if anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slip {
    None,
    /// It is signed over another question than it names.
    OtherDigest,
    /// It is given twice.
    Twice,
    /// The person thinks for a long time.
    Slow,
}

/// What a person says to a question. Of an outcome they say what the world shows at that moment, mostly.
fn opinion(world: &World, question: &Question) -> Answer {
    match question.kind {
        QuestionKind::Approval => {
            if world.chance(780) {
                Answer::Approve
            } else {
                Answer::Reject
            }
        }
        QuestionKind::UnknownOutcome if world.chance(250) => Answer::RunAgain,
        QuestionKind::UnknownOutcome => {
            let happened = world.with_log(|log| {
                log.iter().any(|entry| match &entry.what {
                    What::Effect(effect) => effect.step == question.step && effect.is_a_change(),
                    _ => false,
                })
            });
            if happened { Answer::Happened } else { Answer::DidNotHappen }
        }
    }
}

/// One person is shown a question and answers it, from a process of their own.
pub(crate) async fn answer(site: Site, pid: Pid, question: Question, willing: bool) {
    let world = &site.world;
    let slip = if willing {
        Slip::None
    } else {
        let kinds = [(80, Slip::None), (5, Slip::OtherDigest), (10, Slip::Twice), (8, Slip::Slow)];
        world.draw(|draw| draw.weighted(&kinds)).unwrap_or(Slip::None)
    };
    let person = if willing {
        able(world, &question)
    } else {
        world.draw(|draw| draw.pick(&PEOPLE).map_or("ann", |(name, _)| *name))
    };
    if !willing {
        let longest = if slip == Slip::Slow { 60_000 } else { 3_000 };
        let ms = world.draw(|draw| draw.below(longest));
        site.sleep(ms).await;
    }
    let answer = opinion(world, &question);
    let Some(signed) = signed(world, &question, person, answer, slip) else { return };
    let said = Said { question: question.id, person, answer, signature: signed.signature };
    world.log(What::Said(said.clone()));
    if !willing && world.chance(200) {
        let ms = world.draw(|draw| draw.below(2_000));
        site.sleep(ms).await;
    }
    let heard = give(&site, pid, &signed).await;
    let again = slip == Slip::Twice || heard == Heard::Doubt;
    if again && !willing {
        world.count("answer given twice");
        // What becomes of the second time may be heard by nobody.
        world.log(What::Said(said));
        give(&site, pid, &signed).await;
    }
}

/// Somebody of the role whose answer to the question is not recorded yet.
fn able(world: &World, question: &Question) -> &'static str {
    let recorded = block_on(world.record.approvals(&world.scope, question.id)).unwrap_or_default();
    let gave: BTreeSet<&str> = recorded.iter().map(|approval| approval.person.as_str()).collect();
    let order = ["ben", "dan", "ann"];
    order.into_iter().find(|person| !gave.contains(person)).unwrap_or("ben")
}

fn signed(
    world: &World,
    question: &Question,
    person: &'static str,
    answer: Answer,
    slip: Slip,
) -> Option<SignedAnswer> {
    let key = world.people.get(person)?;
    let digest = if slip == Slip::OtherDigest { question.call } else { question.digest };
    let statement = Statement {
        covers: vec![digest],
        answer,
        key: key.id(),
        at: world.clock.now(),
        note: None,
        result: None,
    };
    let signature = key.sign(&statement);
    Some(SignedAnswer {
        run: question.run,
        question: question.id,
        shown: question.digest,
        statement,
        signature,
        note: None,
        result: None,
    })
}

async fn give(site: &Site, pid: Pid, signed: &SignedAnswer) -> Heard {
    let world = &site.world;
    let answered = operator::answer(&site.parts(pid), &world.scope, signed.clone()).await;
    let heard = match &answered {
        Ok(_) => Heard::Taken,
        Err(GateError::Store(StoreError::InDoubt)) => Heard::Doubt,
        Err(_) => Heard::Refused,
    };
    world.log_as(pid, What::Heard { signature: signed.signature, heard });
    match answered {
        Ok(answered) => count_taken(world, signed.statement.answer, answered),
        Err(error) => {
            count_refused(world, &error);
            world.log_as(pid, What::Note(format!("the answer is not taken: {error}")));
            crate::acts::judge_error(world, "answering", &error);
        }
    }
    heard
}

fn count_taken(world: &World, answer: Answer, answered: Answered) {
    let kind = match answer {
        Answer::Approve => "approved",
        Answer::Reject => "rejected",
        Answer::Happened => "said happened",
        Answer::DidNotHappen => "said did not happen",
        Answer::RunAgain => "said run again",
    };
    world.count(kind);
    world.note(format!("it leads to {answered:?}"));
}

fn count_refused(world: &World, error: &GateError) {
    match error {
        GateError::Store(StoreError::QuestionState {
            status: QuestionStatus::Open | QuestionStatus::Granted,
        }) => {}
        GateError::Store(StoreError::QuestionState { .. } | StoreError::RunState { .. }) => {
            world.count("answer came too late");
        }
        GateError::Approval(ApprovalFault::Role | ApprovalFault::Key(_)) => {
            world.count("answer of a stranger");
        }
        GateError::Approval(ApprovalFault::Covers) => world.count("answer to something else"),
        GateError::Approval(ApprovalFault::People) => {
            world.count("second word of a person, or the asker's")
        }
        _ => {}
    }
}
