//! A step's facts as rows for people. Foreign text stands behind a bar, as in the question's layout.

use portcullis_canon::Value;
use portcullis_domain::event::{
    Advice, Body, ProbeStarted, QuestionAnswered, QuestionAsked, StepAdvised, StepFinished,
    StepJudged, StepRestarted, StepStarted,
};
use portcullis_domain::observation::Observation;
use portcullis_domain::verdict::Verdict;

use super::decision::Decision;
use super::{Fact, StepFacts};
use crate::output::{text, verdict};

/// Where values begin.
const LABEL_COLUMNS: usize = 14;

pub(super) fn rows(step: &StepFacts, columns: usize) -> Vec<String> {
    let index = step.index.map_or_else(|| "?".to_owned(), |index| index.to_string());
    let mut told = Told { rows: vec![format!("STEP {index} {}", step.id)], columns };
    told.decision(step);
    for fact in &step.facts {
        told.fact(fact);
    }
    told.rows
}

struct Told {
    rows: Vec<String>,
    columns: usize,
}

impl Told {
    fn head(&mut self, label: &str, fact: &Fact, value: &str) {
        let row = format!("  {label:<LABEL_COLUMNS$}{} (event {}) {value}", fact.at, fact.seq);
        self.rows.push(row.trim_end().to_owned());
    }

    /// What the facts come to: first, since it is what is asked for most.
    fn decision(&mut self, step: &StepFacts) {
        let row = |label: &str, value: &str| format!("  {label:<LABEL_COLUMNS$}{value}");
        let Some(folded) = &step.folded else {
            self.rows.push(row("decision", "not known: the record does not hold"));
            return;
        };
        let decision = Decision::of(folded);
        let because = decision.because().map(|why| format!(" ({why})")).unwrap_or_default();
        self.rows.push(row("decision", &format!("{}{because}", decision.words())));
        for (person, answer) in &folded.said {
            self.quoted(answer.as_str(), person);
        }
        if let Some(waits) = &step.waits {
            self.rows.push(row("waits for", &waits.words()));
        }
    }

    fn own(&mut self, label: &str, value: &str) {
        self.rows.push(format!("    {label:<LABEL_COLUMNS$}{value}"));
    }

    fn quoted(&mut self, label: &str, words: &str) {
        let width = LABEL_COLUMNS - 2;
        let room = self.columns.saturating_sub(LABEL_COLUMNS + 4);
        for (at, row) in text::quote(words, room).0.iter().enumerate() {
            let label = if at == 0 { label } else { "" };
            self.rows.push(format!("    {label:<width$}| {row}"));
        }
    }

    fn fact(&mut self, fact: &Fact) {
        match &fact.body {
            Body::StepOpened(_) => self.head("opened", fact, ""),
            Body::StepProposed(body) => {
                let size = usize::try_from(body.proposal.size).unwrap_or(usize::MAX);
                self.head("proposed", fact, &text::counted(size, "byte"));
            }
            Body::StepJudged(body) => self.judged(fact, body),
            Body::QuestionAsked(body) => self.asked(fact, body),
            Body::QuestionAnswered(body) => self.answered(fact, body),
            Body::QuestionClosed(body) => {
                self.head("closed", fact, &format!("{} {}", body.question, body.status.as_str()));
            }
            Body::ApprovalUsed(body) => self.head("used", fact, &body.question.to_string()),
            Body::StepStarted(body) => self.started(fact, body),
            Body::ChildAwaited(body) => self.head("waits for", fact, &body.child.to_string()),
            Body::StepRestarted(body) => self.restarted(fact, body),
            Body::ProbeStarted(body) => self.probed(fact, body),
            Body::ProbeFinished(body) => {
                let said = body.observation.as_ref().map(outcome);
                let said = said.map(|said| format!(": {said}")).unwrap_or_default();
                self.head("found", fact, &format!("{}{said}", body.found.as_str()));
                self.detail(fact);
            }
            Body::StepAdvised(body) => self.advised(fact, body),
            Body::StepFinished(body) => self.finished(fact, body),
            Body::OutcomeLate(body) => {
                self.head("came late", fact, &outcome(&body.observation));
                self.detail(fact);
            }
            other => self.head(other.name(), fact, ""),
        }
    }

    fn judged(&mut self, fact: &Fact, body: &StepJudged) {
        let verdict = &body.verdict;
        self.head("verdict", fact, &verdict::words(verdict));
        self.quoted("tool", &body.admitted.tool);
        self.own("effect", body.admitted.effect.as_str());
        for rule in verdict.rules() {
            self.quoted("rule", rule);
        }
        if verdict.rules().is_empty() {
            self.own("rule", "none: what no rule covers does not happen");
        }
        if let Verdict::Ask { reviewers, on_rejection, .. } = verdict {
            self.quoted("asks", &reviewers.role);
            self.own("", &format!("{} needed; a no: {}", reviewers.count, on_rejection.as_str()));
        }
        let facts = &body.facts;
        self.own(
            "facts",
            &format!(
                "origin {}, {} steps, {} failures in a row, {} denials, {} µs active, label sequence {}",
                facts.origin.as_str(),
                facts.steps,
                facts.failures,
                facts.denials,
                facts.active_us,
                facts.label_seq
            ),
        );
        self.quoted("owner", &facts.owner);
        let labels = portcullis_canon::to_value(&facts.labels).unwrap_or_default();
        self.quoted("labels", &labels.to_canonical_string());
        self.own("policy", &body.policy.to_string());
        self.own("call", &body.admitted.call.to_string());
        self.own("tool spec", &body.admitted.spec.to_string());
    }

    fn asked(&mut self, fact: &Fact, body: &QuestionAsked) {
        self.head("asked", fact, &format!("{} {}", body.question, body.kind.as_str()));
        self.own("digest", &body.digest.to_string());
        let expires = body.expires_at.map_or_else(|| "never".to_owned(), |at| at.to_string());
        self.own("expires", &expires);
        self.quoted("asks", &body.reviewers.role);
        self.own("", &format!("{} needed", body.reviewers.count));
    }

    fn answered(&mut self, fact: &Fact, body: &QuestionAnswered) {
        self.head(
            "answered",
            fact,
            &format!("{} {}", body.question, body.statement.answer.as_str()),
        );
        self.quoted("person", &body.person);
        self.own("key", &body.statement.key.to_string());
        self.own("signed at", &body.statement.at.to_string());
        self.own("signature", fact.signature.unwrap_or("not checked"));
        for digest in &body.statement.covers {
            self.own("covers", &digest.to_string());
        }
    }

    fn started(&mut self, fact: &Fact, body: &StepStarted) {
        let value = format!(
            "time {} of this step, within {} ms, lease epoch {}",
            body.start, body.deadline_ms, body.epoch.0
        );
        self.head("started", fact, &value);
        self.own("call", &body.call.to_string());
    }

    fn restarted(&mut self, fact: &Fact, body: &StepRestarted) {
        let value = format!(
            "time {} of this step, with the same key, within {} ms, lease epoch {}: {}",
            body.start,
            body.deadline_ms,
            body.epoch.0,
            body.cause.as_str()
        );
        self.head("started again", fact, &value);
        self.own("call", &body.call.to_string());
    }

    fn probed(&mut self, fact: &Fact, body: &ProbeStarted) {
        let who = if body.call.is_some() { "the tool's probe" } else { "the host" };
        self.head("asks", fact, &format!("{who} what happened: {}", body.cause.as_str()));
        if let Some(call) = &body.call {
            self.quoted("tool", &call.admitted.tool);
            self.own("call", &call.admitted.call.to_string());
        }
    }

    fn advised(&mut self, fact: &Fact, body: &StepAdvised) {
        let told = match body.advice {
            Advice::Allow => "allow: the host makes the call by itself; nothing was made here",
            Advice::Ask => "ask: the host asks its own person, whose answer is not known here",
        };
        self.head("advised", fact, told);
        self.own("call", &body.call.to_string());
    }

    fn finished(&mut self, fact: &Fact, body: &StepFinished) {
        let observed = body.observation.as_ref().map(outcome);
        let said = body.read.map(|read| format!("the agent's {}", read.kind.as_str()));
        let value = observed.or(said).unwrap_or_default();
        self.head(body.status.as_str(), fact, &value);
        self.detail(fact);
    }

    /// The rule and the place of a refusal, or what is said of an error.
    fn detail(&mut self, fact: &Fact) {
        let Some(detail) = &fact.detail else { return };
        for (key, label) in
            [("path", "place"), ("rule", "broken rule"), ("note", "note"), ("message", "message")]
        {
            if let Some(words) = detail.get(key).and_then(Value::as_str) {
                let words = if key == "path" && words.is_empty() { "(the whole)" } else { words };
                self.quoted(label, words);
            }
        }
    }
}

fn outcome(observation: &Observation) -> String {
    let kind = observation.kind.as_str();
    match (observation.refusal, observation.failure) {
        (Some(refusal), _) => format!("{kind}: {}", refusal.as_str()),
        (None, Some(failure)) => format!("{kind}: {}", failure.as_str()),
        (None, None) => kind.to_owned(),
    }
}
