//! What has to hold for recorded answers to amount to leave to run, and that each part of it is looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use portcullis_canon::{Digest, Kind, Object};
use portcullis_domain::approval::{Answer, Approval, KeyId, Signature, Statement};
use portcullis_domain::event::LeaseCause;
use portcullis_domain::fold::RunState;
use portcullis_domain::grant::{ApprovalFault, Grant};
use portcullis_domain::id::InstanceId;
use portcullis_domain::ports::{KeyRefusal, Reviewer, ReviewerKeys};
use portcullis_domain::question::{Card, Question, QuestionKind};
use portcullis_domain::tool::EffectClass;
use portcullis_domain::verdict::Reviewers;
use portcullis_testkit::scenario::{Scenario, ask};

use crate::fold::fold_all;

const SALT: &[u8] = b"the run's salt";
const INSTANCE: InstanceId = InstanceId::from_bytes([1; 16]);

/// Keys whose signature is the digest of the message, so that a test can sign.
struct Keys(BTreeMap<KeyId, Reviewer>);

fn key(person: &str) -> KeyId {
    Digest::of(Kind::Key, person.as_bytes())
}

fn sign(statement: &Statement) -> Signature {
    let digest = Digest::of_parts(Kind::Answer, &[statement.key.as_bytes(), &statement.message()]);
    let mut bytes = [0; 64];
    bytes[..32].copy_from_slice(digest.as_bytes());
    Signature(bytes)
}

impl ReviewerKeys for Keys {
    fn verify(&self, statement: &Statement, signature: &Signature) -> Result<Reviewer, KeyRefusal> {
        let reviewer = self.0.get(&statement.key).ok_or(KeyRefusal::UnknownKey)?;
        if sign(statement) == *signature {
            Ok(reviewer.clone())
        } else {
            Err(KeyRefusal::BadSignature)
        }
    }

    fn people(&self, role: &str) -> BTreeSet<String> {
        let with_role = self.0.values().filter(|reviewer| reviewer.roles.iter().any(|r| r == role));
        with_role.map(|reviewer| reviewer.person.clone()).collect()
    }
}

struct Case {
    state: RunState,
    question: Question,
    approvals: Vec<Approval>,
    card: Card,
    keys: Keys,
    late: Duration,
}

fn two() -> Reviewers {
    Reviewers { role: "operator".to_owned(), count: 2 }
}

impl Case {
    /// Two people of the role said yes to a question that asks two; the owner is a third.
    fn new() -> Self {
        let mut scenario = Scenario::new(1, INSTANCE);
        scenario.run_created();
        scenario.lease_acquired(LeaseCause::Begin);
        scenario.step_opened();
        scenario.proposed(b"{}");
        scenario.judged(ask());
        scenario.asked(QuestionKind::Approval, 2);
        let state = fold_all(&mut scenario);
        let mut question = state.question.clone().unwrap();
        let card = Card {
            capability: "t".to_owned(),
            tool: "t".to_owned(),
            arguments: Object::new(),
            spec: Digest::ZERO,
            effect: EffectClass::RemoteMutation,
            source: false,
            sink: true,
            authority: vec![],
            target: None,
            sandbox: None,
            rules: vec![],
            reviewers: Some(two()),
        };
        question.call = card.call_digest(SALT);
        question.grant_ttl_ms = Some(1_000);
        let person = |name: &str, role: &str| {
            (key(name), Reviewer { person: name.to_owned(), roles: vec![role.to_owned()] })
        };
        let owner = state.run.owner.clone();
        let keys = Keys(BTreeMap::from([
            person("ann", "operator"),
            person("ben", "operator"),
            person("eve", "visitor"),
            person(&owner, "operator"),
        ]));
        let mut case =
            Self { state, question, approvals: vec![], card, keys, late: Duration::ZERO };
        case.seal();
        case.approvals = vec![case.yes("ann"), case.yes("ben")];
        case
    }

    /// Makes the question digest that of the terms.
    fn seal(&mut self) {
        self.question.digest = self.question.terms(INSTANCE, &self.state.run.tenant).digest();
    }

    fn yes(&self, person: &str) -> Approval {
        self.signed(person, |_| {})
    }

    fn signed(&self, person: &str, change: impl FnOnce(&mut Statement)) -> Approval {
        let mut statement = Statement {
            covers: vec![self.question.digest],
            answer: Answer::Approve,
            key: key(person),
            at: self.question.asked_at,
            note: None,
            result: None,
        };
        change(&mut statement);
        let signature = sign(&statement);
        Approval { question: self.question.id, person: person.to_owned(), statement, signature }
    }

    fn amounts(&self) -> Result<(), ApprovalFault> {
        let card = self.card.value().to_canonical();
        let grant = Grant {
            question: &self.question,
            approvals: &self.approvals,
            card: &card,
            salt: SALT,
            run: &self.state.run,
            instance: INSTANCE,
        };
        grant.amounts(self.question.asked_at.after(self.late), &self.keys)
    }
}

#[track_caller]
fn check(fault: ApprovalFault, change: impl FnOnce(&mut Case)) {
    let mut case = Case::new();
    assert_eq!(case.amounts(), Ok(()), "the control");
    change(&mut case);
    assert_eq!(case.amounts(), Err(fault));
}

#[test]
fn fewer_or_other_people_are_not_enough() {
    check(ApprovalFault::TooFew, |case| drop(case.approvals.pop()));
    check(ApprovalFault::TooFew, |case| case.approvals.clear());
    check(ApprovalFault::People, |case| case.approvals[1] = case.approvals[0].clone());
    check(ApprovalFault::People, |case| case.approvals[1].person = "zoe".to_owned());
    check(ApprovalFault::People, |case| {
        let owner = case.state.run.owner.clone();
        case.approvals[1] = case.yes(&owner);
    });
    check(ApprovalFault::Role, |case| case.approvals[1] = case.yes("eve"));
    check(ApprovalFault::TooFew, |case| {
        case.approvals[1] = case.signed("ben", |statement| statement.answer = Answer::Reject);
    });
}

#[test]
fn a_signature_covers_all_of_it_and_only_a_configured_key_counts() {
    check(ApprovalFault::Key(KeyRefusal::BadSignature), |case| {
        case.approvals[1].statement.at = case.question.asked_at.after(Duration::from_secs(1));
    });
    check(ApprovalFault::Key(KeyRefusal::UnknownKey), |case| {
        drop(case.keys.0.remove(&key("ben")));
    });
    check(ApprovalFault::Covers, |case| {
        case.approvals[1] = case.signed("ben", |statement| statement.covers = vec![Digest::ZERO]);
    });
}

#[test]
fn what_was_shown_is_what_was_asked() {
    check(ApprovalFault::Card, |case| drop(case.card.arguments.insert("to", "eve")));
    check(ApprovalFault::Question, |case| case.question.uses = 2);
    check(ApprovalFault::Question, |case| case.question.grant_ttl_ms = None);
    // A smaller number of people, with every digest made to fit: the card still says two.
    check(ApprovalFault::Card, |case| {
        case.question.reviewers.count = 1;
        case.seal();
    });
    // And with a card that says one, neither the call digest nor the signatures fit.
    check(ApprovalFault::Covers, |case| {
        case.card.reviewers = Some(Reviewers { count: 1, ..two() });
        case.question.call = case.card.call_digest(SALT);
        case.question.reviewers.count = 1;
        case.seal();
    });
}

#[test]
fn time_is_the_signed_time() {
    let second = Duration::from_secs(1);
    check(ApprovalFault::Time, |case| case.late = second + Duration::from_micros(1));
    let mut case = Case::new();
    case.late = second;
    assert_eq!(case.amounts(), Ok(()), "at that instant it still holds");
    // The recorded time of the grant is nobody's word.
    case.late = second * 2;
    case.question.granted_at = Some(case.question.asked_at.after(second * 2));
    assert_eq!(case.amounts(), Err(ApprovalFault::Time));
    check(ApprovalFault::Time, |case| {
        let before =
            portcullis_domain::time::Timestamp::from_micros(case.question.asked_at.micros() - 1);
        case.approvals[1] = case.signed("ben", |statement| statement.at = before);
    });
    check(ApprovalFault::Time, |case| {
        case.question.expires_at = Some(case.question.asked_at);
        case.seal();
        let late = case.question.asked_at.after(Duration::from_micros(1));
        case.approvals = vec![case.yes("ann"), case.signed("ben", |statement| statement.at = late)];
    });
}

#[test]
fn an_outcome_is_asked_of_those_who_had_to_approve_the_call() {
    let card = Case::new().card;
    assert_eq!(card.asks(QuestionKind::UnknownOutcome), Some(two()));
    let allowed = Card { reviewers: None, ..card };
    assert_eq!(allowed.asks(QuestionKind::Approval), None);
    let operator = Reviewers { role: "operator".to_owned(), count: 1 };
    assert_eq!(allowed.asks(QuestionKind::UnknownOutcome), Some(operator));
}
