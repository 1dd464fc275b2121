//! Pinned digests of the record: a change of one breaks every stored record and every signature.
//!
//! They were computed by another implementation of SHA-256 from the rule alone: `portcullis/<kind>/v1`, a zero byte,
//! and each part after its length as eight bytes.

use portcullis_canon::Digest;
use portcullis_domain::approval::{Answer, Statement};
use portcullis_domain::content::Content;
use portcullis_domain::id::{InstanceId, JournalId, QuestionId, RunId, StepId};
use portcullis_domain::question::{QuestionKind, Terms, call_digest};
use portcullis_domain::scope::Tenant;
use portcullis_domain::stream::{Link, Stream, payload_digest};
use portcullis_domain::time::Timestamp;
use portcullis_domain::verdict::Reviewers;

const AT: i64 = 1_790_000_000_000_000;

const INSTANCE: InstanceId = InstanceId::from_bytes([1; 16]);
const RUN: RunId = RunId::from_bytes([3; 16]);
const STEP: StepId = StepId::from_bytes([4; 16]);

#[test]
fn a_chain_of_three_events() {
    let opened = Link {
        instance: INSTANCE,
        journal: JournalId::from_bytes([2; 16]),
        journal_seq: 1,
        journal_prev: Digest::ZERO,
        tenant: Tenant::local(),
        stream: Stream::from(INSTANCE),
        stream_seq: 1,
        stream_prev: Digest::ZERO,
        step: None,
        at: Timestamp::from_micros(AT),
        kind: "journal.opened".to_owned(),
        version: 1,
        payload: payload_digest(br#"{"journal":"journal_02020202020202020202020202020202"}"#),
    };
    let created = Link {
        journal_seq: 2,
        journal_prev: opened.hash(),
        stream: Stream::from(RUN),
        at: Timestamp::from_micros(AT + 1),
        kind: "run.created".to_owned(),
        payload: payload_digest(b"{}"),
        ..opened.clone()
    };
    let step = Link {
        journal_seq: 3,
        journal_prev: created.hash(),
        tenant: Tenant::try_from("acme".to_owned()).unwrap(),
        stream_seq: 2,
        stream_prev: created.hash(),
        step: Some(STEP),
        at: Timestamp::from_micros(AT + 2),
        kind: "step.opened".to_owned(),
        version: 2,
        payload: payload_digest("{\"é\":\"&<\u{2028}\"}".as_bytes()),
        ..created.clone()
    };
    assert_eq!(
        [opened, created, step].map(|link| link.hash().hex()),
        [
            "2425760ba3dee13720bf708bd8aefeeca6ea1e8618b62b0d9089919cd6835aa3",
            "e3740b188cdfad9b446954394bf455d1b5eb2a7bbcde53f0ad2b319156c46ccb",
            "8d95f22d51286432cb56d1e5da6c171f7a2205a43f79c863059fc7cc1e2ae5c4",
        ]
    );
}

#[test]
fn a_content_a_call_and_what_is_signed() {
    let content = Content::from_stored([5; 16], br#"{"a":1}"#.to_vec()).reference();
    assert_eq!(
        content.digest.hex(),
        "c94105c91cb2b8c75728ca3fe46c044286f4ac2a5fa6958b312c666d7b86114c"
    );
    let call = call_digest(br#"{"tool":"send"}"#, b"salt");
    assert_eq!(call.hex(), "b7f770f0a399eaaf9fae47b02b0219b80d1be05fe33b3d100ac7dff504106f84");
    let yes = Statement {
        covers: vec![Digest::from_bytes([8; 32]), Digest::from_bytes([9; 32])],
        answer: Answer::Approve,
        key: Digest::from_bytes([7; 32]),
        at: Timestamp::from_micros(AT),
        note: None,
        result: None,
    };
    let no = Statement { answer: Answer::Reject, note: Some(content), ..yes.clone() };
    for (statement, pinned) in [
        (yes, "f9f08c8675e1c09e015f04713ecad49f169c586d58ab43fc90fd983cbb93c422"),
        (no, "337047d893ec473e3c5709eed91769765466be8279727736a152fbd35e41f126"),
    ] {
        let message = statement.message();
        let digest = message.strip_prefix(b"portcullis/answer/v1\0").unwrap();
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, pinned);
    }
}

#[test]
fn a_question() {
    let tenant = Tenant::local();
    let operator = Reviewers { role: "operator".to_owned(), count: 1 };
    let finance = Reviewers { role: "finance".to_owned(), count: 2 };
    let terms = Terms {
        instance: INSTANCE,
        tenant: &tenant,
        run: RUN,
        step: STEP,
        question: QuestionId::from_bytes([6; 16]),
        kind: QuestionKind::Approval,
        call: call_digest(br#"{"tool":"send"}"#, b"salt"),
        expires_at: None,
        reviewers: &operator,
        uses: 1,
        grant_ttl_ms: None,
    };
    let lost = Terms {
        kind: QuestionKind::UnknownOutcome,
        expires_at: Some(Timestamp::from_micros(AT)),
        reviewers: &finance,
        grant_ttl_ms: Some(60_000),
        ..terms.clone()
    };
    assert_eq!(
        [terms, lost].map(|terms| terms.digest().hex()),
        [
            "b842cf1fd5c0b57834427246aba25e988ed39f89b7a71c7423e53f4a5731cde5",
            "5badc992ae97d4853bb855c7fd03e07c200f5ec62737d050094f0a1cedd6f2a8",
        ]
    );
}
