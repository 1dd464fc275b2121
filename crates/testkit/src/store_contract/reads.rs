//! Cases: pages, damaged rows, contents, tenants and snapshots.

use portcullis_domain::approval::Answer;
use portcullis_domain::event::{Body, OutcomeLate};
use portcullis_domain::id::{QuestionId, RunId};
use portcullis_domain::observation::ObservationKind;
use portcullis_domain::ports::{
    Condition, DamagedRow, Durability, EventFilter, MAX_PAGE, NewEvent, Page, Rows, StoreError,
};
use portcullis_domain::question::{QuestionKind, QuestionStatus};
use portcullis_domain::row::{Cell, Row as _};
use portcullis_domain::run::{EndReason, Run, RunStatus};
use portcullis_domain::stream::Stream;

use super::{Backend, Subject, everything, fold, ok, plain, refused, scope};
use crate::block_on;
use crate::scenario::{Scenario, ask};

const ALL: Page = Page { offset: 0, limit: MAX_PAGE };

fn begun(store: &dyn Subject, seeds: std::ops::Range<u64>) -> Vec<RunId> {
    seeds
        .map(|seed| {
            let mut run = Scenario::new(seed, store.instance());
            ok(store, run.begin());
            run.run
        })
        .collect()
}

fn runs(store: &dyn Subject, status: Option<RunStatus>, page: Page) -> Rows<Run> {
    block_on(store.runs(&scope(), status, page)).unwrap()
}

fn ids(rows: &Rows<Run>) -> Vec<RunId> {
    rows.rows.iter().map(|row| row.as_ref().unwrap().id).collect()
}

/// Pages of runs are newest first, capped, and know how many there are in all.
pub fn pages_are_capped_and_counted(backend: &dyn Backend) {
    let store = plain(backend);
    let mut made = begun(&*store, 1..8);
    made.reverse();
    let page = runs(&*store, None, Page { offset: 2, limit: 3 });
    assert_eq!((ids(&page), page.total), (made[2..5].to_vec(), 7));
    let past = runs(&*store, None, Page { offset: 7, limit: 3 });
    assert_eq!((past.rows.len(), past.total), (0, 7));
    for limit in [0, MAX_PAGE + 1] {
        let page = Page { offset: 0, limit };
        assert!(block_on(store.runs(&scope(), None, page)).is_err());
        assert!(block_on(store.steps(&scope(), made[0], page)).is_err());
        assert!(block_on(store.questions(&scope(), None, None, page)).is_err());
        let filter = EventFilter { stream: None, after: 0, limit };
        assert!(block_on(store.events(&scope(), filter)).is_err());
    }
    let far = Page { offset: u64::MAX, limit: 1 };
    assert_eq!(runs(&*store, None, far).total, 7);
    assert_eq!(runs(&*store, Some(RunStatus::Waiting), ALL).total, 0);
    let mut run = Scenario::new(3, store.instance());
    run.begin();
    run.run_finished(EndReason::GoalFailed);
    ok(&*store, run.driver(Durability::Synced));
    assert_eq!(ids(&runs(&*store, Some(RunStatus::Failed), ALL)), [run.run]);
    assert_eq!(runs(&*store, Some(RunStatus::Running), ALL).total, 6);

    let mut long = Scenario::new(1, store.instance());
    long.begin();
    for _ in 0..5 {
        for append in long.whole_step() {
            ok(&*store, append);
        }
    }
    let page = Page { offset: 1, limit: 3 };
    let steps = block_on(store.steps(&scope(), long.run, page)).unwrap();
    let indexes: Vec<u64> = steps.rows.iter().map(|step| step.as_ref().unwrap().index).collect();
    assert_eq!((indexes, steps.total), (vec![1, 2, 3], 5));
    let nobody = block_on(store.steps(&scope(), RunId::from_bytes([1; 16]), ALL)).unwrap();
    assert_eq!((nobody.rows.len(), nobody.total), (0, 0));
}

/// Questions come in the order in which they were asked, by run and by status.
pub fn questions_come_in_order(backend: &dyn Backend) {
    let store = plain(backend);
    let mut asked: Vec<(RunId, QuestionId)> = Vec::new();
    for seed in [9, 3, 7] {
        let mut run = Scenario::new(seed, store.instance());
        ok(&*store, run.begin());
        run.step_opened();
        run.proposed(b"{}");
        run.judged(ask());
        run.asked(QuestionKind::Approval, 1);
        ok(&*store, run.driver(Durability::Synced));
        asked.push((run.run, run.question.unwrap().0));
        if seed == 3 {
            run.answered("ann", Answer::Approve);
            ok(&*store, run.operator());
        }
    }
    let read = |run, status| {
        let rows = block_on(store.questions(&scope(), run, status, ALL)).unwrap();
        let ids: Vec<_> = rows.rows.iter().map(|row| row.as_ref().unwrap().id).collect();
        assert_eq!(u64::try_from(ids.len()).unwrap(), rows.total);
        ids
    };
    assert_eq!(read(None, None), [asked[0].1, asked[1].1, asked[2].1]);
    assert_eq!(read(None, Some(QuestionStatus::Open)), [asked[0].1, asked[2].1]);
    assert_eq!(read(Some(asked[1].0), None), [asked[1].1]);
    assert_eq!(read(Some(asked[1].0), Some(QuestionStatus::Open)), []);
    let page = Page { offset: 1, limit: 1 };
    let one = block_on(store.questions(&scope(), None, None, page)).unwrap();
    assert_eq!((one.rows.len(), one.total), (1, 3));
}

/// A damaged row is shown as such where it stands, the others stay readable, and nothing is driven by it.
pub fn a_damaged_row_is_shown_in_place(backend: &dyn Backend) {
    let store = plain(backend);
    let made = begun(&*store, 1..4);
    let key = [Cell::Blob(made[1].as_bytes().to_vec())];
    let huge = Cell::Text(format!("\"{}\"", "x".repeat(2 << 20)));
    let damages = [
        ("reason", Cell::Text("no such reason".to_owned())),
        ("hash", Cell::Blob(vec![1, 2, 3])),
        ("limits", Cell::Text("{}  ".to_owned())),
        ("agent", huge),
    ];
    for (column, cell) in damages {
        let mut ledger = store.begin().unwrap();
        let whole = ledger.row("runs", &key).unwrap().unwrap();
        drop(ledger);
        backend.set_cell("runs", &key, column, cell);
        let store = plain(backend);
        let rows = runs(&*store, None, ALL);
        let damaged = DamagedRow { key: made[1].to_string(), column };
        assert_eq!((rows.rows.len(), rows.total), (3, 3));
        assert_eq!(rows.rows[0].as_ref().unwrap().id, made[2]);
        assert_eq!(rows.rows[1].as_ref().unwrap_err(), &damaged);
        assert_eq!(rows.rows[2].as_ref().unwrap().id, made[0]);
        let error = StoreError::Damaged { table: "runs" };
        assert_eq!(block_on(store.run(&scope(), made[1])).unwrap_err(), error);
        let mut run = Scenario::new(2, store.instance());
        run.begin();
        run.step_opened();
        refused(&*store, run.driver(Durability::Synced), &error);
        let place = Run::COLUMNS.iter().position(|name| *name == column).unwrap();
        backend.set_cell("runs", &key, column, whole[place].clone());
    }
    fold::check(&*plain(backend));
}

/// A run whose rows cannot be read goes nowhere, and a person can still end it: its events say what it is.
pub fn a_damaged_row_does_not_wedge_its_run(backend: &dyn Backend) {
    let nonsense = || Cell::Text("no such thing".to_owned());
    let tables = [("runs", "limits"), ("steps", "verdict"), ("questions", "kind")];
    for (seed, (table, column)) in (1..).zip(tables) {
        let store = plain(backend);
        let waiting = || {
            let mut run = Scenario::new(seed, store.instance());
            let begin = run.begin();
            run.step_opened();
            run.proposed(b"{}");
            run.judged(ask());
            run.asked(QuestionKind::Approval, 1);
            let asked = run.driver(Durability::Synced);
            (run, [begin, asked])
        };
        let (mut run, appends) = waiting();
        for append in appends {
            ok(&*store, append);
        }
        let state = block_on(store.run(&scope(), run.run)).unwrap().unwrap();
        let (step, question) = (state.step().unwrap().id, run.question.unwrap().0);
        let id = match table {
            "runs" => run.run.as_bytes(),
            "steps" => step.as_bytes(),
            _ => question.as_bytes(),
        };
        backend.set_cell(table, &[Cell::Blob(id.to_vec())], column, nonsense());
        let later = plain(backend);
        let error = StoreError::Damaged { table };
        assert_eq!(block_on(later.run(&scope(), run.run)).unwrap_err(), error);
        // Nothing but its end is built on rows that cannot be read.
        let (mut answered, _) = waiting();
        answered.answered("ann", Answer::Approve);
        refused(&*later, answered.operator(), &error);
        run.run_finished(EndReason::OperatorCancelled);
        ok(&*later, run.operator());
        let (events, _) = everything(&*later);
        assert_eq!(events.last().map(|event| event.kind.as_str()), Some("run.finished"), "{table}");
        run.run_finished(EndReason::OperatorCancelled);
        let ended = StoreError::RunState { status: RunStatus::Cancelled };
        refused(&*later, run.operator(), &ended);
    }
}

/// A content whose bytes are not what its digest says is never handed out.
pub fn contents_are_checked(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = Scenario::new(1, store.instance());
    let begin = run.begin();
    let goal = begin.contents[0].clone();
    ok(&*store, begin);
    let digest = goal.reference().digest;
    assert_eq!(block_on(store.content(&scope(), digest)).unwrap(), Some(goal.clone()));
    let mut ledger = store.begin().unwrap();
    let row = ledger.content(digest).unwrap().unwrap();
    assert_eq!((row.bytes.as_slice(), row.salt.as_slice()), (goal.bytes(), &goal.salt()[..]));
    assert_eq!(row.owner, ("run".to_owned(), run.run.as_bytes().to_vec(), 1));
    drop(ledger);
    let key = [Cell::Blob(digest.as_bytes().to_vec())];
    backend.set_cell("contents", &key, "bytes", Cell::Blob(b"forged".to_vec()));
    let store = plain(backend);
    let error = StoreError::Damaged { table: "contents" };
    assert_eq!(block_on(store.content(&scope(), digest)), Err(error));
    let spec = run.tool.digest();
    let key = [Cell::Blob(spec.as_bytes().to_vec())];
    backend.set_cell("specs", &key, "bytes", Cell::Blob(b"{}".to_vec()));
    let store = plain(backend);
    assert_eq!(block_on(store.spec(spec)), Err(StoreError::Damaged { table: "specs" }));
}

/// An erased content is gone and its erasure is an event; the chain still holds.
pub fn an_erased_content_is_gone_and_recorded(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = Scenario::new(1, store.instance());
    let begin = run.begin();
    let digest = begin.contents[0].reference().digest;
    ok(&*store, begin);
    let erase = || block_on(store.erase(&scope(), digest, "operator", run.at));
    assert_eq!(erase(), Ok(()));
    assert_eq!(block_on(store.content(&scope(), digest)), Ok(None));
    assert_eq!(block_on(plain(backend).content(&scope(), digest)), Ok(None));
    assert_eq!(erase(), Err(StoreError::NotFound("content")));
    let (events, _) = everything(&*store);
    let last = events.last().unwrap();
    assert_eq!((last.kind.as_str(), last.stream_kind.as_str()), ("content.erased", "system"));
    let body = Body::read(&last.kind, 1, &last.payload).unwrap();
    assert!(matches!(body, Body::ContentErased(body) if body.content == digest));
    fold::check(&*store);
}

/// Whoever kept a content from before its erasure cannot bring it again, nor have it named anew, not even an empty one.
pub fn an_erased_content_is_not_brought_again(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = Scenario::new(2, store.instance());
    ok(&*store, run.begin());
    run.step_opened();
    ok(&*store, run.driver(Durability::Synced));
    for bytes in [b"once".as_slice(), b""] {
        let mut kept = Scenario::new(2, store.instance());
        kept.begin();
        kept.step_opened();
        kept.driver(Durability::Synced);
        kept.proposed(bytes);
        let proposal = kept.driver(Durability::Synced);
        let content = proposal.contents[0].clone();
        let named = content.reference();
        let late = |contents| {
            let mut late = Scenario::new(2, store.instance());
            late.begin();
            late.step_opened();
            let mut observation = late.observation(ObservationKind::ToolResult, b"");
            observation.content = Some(named);
            let body = Body::OutcomeLate(OutcomeLate { epoch: late.epoch, observation });
            let event =
                NewEvent { stream: late.run.into(), step: Some(late.step), at: late.at, body };
            let mut append = late.append(Condition::Late, Durability::Synced);
            (append.events, append.contents) = (vec![event], contents);
            append
        };
        ok(&*store, late(vec![content.clone()]));
        // The control: before the erasure it may be named, and brought, again.
        ok(&*store, late(Vec::new()));
        ok(&*store, late(vec![content.clone()]));
        block_on(store.erase(&scope(), named.digest, "operator", run.at)).unwrap();
        for store in [&store, &plain(backend)] {
            refused(&**store, late(vec![content.clone()]), &StoreError::NotAdmitted);
            refused(&**store, late(Vec::new()), &StoreError::NotAdmitted);
            assert_eq!(block_on(store.content(&scope(), named.digest)), Ok(None));
        }
        let row = store.begin().unwrap().content(named.digest).unwrap().unwrap();
        assert!(row.is_erased() && row.salt.is_empty() && row.bytes.is_empty());
    }
    fold::check(&*store);
}

/// What belongs to another tenant does not exist.
pub fn another_tenant_sees_nothing(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = Scenario::new(1, store.instance());
    let begin = run.begin();
    let digest = begin.contents[0].reference().digest;
    ok(&*store, begin);
    run.step_opened();
    run.proposed(b"{}");
    run.judged(ask());
    run.asked(QuestionKind::Approval, 1);
    ok(&*store, run.driver(Durability::Synced));
    let question = run.question.unwrap().0;
    let visible = |store: &dyn Subject| {
        let scope = scope();
        vec![
            block_on(store.run(&scope, run.run)).unwrap().is_some(),
            runs(store, None, ALL).total > 0,
            block_on(store.steps(&scope, run.run, ALL)).unwrap().total > 0,
            block_on(store.questions(&scope, None, None, ALL)).unwrap().total > 0,
            block_on(store.questions(&scope, Some(run.run), None, ALL)).unwrap().total > 0,
            block_on(store.thread(&scope, run.thread)).unwrap().is_some(),
            block_on(store.content(&scope, digest)).unwrap().is_some(),
        ]
    };
    assert_eq!(visible(&*store), [true; 7]);
    let other = || Cell::Text("other".to_owned());
    let key = |id: &[u8]| [Cell::Blob(id.to_vec())];
    backend.set_cell("runs", &key(run.run.as_bytes()), "tenant", other());
    backend.set_cell("threads", &key(run.thread.as_bytes()), "tenant", other());
    backend.set_cell("contents", &key(digest.as_bytes()), "tenant", other());
    let store = plain(backend);
    assert_eq!(visible(&*store), [false; 7]);
    assert_eq!(block_on(store.approvals(&scope(), question)), Ok(Vec::new()));
    run.answered("ann", Answer::Approve);
    refused(&*store, run.operator(), &StoreError::NotFound("run"));
    let mut sibling = Scenario::new(2, store.instance());
    sibling.thread = run.thread;
    sibling.run_created();
    refused(&*store, sibling.driver(Durability::Synced), &StoreError::NotFound("thread"));
    let erased = block_on(store.erase(&scope(), digest, "operator", run.at));
    assert_eq!(erased, Err(StoreError::NotFound("content")));
}

/// A ledger shows the state of the instant at which it was begun.
pub fn a_ledger_is_a_snapshot(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = Scenario::new(1, store.instance());
    ok(&*store, run.begin());
    let mut ledger = store.begin().unwrap();
    let before = ledger.count("events").unwrap();
    let key = [Cell::Blob(run.run.as_bytes().to_vec())];
    let row = ledger.row("runs", &key).unwrap();
    run.step_opened();
    ok(&*store, run.driver(Durability::Synced));
    assert_eq!(ledger.count("events").unwrap(), before);
    assert_eq!(ledger.count("steps").unwrap(), 0);
    assert_eq!(ledger.row("runs", &key).unwrap(), row);
    assert_eq!(store.begin().unwrap().count("events").unwrap(), before + 1);
    assert!(ledger.count("sqlite_schema").is_err());
    assert!(ledger.row("meta", &key).is_err());
    let stream = Stream::from(run.run);
    assert_eq!(ledger.stream_after(stream, 0, 500).unwrap().len(), 2);
    assert_eq!(ledger.stream_after(stream, 1, 500).unwrap()[0].stream_seq, 2);
}

/// Events come in journal order, of one stream or all, after a place.
pub fn events_are_filtered(backend: &dyn Backend) {
    let store = plain(backend);
    let made = begun(&*store, 1..3);
    let read = |stream, after, limit| {
        let filter = EventFilter { stream, after, limit };
        let events = block_on(store.events(&scope(), filter)).unwrap();
        events.iter().map(|event| event.journal_seq).collect::<Vec<_>>()
    };
    assert_eq!(read(None, 0, 500), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(read(None, 3, 2), [4, 5]);
    assert_eq!(read(Some(made[1].into()), 0, 500), [6, 7]);
    assert_eq!(read(Some(made[1].into()), 6, 500), [7]);
    assert_eq!(read(Some(RunId::from_bytes([1; 16]).into()), 0, 500), [0_i64; 0]);
    assert_eq!(read(None, u64::MAX, 500), [0_i64; 0]);
}
