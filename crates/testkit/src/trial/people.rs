//! Who answers the questions of a trial: people by a rule, with signatures that count nowhere else.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use portcullis_canon::{Digest, Kind};
use portcullis_domain::approval::{Answer, Signature, Statement};
use portcullis_domain::ports::{KeyRefusal, Reviewer, ReviewerKeys};
use portcullis_domain::question::{Card, Question, QuestionKind};

/// How many people there are in each role.
const PEOPLE: u32 = 16;

/// What a person knows who is asked.
#[derive(Debug)]
pub struct Asked<'a> {
    /// The question.
    pub question: &'a Question,
    /// The card, as it is shown.
    pub card: &'a Card,
    /// The effects that happened so far, as the subject names them.
    pub effects: &'a [String],
    /// Whether any effect happened since the latest call was started: what somebody finds who goes and looks.
    pub happened: bool,
}

/// Leave to everything, and nobody who knows what became of a call: such a run waits.
#[must_use]
pub fn nobody_knows(asked: &Asked<'_>) -> Option<Answer> {
    (asked.question.kind == QuestionKind::Approval).then_some(Answer::Approve)
}

/// Leave to everything, and somebody who goes and looks: what happened did, and what did not is run again.
#[must_use]
pub fn who_looks(asked: &Asked<'_>) -> Option<Answer> {
    Some(match asked.question.kind {
        QuestionKind::Approval => Answer::Approve,
        QuestionKind::UnknownOutcome if asked.happened => Answer::Happened,
        QuestionKind::UnknownOutcome => Answer::RunAgain,
    })
}

/// Leave to everything, and whatever is not known is run again. Right for tools that may run twice, and for no others.
#[must_use]
pub fn who_runs_again(asked: &Asked<'_>) -> Option<Answer> {
    Some(match asked.question.kind {
        QuestionKind::Approval => Answer::Approve,
        QuestionKind::UnknownOutcome => Answer::RunAgain,
    })
}

/// Sixteen people in every role that a policy asks. Their signatures are digests: anybody can make them.
#[derive(Debug, Default)]
pub(super) struct People {
    roles: Mutex<BTreeSet<String>>,
}

impl People {
    /// The name of the `number`-th, counted from 0; `None` when there is none.
    pub(super) fn name(number: u32) -> Option<String> {
        (number < PEOPLE).then(|| format!("person-{number}"))
    }

    /// Their key's id.
    pub(super) fn key(name: &str) -> Digest {
        Digest::of(Kind::Key, name.as_bytes())
    }

    pub(super) fn sign(statement: &Statement) -> Signature {
        let digest = Digest::of_parts(Kind::Key, &[b"trial", &statement.message()]);
        let mut bytes = [0; 64];
        for (byte, drawn) in bytes.iter_mut().zip(digest.as_bytes().iter().cycle()) {
            *byte = *drawn;
        }
        Signature(bytes)
    }
}

impl ReviewerKeys for People {
    fn verify(&self, statement: &Statement, signature: &Signature) -> Result<Reviewer, KeyRefusal> {
        let mut names = (0..).map_while(Self::name);
        let person = names.find(|name| Self::key(name) == statement.key);
        let person = person.ok_or(KeyRefusal::UnknownKey)?;
        if *signature != Self::sign(statement) {
            return Err(KeyRefusal::BadSignature);
        }
        let roles = self.roles.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Reviewer { person, roles: roles.iter().cloned().collect() })
    }

    fn people(&self, role: &str) -> BTreeSet<String> {
        self.roles.lock().unwrap_or_else(PoisonError::into_inner).insert(role.to_owned());
        (0..).map_while(Self::name).collect()
    }
}
