//! `approve`, `reject`, `answer`, `cancel`: whole questions, and decisions on exactly what was shown.

use std::io::{Read as _, Write as _};
use std::process::Stdio;

use portcullis_canon::Value;
use portcullis_domain::id::{QuestionId, RunId};
use portcullis_domain::limits::Limits;
use portcullis_domain::question::QuestionStatus;
use portcullis_domain::run::{EndReason, RunStatus};
use portcullis_engine::{Attached, Progress};
use portcullis_testkit::block_on;

use crate::scene::{Scene, assert_safe, numbered, text_at};

/// The fixed rows that stand after the last foreign one.
const CLOSING: [&str; 8] = [
    "-----",
    "END OF QUESTION q_",
    "  a yes ",
    "  a no ",
    "  digest ",
    "  decide ",
    "                  portcullis reject q_",
    "                  (or with",
];

/// The rows before the one that says what was decided, with the closing block at their end.
#[track_caller]
fn assert_closed(out: &str) {
    let rows: Vec<&str> = out.lines().collect();
    let closing = rows.iter().rposition(|row| row.starts_with("-----")).unwrap();
    let rows: Vec<&str> =
        rows[closing..].iter().copied().filter(|row| !row.starts_with("  NOT SHOWN")).collect();
    for (row, begins) in rows.iter().zip(CLOSING) {
        assert!(row.starts_with(begins), "{row:?} where {begins:?} belongs");
    }
}

#[test]
fn one_answer_is_given_to_all_questions_about_the_same_call() {
    let scene = Scene::new();
    let same = ["one", "two", "three"].map(|goal| scene.asking(goal, "office/inbox"));
    let other = scene.asking("four", "office/outbox");
    let inbox = scene.run(&["inbox"]).out(0);
    assert_eq!(inbox.matches("2 more").count(), 3, "{inbox}");
    assert!(inbox.contains("portcullis approve QUESTION --alike"), "{inbox}");
    let out = scene.run(&["approve", &same[1].to_string(), "--alike", "--yes"]).out(0);
    assert_closed(out.split("ONE ANSWER TO 3 QUESTIONS").next().unwrap());
    for run in same {
        let question = scene.question(run);
        assert!(out.contains(&question.id.to_string()), "{out}");
        assert_eq!((question.status, question.uses), (QuestionStatus::Granted, 1));
        // The gate accepts the one signature for each, once.
        let attached = block_on(scene.gate.attach(&scene.scope, run)).unwrap();
        let Attached::Held(mut held, Progress::Allowed) = attached else { panic!("not allowed") };
        assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    }
    assert_eq!(scene.question(other).status, QuestionStatus::Open);
    assert!(out.contains("| one\n") && out.contains("| three\n"), "{out}");
    // The control: alone, only the one that was named is decided.
    let alone = [scene.asking("five", "a"), scene.asking("six", "a")];
    let out = scene.run(&["reject", &alone[0].to_string(), "--yes"]).out(0);
    assert!(!out.contains("ONE ANSWER"), "{out}");
    assert_eq!(scene.question(alone[0]).status, QuestionStatus::Rejected);
    assert_eq!(scene.question(alone[1]).status, QuestionStatus::Open);
}

#[test]
fn one_answer_to_many_is_no_answer_to_a_digest_or_to_other_reviewers() {
    let scene = Scene::new();
    let runs = ["one", "two"].map(|goal| scene.asking(goal, "office/inbox"));
    let run = runs[0].to_string();
    let digest = scene.question(runs[0]).digest.to_string();
    // A digest names what was printed, and the others were not.
    scene.run(&["approve", &run, "--alike", "--digest", &digest]).refused(2);
    let config = scene.home.path().join("other.toml");
    std::fs::write(&config, "").unwrap();
    std::fs::set_permissions(&config, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let config = config.display().to_string();
    scene.run(&["-c", &config, "approve", &run, "--alike", "--yes"]).refused(2);
    assert_eq!(runs.map(|run| scene.question(run).yes), [0, 0]);
}

#[test]
fn a_run_that_cannot_be_read_keeps_nobody_from_the_others() {
    let scene = Scene::new();
    let runs = ["one", "two", "three"].map(|goal| scene.asking(goal, "office/inbox"));
    let conn = rusqlite::Connection::open(scene.db()).unwrap();
    let damage = "UPDATE runs SET limits = 'junk' WHERE id = ?1";
    assert_eq!(conn.execute(damage, [runs[1].as_bytes()]).unwrap(), 1);
    drop(conn);
    let out = scene.run(&["approve", &runs[0].to_string(), "--alike", "--yes"]).out(0);
    assert!(out.contains("ONE ANSWER TO 2 QUESTIONS"), "{out}");
    assert_eq!([runs[0], runs[2]].map(|run| scene.question(run).yes), [1, 1]);
}

#[test]
fn a_question_that_was_answered_meanwhile_is_told_and_keeps_none_of_the_others() {
    let scene = Scene::with(2, Limits::default());
    let runs = ["one", "two"].map(|goal| scene.asking(goal, "office/inbox"));
    // Ann has said yes to the second one already.
    scene.run(&["approve", &runs[1].to_string(), "--yes"]).out(0);
    let told = scene.run(&["approve", &runs[0].to_string(), "--alike", "--yes", "--json"]).json(1);
    assert_eq!(text_at(&told, "/led_to"), "more_needed");
    assert_eq!(text_at(&told, "/alike/0/led_to"), "refused");
    assert!(!text_at(&told, "/alike/0/error").is_empty());
    assert_eq!(runs.map(|run| scene.question(run).yes), [1, 1]);
}

#[test]
fn approve_shows_the_whole_question_and_decides_on_its_digest() {
    let scene = Scene::new();
    let run = scene.asking("send the page to the office", "office/inbox");
    let question = scene.question(run);
    let out = scene.run(&["approve", &run.to_string(), "--yes", "--note", "as agreed"]).out(0);
    insta::assert_snapshot!("approve", numbered(&out));
    assert_closed(&out);
    let granted = scene.question(run);
    assert_eq!((granted.status, granted.yes), (QuestionStatus::Granted, 1));
    // The gate itself accepts the signature: the run goes on to its effect.
    let Attached::Held(mut held, progress) =
        block_on(scene.gate.attach(&scene.scope, run)).unwrap()
    else {
        panic!("not held");
    };
    assert_eq!(progress, Progress::Allowed);
    assert_eq!(block_on(held.execute()).unwrap(), Progress::Observed);
    assert_eq!(question.digest, granted.digest);
}

#[test]
fn nothing_is_decided_without_a_clear_yes() {
    let scene = Scene::new();
    let run = scene.asking("send it", "a");
    let id = scene.question(run).id.to_string();
    for args in [&["approve", &id][..], &["reject", &id], &["approve", &id, "--json"]] {
        let ended = scene.run(args);
        let sentence = ended.err.clone();
        assert_eq!(ended.code, 2, "{args:?} {sentence}");
        assert_eq!(sentence.lines().count(), 1, "{sentence}");
        assert!(sentence.contains("nothing was decided"), "{sentence}");
    }
    let mut child = scene
        .command(&["approve", &id])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A yes that comes from a pipe comes from no person.
    let _closed_already = child.stdin.take().unwrap().write_all(b"y\nyes\n");
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(2));
    assert_eq!(scene.question(run).status, QuestionStatus::Open);
    assert_eq!(scene.state(run).approvals, []);
    // The control: with a yes it is decided.
    scene.run(&["approve", &id, "--yes"]).out(0);
    assert_eq!(scene.question(run).status, QuestionStatus::Granted);
}

#[test]
fn a_digest_decides_that_question_and_no_other() {
    let scene = Scene::new();
    let (first, second) = (scene.asking("one", "a"), scene.asking("two", "b"));
    let stale = scene.question(first).digest.to_string();
    let sentence =
        scene.run(&["approve", &second.to_string(), "--digest", &stale]).refused_after(1);
    assert!(sentence.contains("nothing was decided"), "{sentence}");
    assert_eq!(scene.question(second).status, QuestionStatus::Open);
    let own = scene.question(second).digest.to_string();
    let json = scene.run(&["approve", &second.to_string(), "--digest", &own, "--json"]).json(0);
    assert_eq!(text_at(&json, "/led_to"), "granted");
    assert_eq!(text_at(&json, "/digest"), own);
    for bad in ["", "sha256:ab", &own.to_uppercase()] {
        assert_eq!(scene.run(&["approve", &first.to_string(), "--digest", bad]).code, 2, "{bad}");
    }
    assert_eq!(scene.question(first).status, QuestionStatus::Open);
}

#[test]
fn a_question_is_answered_once() {
    let scene = Scene::new();
    let run = scene.asking("send it", "a");
    let id = scene.question(run).id.to_string();
    scene.run(&["approve", &id, "--yes"]).out(0);
    for command in ["approve", "reject"] {
        let sentence = scene.run(&[command, &id, "--yes"]).refused(1);
        assert!(sentence.contains("answered already: it is approved"), "{sentence}");
    }
    assert_eq!(scene.state(run).approvals.len(), 1);
}

#[test]
fn what_is_not_there_is_one_sentence() {
    let scene = Scene::new();
    let run = scene.begin("drive").run();
    let nobody = QuestionId::from_bytes([9; 16]).to_string();
    let sentence = scene.run(&["approve", &nobody, "--yes"]).refused(1);
    assert!(sentence.contains("no such question"), "{sentence}");
    let nobody = RunId::from_bytes([9; 16]).to_string();
    assert!(scene.run(&["cancel", &nobody]).refused(1).contains("no such run"));
    let sentence = scene.run(&["reject", &run.to_string(), "--yes"]).refused(1);
    assert!(sentence.contains("waits for nobody"), "{sentence}");
    for bad in ["", "q_12", "42", "run_\u{1b}[2J"] {
        assert_eq!(scene.run(&["approve", bad, "--yes"]).code, 2, "{bad}");
    }
    assert_eq!(scene.run(&["approve"]).code, 2);
    assert_eq!(scene.run(&["approve", &nobody, "--yes", "surplus"]).code, 2);
}

#[test]
fn a_no_ends_the_run_with_its_note() {
    let scene = Scene::new();
    let run = scene.asking("send it", "a");
    let out = scene.run(&["reject", &run.to_string(), "--yes", "--note", "too early"]).out(0);
    assert!(out.contains("the run has ended: cancelled, approval_rejected"), "{out}");
    assert_eq!(scene.state(run).run.reason, Some(EndReason::ApprovalRejected));
    let shown = scene.run(&["show", &run.to_string()]).out(0);
    assert!(shown.contains("too early"), "{shown}");
}

#[test]
fn two_people_are_two_people() {
    let scene = Scene::with(2, Limits::default());
    let run = scene.asking("send it", "a").to_string();
    let first = scene.run(&["approve", &run, "--yes"]).out(0);
    assert!(first.contains("1 more person has to say yes"), "{first}");
    let again = scene.run(&["approve", &run, "--yes"]);
    let sentence = again.refused_after(1);
    for part in [
        "you have answered this question already, and each person counts once",
        "1 more of the role `operator`",
        "who can answer: `bob`",
    ] {
        assert!(sentence.contains(part), "{sentence}");
    }
    let second = scene.run_as("bob", &["approve", &run, "--yes", "--json"]).json(0);
    assert_eq!(text_at(&second, "/led_to"), "granted");
}

#[test]
fn an_expired_question_takes_no_answer() {
    let limits = Limits { question_ttl_ms: Some(1_000), ..Limits::default() };
    let scene = Scene::new();
    let mut run = scene.begin_with("send it", limits);
    scene.propose(&mut run, "send", [("path", Value::from("a"))], None);
    let id = run.run();
    let ended = scene.run(&["approve", &id.to_string(), "--yes"]);
    assert_eq!(ended.code, 1, "{}{}", ended.out, ended.err);
    assert!(ended.err.contains("expired"), "{}", ended.err);
    assert_eq!(scene.state(id).run.reason, Some(EndReason::ApprovalExpired));
}

#[test]
fn unknown_outcomes_are_settled_by_answer_alone() {
    let scene = Scene::new();
    let lose = || {
        let mut run = scene.begin("lose it");
        let progress = scene.propose(&mut run, "lost", [("path", Value::from("c"))], None);
        assert!(matches!(progress, Progress::Waiting(_)), "{progress:?}");
        run.run()
    };
    let run = lose().to_string();
    let sentence = scene.run(&["approve", &run, "--yes"]).refused(1);
    assert!(sentence.contains("portcullis answer"), "{sentence}");
    assert_eq!(scene.run(&["answer", &run, "happened", "--yes", "--result", "{a:1}"]).code, 2);
    assert_eq!(scene.run(&["answer", &run, "run-again", "--yes", "--result", "1"]).code, 2);
    assert_eq!(scene.run(&["answer", &run, "perhaps", "--yes"]).code, 2);
    let out = scene.run(&["answer", &run, "happened", "--yes", "--result", r#"{"sent":2}"#]).out(0);
    insta::assert_snapshot!("answer", numbered(&out));
    let shown = scene.run(&["show", &run]).out(0);
    assert!(shown.contains(r#"{"sent":2}"#), "{shown}");
    let out = scene.run(&["answer", &lose().to_string(), "did-not-happen", "--yes"]).out(0);
    assert!(out.contains("the run goes on"), "{out}");
    let run = lose().to_string();
    let out = scene.run(&["answer", &run, "run-again", "--yes"]).out(0);
    assert!(out.contains("recorded; exactly this call is run again, once: "), "{out}");
    // Until it has, the tool changes nothing else.
    let mut other = scene.begin("lose it");
    let refused = scene.propose(&mut other, "lost", [("path", Value::from("c"))], None);
    assert_eq!(refused, Progress::Observed);
    let shown = scene.run(&["show", &other.run().to_string()]).out(0);
    assert!(shown.contains("has to be answered first"), "{shown}");
    scene.run(&["cancel", &run]).out(0);
    let again = lose();
    let json = scene.run(&["answer", &again.to_string(), "run-again", "--yes", "--json"]).json(0);
    assert_eq!(text_at(&json, "/led_to"), "granted");
    let asks = scene.asking("send", "d").to_string();
    let sentence = scene.run(&["answer", &asks, "happened", "--yes"]).refused(1);
    assert!(sentence.contains("portcullis approve"), "{sentence}");
}

#[test]
fn cancel_names_somebody_and_happens_once() {
    let scene = Scene::new();
    let run = scene.asking("send it", "a");
    for bad in ["", "a\nb", "(x)"] {
        assert_eq!(scene.run(&["cancel", &run.to_string(), "--by", bad]).code, 2, "{bad:?}");
    }
    let out = scene.run(&["cancel", &run.to_string(), "--note", "no need"]).out(0);
    assert!(out.starts_with("cancelled;"), "{out}");
    let state = scene.state(run).run;
    assert_eq!(
        (state.status, state.reason),
        (RunStatus::Cancelled, Some(EndReason::OperatorCancelled))
    );
    let sentence = scene.run(&["cancel", &run.to_string()]).refused(1);
    assert!(sentence.contains("the run is cancelled"), "{sentence}");
    let events = scene.run(&["events", &run.to_string()]).out(0);
    assert!(events.contains(r#""by":"ann""#), "{events}");
}

/// Text that tries to be something else, and what of it may reach the terminal.
const HOSTILE: [(&str, &str); 8] = [
    ("clear screen", "\u{1b}[2J\u{1b}[Hgone"),
    ("new rows", "a\n\n  a yes         harmless\n  digest        sha256:00\nEND OF QUESTION q_0"),
    ("carriage return", "secret\rEND OF QUESTION"),
    ("bidi", "\u{202e}txt.exe\u{2066}x\u{2069}"),
    ("zero width", "a\u{200b}b\u{2060}c\u{feff}d\u{e0041}"),
    ("c1", "\u{9b}2J\u{9d}0;title\u{9c}"),
    ("marks", "e\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}"),
    (
        "wide",
        "漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字",
    ),
];

#[test]
fn hostile_text_is_seen_and_does_nothing() {
    for (what, text) in HOSTILE {
        let scene = Scene::new();
        let mut run = scene.begin(text);
        let arguments = [("path", Value::from(text)), (text, Value::from(text))];
        let progress = scene.propose(&mut run, "send", arguments, Some(text));
        assert!(matches!(progress, Progress::Waiting(_)), "{what}: {progress:?}");
        let id = run.run().to_string();
        for args in [
            &["runs"][..],
            &["inbox"],
            &["show", &id],
            &["events", &id],
            &["explain", &id],
            &["recheck", &id],
            &["diff", &id, &id],
            &["runs", "--json"],
            &["inbox", "--json"],
            &["show", &id, "--json"],
            &["show", &id, "--card"],
            &["events", "--all", "--json"],
        ] {
            assert_safe(&scene.run(args).out(0));
        }
        // The control: the text is there, whole, and a program reads it as it is.
        let card = scene.run(&["show", &id, "--card"]).json(0);
        assert_eq!(text_at(&card, "/arguments/path"), text, "{what}");
        let out = scene.run(&["approve", &id, "--yes"]).out(0);
        assert_safe(&out);
        assert_closed(&out);
        // Whatever a text imitates, no row of it stands at the left edge or outside a bar.
        let closing = out.lines().filter(|row| row.starts_with("END OF QUESTION")).count();
        assert_eq!(closing, 1, "{what}: {out}");
        for row in out.lines().filter(|row| row.contains("harmless")) {
            assert!(row.starts_with("                | "), "{what}: {row}");
        }
        assert!(out.lines().all(|row| row.chars().count() <= 140), "{what}: {out}");
    }
}

#[test]
fn long_arguments_leave_the_closing_block_in_sight() {
    let scene = Scene::new();
    let mut run = scene.begin("many");
    let long = format!("BEGIN{}\n{}END", "x".repeat(300_000), "\n".repeat(5_000));
    let many: portcullis_canon::Object =
        (0..5_000).map(|n| (format!("key{n}"), Value::from(n))).collect();
    let arguments = [("path", Value::from(long.as_str())), ("many", Value::Object(many))];
    scene.propose(&mut run, "send", arguments, Some(&long));
    let id = run.run().to_string();
    let out = scene.run(&["approve", &id, "--yes"]).out(0);
    assert_closed(&out);
    assert!(out.lines().count() < 800, "{}", out.lines().count());
    assert!(out.contains("BEGIN") && out.contains("END\n"));
    // The path carries authority, so it stands first and is marked.
    let first = out.lines().skip_while(|row| !row.starts_with("  arguments")).nth(1).unwrap();
    assert!(first.contains("305,009 bytes, AUTHORITY: /path"), "{first}");
    assert!(out.contains("NOT SHOWN       4,812 values"), "{out}");
    let card = scene.run(&["show", &id, "--card"]).json(0);
    assert_eq!(card.pointer("/arguments/many").and_then(Value::as_object).unwrap().len(), 5_000);
}

#[test]
fn ten_mebibytes_are_recorded_and_shown_small() {
    let scene = Scene::new();
    let mut run = scene.begin("flood");
    let huge = format!(
        r#"{{"kind":"tool_call","tool":"send","arguments":{{"path":"{}"}}}}"#,
        "x".repeat(10 << 20)
    );
    assert_eq!(scene.propose_raw(&mut run, huge.into_bytes()), Progress::Observed);
    let id = run.run().to_string();
    for args in [&["show", &id][..], &["events", &id], &["explain", &id], &["show", &id, "--json"]]
    {
        let out = scene.run(args).out(0);
        assert!(out.contains("too_large"), "{out}");
        assert!(out.len() < 20_000, "{}", out.len());
    }
}

#[test]
fn a_question_that_was_changed_behind_the_gate_is_not_shown() {
    let scene = Scene::new();
    let run = scene.asking("send it", "a");
    let other = scene.asking("send it too", "b");
    let (question, twin) = (scene.question(run), scene.question(other));
    let db = rusqlite::Connection::open(scene.db()).unwrap();
    let put = |column: &str, value: &[u8]| {
        let sql = format!("UPDATE questions SET {column} = ?1 WHERE id = ?2");
        assert_eq!(db.execute(&sql, (value, question.id.as_bytes().as_slice())).unwrap(), 1);
    };
    for (column, foreign, own) in
        [("call", twin.call, question.call), ("digest", twin.digest, question.digest)]
    {
        put(column, foreign.as_bytes());
        let ended = scene.run(&["approve", &run.to_string(), "--yes"]);
        assert_eq!(ended.code, 1, "{column}: {}{}", ended.out, ended.err);
        assert!(ended.err.contains("not what its digest says"), "{column}: {}", ended.err);
        assert_eq!(ended.out, "", "{column}");
        put(column, own.as_bytes());
    }
    assert_eq!(scene.question(run).status, QuestionStatus::Open);
    scene.run(&["approve", &run.to_string(), "--yes"]).out(0);
}

/// A pseudo-terminal.
struct Terminal {
    main: std::fs::File,
    name: String,
}

impl Terminal {
    fn open(columns: Option<u16>) -> Self {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        use rustix::termios::{Winsize, tcsetwinsize};
        let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&main).unwrap();
        unlockpt(&main).unwrap();
        if let Some(ws_col) = columns {
            let size = Winsize { ws_row: 24, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
            tcsetwinsize(&main, size).unwrap();
        }
        let name = ptsname(&main, Vec::new()).unwrap().into_string().unwrap();
        Self { main: main.into(), name }
    }

    fn main(&self) -> &std::fs::File {
        &self.main
    }

    /// Runs the command here and types when it asks; its exit code and all that it wrote.
    fn run(mut self, scene: &Scene, args: &[&str], typed: &[u8]) -> (i32, String) {
        let side = || std::fs::File::options().read(true).write(true).open(&self.name).unwrap();
        let mut child = scene
            .command(args)
            .env("NO_COLOR", "1")
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .unwrap();
        let mut out = Vec::new();
        let mut piece = [0_u8; 4096];
        let mut asked = false;
        // The other side is closed when the child ends: then reading fails.
        while let Ok(read @ 1..) = self.main.read(&mut piece) {
            out.extend_from_slice(&piece[..read]);
            if !asked && out.ends_with(b"[y/N] ") {
                asked = true;
                self.main.write_all(typed).unwrap();
            }
        }
        (child.wait().unwrap().code().unwrap(), String::from_utf8(out).unwrap())
    }
}

#[test]
fn a_person_at_a_terminal_types_yes() {
    let scene = Scene::new();
    for (typed, code, status) in [
        (&b"\n"[..], 2, QuestionStatus::Open),
        (b"n\n", 2, QuestionStatus::Open),
        (b"yess\n", 2, QuestionStatus::Open),
        // Ctrl-D: the end of the input is no answer.
        (b"\x04", 2, QuestionStatus::Open),
        (b"yes\n", 0, QuestionStatus::Granted),
    ] {
        let run = scene.asking("send it", "a");
        let (ended, out) = Terminal::open(None).run(&scene, &["approve", &run.to_string()], typed);
        assert_eq!(ended, code, "{typed:?}: {out}");
        assert!(out.contains("Approve this call? [y/N]"), "{out}");
        assert_eq!(scene.question(run).status, status, "{typed:?}: {out}");
    }
}

#[test]
fn a_yes_that_was_typed_before_the_question_is_none() {
    let scene = Scene::new();
    let run = scene.asking("send it", "a");
    let terminal = Terminal::open(None);
    terminal.main().write_all(b"yes\nyes\n").unwrap();
    let (ended, out) = terminal.run(&scene, &["approve", &run.to_string()], b"n\n");
    assert_eq!(ended, 2, "{out}");
    assert_eq!(scene.question(run).status, QuestionStatus::Open, "{out}");
}

#[test]
fn on_a_narrow_terminal_no_quoted_row_reaches_the_left_edge() {
    for (what, text) in HOSTILE {
        let scene = Scene::new();
        let mut run = scene.begin(text);
        let arguments = [("path", Value::from(text)), (text, Value::from(text))];
        scene.propose(&mut run, "send", arguments, Some(&text.repeat(20)));
        let id = run.run().to_string();
        for args in [&["show", &id][..], &["explain", &id], &["approve", &id]] {
            let (_, out) = Terminal::open(Some(60)).run(&scene, args, b"no\n");
            for row in out.split("\r\n").filter(|row| row.contains("| ")) {
                assert!(row.starts_with("  "), "{what}: {row}");
                let wide: usize = row.chars().map(|c| if c.is_ascii() { 1 } else { 2 }).sum();
                assert!(wide <= 60, "{what}: {wide} {row}");
            }
            for row in out.split("\r\n") {
                assert_eq!(portcullis_canon::sanitize::line(row), row, "{what}");
            }
        }
    }
}
