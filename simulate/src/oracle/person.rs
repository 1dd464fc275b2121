//! Questions and answers: who was asked, who answered, and what their word was used for.

use std::collections::BTreeSet;
use std::time::Duration;

use portcullis_domain::approval::Answer;
use portcullis_domain::event::{Event, QuestionAnswered, QuestionAsked, QuestionClosed};
use portcullis_domain::id::{QuestionId, RunId, StepId};
use portcullis_domain::question::{QuestionKind, QuestionStatus};

use super::naive::{Naive, Question};
use super::rule;
use crate::world::{PEOPLE, ROLE};

impl Naive<'_> {
    pub(super) fn asked(&mut self, run: RunId, event: &Event, body: &QuestionAsked) {
        let step_id = event.link.step.unwrap_or(StepId::from_bytes([0; 16]));
        let step = self.steps.entry(step_id).or_default();
        let before = step.question.replace(body.question);
        step.questions.push(body.question);
        step.executing = false;
        if let Some(before) = before.and_then(|id| self.questions.get_mut(&id)) {
            before.closed = true;
            if before.used == 0 && body.kind == QuestionKind::Approval {
                self.seen.count("asked again at use");
            }
        }
        let tool = step.tool.clone();
        if body.kind == QuestionKind::UnknownOutcome {
            self.seen.count("question about an outcome");
        }
        self.now_open(run, step_id, tool, body);
        // A waiting run is nobody's.
        self.runs.entry(run).or_default().holder = None;
        let question = Question {
            step: step_id,
            kind: body.kind,
            call: body.call,
            needed: usize::try_from(body.reviewers.count).unwrap_or(usize::MAX),
            uses: body.uses,
            used: 0,
            yes: BTreeSet::new(),
            answered: BTreeSet::new(),
            closed: false,
            expires_at: body.expires_at,
            grant_ttl_ms: body.grant_ttl_ms,
            granted_at: None,
        };
        self.questions.insert(body.question, question);
    }

    pub(super) fn answered(&mut self, event: &Event, body: &QuestionAnswered) {
        let answer = body.statement.answer;
        let given = self.given.get_mut(&body.signature.0);
        let meant = given.is_some_and(|given| {
            given.recorded += 1;
            given.said.question == body.question
                && given.said.person == body.person
                && given.said.answer == answer
        });
        if !meant {
            let text = format!("{} did not say {}", body.person, answer.as_str());
            self.break_rule(rule::ANSWERS, text);
        }
        let Some(question) = self.questions.get_mut(&body.question) else {
            return self.break_rule(rule::ANSWERS, "an answer to no question");
        };
        let able = PEOPLE.iter().any(|(name, role)| *name == body.person && *role == ROLE)
            // The owner of all runs is no second pair of eyes.
            && (question.needed < 2 || body.person != "ann");
        let first = question.answered.insert(body.person.clone());
        let open = !question.closed && question.yes.len() < question.needed;
        let in_time = question.expires_at.is_none_or(|end| event.link.at <= end);
        let fits = match question.kind {
            QuestionKind::Approval => matches!(answer, Answer::Approve | Answer::Reject),
            QuestionKind::UnknownOutcome => !matches!(answer, Answer::Approve | Answer::Reject),
        };
        if answer.grants() {
            question.yes.insert(body.person.clone());
            if question.yes.len() >= question.needed {
                question.granted_at = Some(event.link.at);
            }
        } else {
            question.closed = true;
            self.open.remove(&body.question);
        }
        if !able || !first {
            self.break_rule(rule::PEOPLE, format!("{} answers", body.person));
        }
        if !open || !in_time || !fits {
            self.break_rule(rule::NO, format!("{} answers a question that is over", body.person));
        }
    }

    pub(super) fn closed(&mut self, event: &Event, body: &QuestionClosed) {
        let at = event.link.at;
        self.open.remove(&body.question);
        let Some(question) = self.questions.get_mut(&body.question) else {
            return self.break_rule(rule::NO, "no question is closed");
        };
        let was_open = !std::mem::replace(&mut question.closed, true);
        let due = match question.granted_at {
            None => question.expires_at,
            Some(granted) => {
                question.grant_ttl_ms.map(|ms| granted.after(Duration::from_millis(ms)))
            }
        };
        let expired = body.status == QuestionStatus::Expired;
        if expired {
            self.seen.count("question or grant expired");
        }
        if !was_open || (expired && due.is_none_or(|due| at <= due)) {
            self.break_rule(rule::NO, "a question expires that is not due");
        }
    }

    pub(super) fn used(&mut self, event: &Event, id: QuestionId) {
        self.seen.count("grant used");
        self.open.remove(&id);
        let at = event.link.at;
        let latest = self.steps.values().any(|step| step.question == Some(id));
        let Some(question) = self.questions.get_mut(&id) else {
            return self.break_rule(rule::USES, "a grant of no question");
        };
        question.used += 1;
        let ttl = question.grant_ttl_ms.map(Duration::from_millis);
        let in_time = question
            .granted_at
            .is_some_and(|granted| ttl.is_none_or(|ttl| at <= granted.after(ttl)));
        let leave = question.yes.len() >= question.needed && question.used <= question.uses;
        if !latest
            || !in_time
            || !leave
            || question.closed
            || Some(question.step) != event.link.step
        {
            self.break_rule(rule::USES, "a grant is used that is none any more");
        }
    }
}
