//! Records that are chained and folded by the rules but for one thing: each is named for what it is, and nothing else is.

use std::sync::Arc;

use portcullis_audit::verify::Place;
use portcullis_audit::{Break, Options, Report};
use portcullis_canon::Digest;
use portcullis_domain::approval::Answer;
use portcullis_domain::event::{Body, ProbeStarted, RunCreated};
use portcullis_domain::id::{JournalId, RunId};
use portcullis_domain::ports::{Store as _, StoredEvent};
use portcullis_domain::row::Cell;
use portcullis_domain::run::EndReason;
use portcullis_domain::scope::Tenant;
use portcullis_domain::stream::{Link, StreamKind};
use portcullis_store::memory::MemoryStore;

use crate::forge::rewrite_links;
use crate::scene::{Drawn, START, Scene};
use crate::tables::Editable as _;

fn store() -> MemoryStore {
    let store = MemoryStore::new(START, &Drawn::default());
    Scene::new(Arc::new(store.clone())).play();
    store
}

/// The report on a record whose links are as `lie` leaves them.
fn lie(lie: impl Fn(&mut Link)) -> Report {
    let store = store();
    rewrite_links(&store, store.instance(), |_, _, _| true, lie);
    store.verify(Options::default())
}

/// The report on a record whose events are as `edit` leaves them.
fn edit(edit: impl Fn(&mut Body)) -> Report {
    let store = store();
    let edit = |_: usize, _: &mut StoredEvent, body: &mut Body| {
        edit(body);
        true
    };
    rewrite_links(&store, store.instance(), edit, |_| ());
    store.verify(Options::default())
}

fn kinds(report: &Report) -> Vec<String> {
    let kind = |found| match portcullis_canon::to_value(found).unwrap().get("kind") {
        Some(kind) => kind.as_str().unwrap().to_owned(),
        None => panic!("a break has a kind"),
    };
    report.breaks.iter().map(kind).collect()
}

#[test]
fn the_record_without_a_lie_is_intact() {
    assert_eq!(lie(|_| ()).breaks, []);
    assert_eq!(edit(|_| ()).breaks, []);
}

#[test]
fn a_place_left_out_of_the_journal() {
    let report = lie(|link| link.journal_seq += u64::from(link.journal_seq == 9));
    let [Break::JournalGap { expected: 9, found: 10, .. }] = report.breaks.as_slice() else {
        panic!("{:?}", report.breaks)
    };
}

#[test]
fn an_event_that_follows_nothing_in_the_journal() {
    let report = lie(|link| {
        if link.journal_seq == 9 {
            link.journal_prev = Digest::ZERO;
        }
    });
    let [Break::JournalChain { at: Place { seq: 9, .. } }] = report.breaks.as_slice() else {
        panic!("{:?}", report.breaks)
    };
}

#[test]
fn a_place_left_out_of_a_stream() {
    let report = lie(|link| {
        link.stream_seq +=
            u64::from(link.stream.kind == StreamKind::System && link.stream_seq == 2);
    });
    let [Break::StreamGap { expected: 2, found: 3, .. }] = report.breaks.as_slice() else {
        panic!("{:?}", report.breaks)
    };
}

#[test]
fn an_event_that_follows_nothing_in_its_stream() {
    let report = lie(|link| {
        if link.stream.kind == StreamKind::System {
            link.stream_prev = Digest::ZERO;
        }
    });
    assert_eq!(kinds(&report), ["stream_chain"]);
}

#[test]
fn a_stream_without_its_beginning() {
    let report = lie(|link| {
        if link.kind == "journal.opened" {
            link.stream_seq = 2;
        }
    });
    // Never walked as a stream, so only the sum gives it away.
    let [Break::EventsApart { journals, streams }] = report.breaks.as_slice() else {
        panic!("{:?}", report.breaks)
    };
    assert_eq!(journals - streams, 2);
}

#[test]
fn an_event_of_another_tenant_than_its_run() {
    let report = lie(|link| {
        if link.kind == "run.finished" {
            link.tenant = Tenant::try_from("other".to_owned()).unwrap();
        }
    });
    // Six runs end, and the three contents that ends brought are not the other tenant's.
    let mut found = kinds(&report);
    found.sort_unstable();
    let (content, tenant) = (["content_mismatch"; 3], ["tenant_mismatch"; 6]);
    assert_eq!(found, [&content[..], &tenant[..]].concat());
}

#[test]
fn a_journal_that_opens_another_one() {
    let report = edit(|body| {
        if let Body::JournalOpened(opened) = body {
            opened.journal = JournalId::from_bytes([9; 16]);
        }
    });
    assert_eq!(kinds(&report), ["not_admitted"]);
}

#[test]
fn a_content_that_is_shorter_than_the_event_says() {
    let report = edit(|body| {
        if let Body::RunCreated(created) = body {
            created.salt.size += 1;
        }
    });
    let size = |b: &Break| matches!(b, Break::ContentMismatch { part: "size", .. });
    assert_eq!(report.breaks.iter().filter(|b| size(b)).count(), 6);
    assert_eq!(report.breaks.len(), 6, "{:?}", report.breaks);
}

/// A record that was written anew with other words about who started whom, each event rightly chained and folded.
#[test]
fn a_link_between_runs_that_is_forged() {
    type Forge = fn(&mut RunCreated);
    let forges: [(&str, Forge); 6] = [
        ("the limits are wider", |created| created.limits.max_steps += 1),
        ("the agent is not confined", |created| created.unconfined_agent = true),
        ("a tool is another one", |created| created.tools[0].spec = created.tools[1].spec),
        ("the owner is another one", |created| created.owner.push('x')),
        ("the parent is another one", |created| created.parent = Some(RunId::from_bytes([9; 16]))),
        ("it has no parent", |created| created.parent = None),
    ];
    for (what, forge) in forges {
        let report = edit(|body| {
            // The two that a call started: the one that a host did has a limit on models.
            if let Body::RunCreated(created) = body
                && created.parent.is_some()
                && created.limits.max_model_calls.is_none()
            {
                forge(created);
            }
        });
        let found = kinds(&report);
        assert!(found.iter().any(|kind| kind == "family_mismatch"), "{what}: {found:?}");
    }
    // The control is the record without a lie.
    assert!(edit(|_| {}).intact);
}

#[test]
fn a_content_that_is_owned_by_another_event() {
    let store = store();
    let contents = store.table("contents");
    let events = store.table("events");
    let place = |table: &crate::tables::Table, row: &[Cell], names: [&str; 3]| {
        names.map(|name| row[table.column(name)].clone())
    };
    let event = ["stream_kind", "stream_id", "stream_seq"];
    let owner = ["owner_kind", "owner_id", "owner_seq"];
    // The result that an answer brought and that the end of the step names again.
    let names = |row: &[Cell], digest: &Cell| {
        let of = |column| &row[events.column(column)];
        let (Cell::Text(kind), Cell::Int(version), Cell::Blob(payload)) =
            (of("kind"), of("version"), of("payload"))
        else {
            panic!("text, a number and bytes")
        };
        let body = Body::read(kind, u32::try_from(*version).unwrap(), payload).unwrap();
        body.contents().iter().any(|c| Cell::Blob(c.digest.as_bytes().to_vec()) == *digest)
    };
    let named = |digest: &Cell| {
        events.rows.iter().filter(|row| names(row, digest)).cloned().collect::<Vec<_>>()
    };
    let twice = contents.rows.iter().position(|row| named(&row[0]).len() == 2).unwrap();
    let naming = named(&contents.rows[twice][0]);
    assert_eq!(
        place(&contents, &contents.rows[twice], owner),
        place(&events, &naming[0], event),
        "the first that names it"
    );
    let stranger = &events.rows[0];
    for (other, kinds_found) in [
        // Owned by one that names it, and later: the totals still fit.
        (&naming[1], vec!["content_mismatch"]),
        // Owned by one that does not name it.
        (stranger, vec!["content_mismatch", "content_mismatch", "row_extra"]),
    ] {
        let mut changed = contents.clone();
        for (name, cell) in owner.into_iter().zip(place(&events, other, event)) {
            changed.rows[twice][contents.column(name)] = cell;
        }
        store.write(&changed).unwrap();
        let report = store.verify(Options::default());
        assert_eq!(kinds(&report), kinds_found);
        assert!(matches!(report.breaks[0], Break::ContentMismatch { part: "owner", .. }));
    }
}

#[test]
fn a_changed_event_is_named_once_and_as_such() {
    let store = store();
    let mut events = store.table("events");
    let at = events.column("at");
    // A released lease: its time stands in no row.
    let kind = Cell::Text("lease.released".to_owned());
    let row = events.rows.iter().position(|row| row[events.column("kind")] == kind).unwrap();
    events.rows[row][at] = Cell::Int(1);
    store.write(&events).unwrap();
    let report = store.verify(Options::default());
    assert_eq!(kinds(&report), ["hash_mismatch"]);
}

/// The report on a record without the events that `left_out` names.
fn without(left_out: impl Fn(&Body) -> bool) -> Report {
    let store = store();
    let keep = |_: usize, _: &mut StoredEvent, body: &mut Body| !left_out(body);
    rewrite_links(&store, store.instance(), keep, |_| ());
    store.verify(Options::default())
}

#[test]
fn a_question_that_expired_and_a_run_that_did_not_end() {
    let expired = EndReason::ApprovalExpired;
    let report = without(|body| matches!(body, Body::RunFinished(end) if end.reason == expired));
    let found = kinds(&report);
    assert_eq!(found.first().map(String::as_str), Some("stream_unfinished"), "{found:?}");
    let text = report.breaks[0].to_string();
    assert!(text.ends_with("a `run.finished` event has to follow at once, and does not"), "{text}");
}

#[test]
fn a_grant_that_was_used_for_nothing() {
    let used = std::cell::Cell::new(false);
    let report = without(|body| match body {
        Body::ApprovalUsed(_) => {
            used.set(true);
            false
        }
        Body::StepStarted(_) => used.replace(false),
        _ => false,
    });
    let owed = |found: &Break| match found {
        Break::NotAdmitted { why, .. } => why.contains("`step.started` event has to follow"),
        _ => false,
    };
    assert!(report.breaks.iter().any(owed), "{:?}", report.breaks);
}

#[test]
fn a_no_after_which_the_step_goes_on() {
    let rejected = std::cell::Cell::new(false);
    let report = without(|body| match body {
        Body::QuestionAnswered(body) if body.statement.answer == Answer::Reject => {
            rejected.set(true);
            false
        }
        Body::StepFinished(_) => rejected.replace(false),
        _ => false,
    });
    let owed = |found: &Break| match found {
        Break::NotAdmitted { why, .. } => why.contains("`step.finished` event has to follow"),
        _ => false,
    };
    assert!(report.breaks.iter().any(owed), "{:?}", report.breaks);
}

#[test]
fn a_question_that_expired_before_its_time() {
    let store = store();
    let early = |_: usize, stored: &mut StoredEvent, body: &mut Body| {
        if matches!(body, Body::QuestionClosed(_)) {
            stored.at -= 3_600_000_000;
        }
        true
    };
    rewrite_links(&store, store.instance(), early, |_| ());
    let found = kinds(&store.verify(Options::default()));
    assert!(found.contains(&"not_admitted".to_owned()), "{found:?}");
}

#[test]
fn a_call_that_was_started_again_though_its_receiver_cannot_tell() {
    // The step's call is said to have been judged with the spec of the tool that declares nothing.
    let plain = Scene::new(Arc::new(store())).plain_spec();
    let report = edit(|body| {
        if let Body::StepJudged(judged) = body {
            judged.admitted.spec = plain;
        }
    });
    let told = |found: &Break, words: &str| match found {
        Break::NotAdmitted { why, .. } => why.contains(words),
        _ => false,
    };
    for words in ["declares no idempotency key", "not the probe that the tool"] {
        assert!(report.breaks.iter().any(|found| told(found, words)), "{:?}", report.breaks);
    }
}

#[test]
fn a_probe_that_is_shown_as_another_call() {
    let report = edit(|body| {
        if let Body::ProbeStarted(ProbeStarted { call: Some(call), .. }) = body {
            call.admitted.call = Digest::ZERO;
        }
    });
    let told = |found: &Break| match found {
        Break::NotAdmitted { why, .. } => why.contains("card of the probe"),
        _ => false,
    };
    assert!(report.breaks.iter().any(told), "{:?}", report.breaks);
}
