//! Why an answer does not count, in the words of the person who gives it, and who can answer instead.

use portcullis_audit::keys::{KeyEntry, Keyring};
use portcullis_domain::approval::{Approval, KeyId};
use portcullis_domain::grant::ApprovalFault;
use portcullis_domain::ports::KeyRefusal;
use portcullis_domain::question::Question;
use portcullis_engine::GateError;

use crate::failure::{Code, Failure};
use crate::lookup::Asked;
use crate::people;

/// Somebody with a key, before a question.
pub(super) struct Answerer<'a> {
    /// The key's name in the key folder.
    pub(super) name: &'a str,
    pub(super) key: KeyId,
    pub(super) ring: &'a Keyring,
    pub(super) asked: &'a Asked,
    /// The configuration that the run was begun with, in words, when it is not the one that was named.
    pub(super) elsewhere: Option<String>,
}

impl Answerer<'_> {
    /// A second answer of one person would be refused anyway; this says so in their words.
    pub(super) fn first_time(&self) -> Result<(), Failure> {
        let person = self.entry().map(|entry| &entry.person);
        let mine = |approval: &Approval| {
            approval.statement.key == self.key || Some(&approval.person) == person
        };
        if !self.asked.approvals.iter().any(mine) {
            return Ok(());
        }
        let question = self.question();
        let missing = question.reviewers.count.saturating_sub(question.yes);
        let have = if missing == 1 { "has" } else { "have" };
        let sentence = format!(
            "you have answered this question already, and each person counts once; {missing} more of the role `{}` {have} to say yes",
            question.reviewers.role
        );
        Err(Failure::new(Code::State, sentence).hint(self.advice()))
    }

    /// What the gate's refusal means for this person.
    pub(super) fn refusal(&self, error: GateError) -> Failure {
        let GateError::Approval(fault) = &error else { return error.into() };
        let Some(sentence) = self.sentence(*fault) else { return error.into() };
        let hint = format!("nothing was recorded; {}", self.advice());
        Failure::new(Code::NotApproved, sentence).hint(hint)
    }

    fn sentence(&self, fault: ApprovalFault) -> Option<String> {
        let (name, role) = (self.name, &self.question().reviewers.role);
        let person = self.entry().map_or(name, |entry| entry.person.as_str());
        Some(match fault {
            ApprovalFault::Key(KeyRefusal::UnknownKey) => {
                format!("the key `{name}` is not among the reviewers of this run")
            }
            ApprovalFault::Key(KeyRefusal::NotValid) => {
                format!("the key `{name}` is revoked or outside its term")
            }
            ApprovalFault::Role => {
                let roles = self.entry().map(|entry| entry.roles.iter().map(String::as_str));
                let roles = people::named(roles.into_iter().flatten());
                format!("the role `{role}` is asked, and `{person}` has {roles}")
            }
            ApprovalFault::People => format!(
                "`{person}` asked for this run, and where more than one person is asked its owner is none of them"
            ),
            _ => return None,
        })
    }

    fn advice(&self) -> String {
        match &self.elsewhere {
            Some(began_with) => {
                format!("the run was begun with {began_with}, which counts: answer without -c")
            }
            None => self.others(),
        }
    }

    /// Who can still answer.
    fn others(&self) -> String {
        let question = self.question();
        let (reviewers, role) = (&question.reviewers, &question.reviewers.role);
        let mut able = people::able(&people::today(self.ring), reviewers, &self.asked.run.owner);
        for approval in &self.asked.approvals {
            able.remove(approval.person.as_str());
        }
        if able.is_empty() {
            return format!(
                "nobody else of the role `{role}` can answer: add a reviewer, or cancel the run"
            );
        }
        format!("who can answer: {}", people::named(able.iter().map(String::as_str)))
    }

    fn entry(&self) -> Option<&KeyEntry> {
        self.ring.entries().find(|(id, _)| **id == self.key).map(|(_, entry)| entry)
    }

    fn question(&self) -> &Question {
        &self.asked.question
    }
}
