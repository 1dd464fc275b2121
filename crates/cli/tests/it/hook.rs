//! `decide`: every host is answered in its own form, what goes wrong is a no, and the record says advice and no effect.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use portcullis_canon::{Limits, Value, parse};
use portcullis_testkit::preload::{Call, Fault, Plan, Preload};

use crate::home::{Ended, Home, text};

/// The tools of the tests: one that is allowed, one that asks, one that is denied.
const RULES: &str = "[classes]\nread_only = 'allow'\nlocal_mutation = 'allow'\nremote_mutation = 'ask'\ndestructive = 'deny'\n\
    [decide.tools]\nLook = 'read_only'\nread_file = 'read_only'\nShell = 'read_only'\n'MCP:look' = 'read_only'\n\
    mcp__mail__send = 'remote_mutation'\nsend = 'remote_mutation'\nBurn = 'destructive'\n";

/// An allowed call of each host, with what is in its allow and in its deny.
const ALLOWED: [(&str, &str, &str, &str); 4] = [
    (
        "claude-code",
        r#"{"session_id":"s","transcript_path":"/t","cwd":"/p","permission_mode":"default","hook_event_name":"PreToolUse","tool_name":"Look","tool_input":{"path":"a"},"tool_use_id":"u"}"#,
        r#""permissionDecision":"allow""#,
        r#""permissionDecision":"deny""#,
    ),
    (
        "codex",
        r#"{"session_id":"s","turn_id":"t","cwd":"/p","hook_event_name":"PreToolUse","tool_name":"Look","tool_input":{"path":"a"}}"#,
        "{}",
        r#""permissionDecision":"deny""#,
    ),
    (
        "cursor",
        r#"{"conversation_id":"s","generation_id":"g","hook_event_name":"beforeShellExecution","command":"ls","cwd":"/p"}"#,
        r#""permission":"allow""#,
        r#""permission":"deny""#,
    ),
    (
        "gemini-cli",
        r#"{"session_id":"s","cwd":"/p","hook_event_name":"BeforeTool","timestamp":"2026-01-01T00:00:00Z","tool_name":"read_file","tool_input":{"path":"a"}}"#,
        r#""decision":"allow""#,
        r#""decision":"deny""#,
    ),
];

fn event(session: &str, tool: &str, input: &str) -> String {
    format!(
        r#"{{"session_id":"{session}","hook_event_name":"PreToolUse","tool_name":"{tool}","tool_input":{input}}}"#
    )
}

fn home() -> Home {
    let home = Home::new();
    home.write("config/portcullis/portcullis.toml", RULES);
    home
}

/// Hands bytes to a command, and closes its input.
fn feed(mut command: Command, input: &[u8]) -> Ended {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that has answered already reads no more.
    let _ = child.stdin.take().unwrap().write_all(input);
    Ended::of(&child.wait_with_output().unwrap())
}

fn decide(home: &Home, host: &str, more: &[&str], input: &str) -> Ended {
    let mut args = vec!["decide", "--host", host, "--timeout-ms", "60000"];
    args.extend(more);
    feed(home.command(&args), input.as_bytes())
}

fn claude(home: &Home, input: &str) -> Ended {
    decide(home, "claude-code", &[], input)
}

/// A no in each way that it can be said: the form on standard output, a reason, and the code that blocks.
#[track_caller]
fn denied(ended: Ended, words: &[&str]) -> String {
    let ended = ended.exits(2);
    let (_, _, _, deny) = ALLOWED[0];
    assert!(ended.out.contains(deny) && ended.out.lines().count() == 1, "{ended:#?}");
    assert_eq!(ended.err.lines().count(), 1, "{ended:#?}");
    for word in words {
        assert!(ended.err.contains(word), "no {word:?} in {ended:#?}");
    }
    ended.err
}

#[track_caller]
fn allowed(ended: Ended) {
    let ended = ended.exits(0);
    assert!(ended.out.contains(ALLOWED[0].2) && ended.err.is_empty(), "{ended:#?}");
}

/// The question that a no names.
fn question(err: &str) -> String {
    let at = err.find("q_").unwrap();
    err[at..at + 34].to_owned()
}

fn events(home: &Home) -> Vec<Value> {
    let out = home.run(&["events", "--all", "--json", "--limit", "500"]).exits(0).out;
    out.lines().map(|line| parse(line.as_bytes(), &Limits::ENVELOPE).unwrap()).collect()
}

fn count(home: &Home, kind: &str) -> usize {
    events(home).iter().filter(|event| text(event, "type") == kind).count()
}

#[test]
fn each_host_is_answered_in_its_form_and_the_record_says_advice() {
    for (host, event, allow, _) in ALLOWED {
        let home = home();
        let ended = decide(&home, host, &[], event).exits(0);
        assert!(ended.out.contains(allow) && ended.out.lines().count() == 1, "{ended:#?}");
        assert_eq!(ended.err, "");
        let run = home.only_run();
        let shown = home.run(&["show", &run, "--json"]).json(0);
        assert_eq!(text(shown.get("run").unwrap(), "agent"), format!("hook:{host}"));
        let [step] = shown.get("steps").unwrap().as_array().unwrap() else { panic!("{shown:?}") };
        assert_eq!(text(step, "status"), "advised");
        assert_eq!((count(&home, "step.started"), count(&home, "step.advised")), (0, 1));
        let told = home.run(&["explain", &run, "0"]).exits(0).out;
        assert!(told.contains("nothing was made here"), "{told}");
        home.run(&["verify"]).exits(0);
        home.run(&["recheck", &run]).exits(0);
    }
}

#[test]
fn what_the_rules_do_not_allow_is_denied_in_each_form() {
    for (host, event, _, deny) in ALLOWED {
        let home = home();
        let unknown = event.replace("Look", "Other").replace("read_file", "other");
        let unknown = unknown.replace("beforeShellExecution", "beforeReadFile");
        let unknown = unknown.replace("\"command\":\"ls\"", "\"file_path\":\"a\"");
        let ended = decide(&home, host, &[], &unknown).exits(2);
        assert!(ended.out.contains(deny) && ended.err.contains("unknown_tool"), "{ended:#?}");
        assert_eq!(count(&home, "step.proposed"), 1, "a refusal is recorded too");
    }
    let home = home();
    denied(claude(&home, &event("s", "Burn", "{}")), &["class_denied"]);
    denied(claude(&home, &event("s", "Burn", "{\"n\":1e400}")), &[]);
    assert_eq!(count(&home, "step.advised"), 0);
    home.run(&["verify"]).exits(0);
}

#[test]
fn what_is_no_event_is_denied_and_records_nothing() {
    let home = home();
    let huge = format!("{}{}", event("s", "Look", "{}"), " ".repeat(1 << 20));
    let deep = event("s", "Look", &format!("{}1{}", "{\"a\":".repeat(400), "}".repeat(400)));
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (Vec::new(), "strict JSON"),
        (b"null".to_vec(), "no text"),
        (b"{}".to_vec(), "no text"),
        (b"{\"session_id\":\"s\",\"session_id\":\"t\"}".to_vec(), "strict JSON"),
        (b"\xff\xfe".to_vec(), "strict JSON"),
        (huge.into_bytes(), "larger than"),
        (deep.into_bytes(), "strict JSON"),
        (event("", "Look", "{}").into_bytes(), "conversation"),
        (event("s", "Look", "[]").into_bytes(), "no object"),
        (event("s", "Look", "{}").replace("PreToolUse", "PostToolUse").into_bytes(), "PreToolUse"),
    ];
    for (input, word) in cases {
        let args = ["decide", "--host", "claude-code", "--timeout-ms", "60000"];
        denied(feed(home.command(&args), &input), &[word]);
    }
    assert!(!home.db().exists());
    // Positive control.
    allowed(claude(&home, &event("s", "Look", "{}")));
}

#[test]
fn a_configuration_that_is_not_there_or_says_nothing_is_a_no() {
    let bare = Home::new();
    let look = event("s", "Look", "{}");
    denied(claude(&bare, &look), &["[decide.tools]"]);
    denied(decide(&bare, "claude-code", &["-c", "none.toml"], &look), &["cannot decide"]);
    bare.write("config/portcullis/portcullis.toml", "[decide.tools]\nLook = 'harmless'\n");
    denied(claude(&bare, &look), &["an effect class is"]);
    // A command line that cannot be read answers nothing, with the code that blocks.
    let slip = feed(bare.command(&["decide", "--host", "nobody"]), look.as_bytes()).exits(2);
    assert_eq!(slip.out, "");
    feed(bare.command(&["decide"]), look.as_bytes()).exits(2);
}

#[test]
fn a_call_that_asks_is_allowed_once_after_its_approval() {
    let home = home();
    let send = event("s", "mcp__mail__send", "{\"to\":\"ann\",\"n\":1}");
    let asked = question(&denied(claude(&home, &send), &["portcullis approve q_"]));
    // The identical call asks nobody again; the order of members and blanks make no other call.
    let same = event("s", "mcp__mail__send", "{ \"n\": 1, \"to\": \"ann\" }");
    assert_eq!(question(&denied(claude(&home, &same), &[])), asked);
    assert_eq!(count(&home, "question.asked"), 1);
    home.run(&["approve", &asked, "--yes"]).exits(0);

    // The approval is for this call, in this conversation, of this host.
    for other in [
        event("s", "mcp__mail__send", "{\"to\":\"eve\",\"n\":1}"),
        event("t", "mcp__mail__send", "{\"to\":\"ann\",\"n\":1}"),
        event("s", "send", "{\"to\":\"ann\",\"n\":1}"),
    ] {
        assert_ne!(question(&denied(claude(&home, &other), &[])), asked);
    }
    decide(&home, "codex", &[], &send).exits(2);
    allowed(claude(&home, &same));
    // Once.
    assert_ne!(question(&denied(claude(&home, &send), &[])), asked);
    assert_eq!((count(&home, "approval.used"), count(&home, "step.advised")), (1, 1));
    assert_eq!(count(&home, "step.started"), 0);
    home.run(&["verify"]).exits(0);
}

#[test]
fn what_waits_is_said_to_be_a_hosts_where_agents_are_gone_on_with() {
    let home = home();
    question(&denied(claude(&home, &event("s", "send", "{}")), &[]));
    let run = home.only_run();
    let told = home.run(&["resume", "--all"]).exits(3);
    assert!(told.err.contains("is a call of a host") && told.err.contains(&run), "{told:#?}");
    let told = home.run(&["resume", "--all", "--json"]).exits(3);
    assert!(told.err.starts_with("{\"note\":") && told.out.is_empty(), "{told:#?}");
    home.run(&["resume", &run]).refuses(1, "E9006", &["is a call of a host", "portcullis cancel"]);
    home.run(&["cancel", &run]).exits(0);
    assert_eq!(home.run(&["resume", "--all"]).exits(0).err, "");
}

#[test]
fn one_approval_is_one_allow_however_many_ask_at_once() {
    let home = home();
    let send = event("s", "send", "{}");
    let asked = question(&denied(claude(&home, &send), &[]));
    home.run(&["approve", &asked, "--yes"]).exits(0);
    let answers: Vec<Ended> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..4).map(|_| scope.spawn(|| claude(&home, &send))).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let yes = answers.iter().filter(|ended| ended.code == Some(0)).count();
    assert!(answers.iter().all(|ended| matches!(ended.code, Some(0 | 2))), "{answers:#?}");
    assert_eq!((yes, count(&home, "approval.used")), (1, 1), "{answers:#?}");
    home.run(&["verify"]).exits(0);
}

#[test]
fn a_rejection_and_an_expired_question_allow_nothing() {
    let home = home();
    let send = event("s", "send", "{}");
    let asked = question(&denied(claude(&home, &send), &[]));
    home.run(&["reject", &asked, "--yes"]).exits(0);
    assert_ne!(question(&denied(claude(&home, &send), &[])), asked);

    let brief = format!("{RULES}[limits]\nquestion_ttl_ms = 1\n");
    home.write("config/portcullis/portcullis.toml", brief);
    let other = event("u", "send", "{}");
    let first = question(&denied(claude(&home, &other), &[]));
    assert_ne!(question(&denied(claude(&home, &other), &[])), first);
    assert_eq!(count(&home, "step.advised"), 0);
}

#[test]
fn a_conversation_cannot_pile_up_questions() {
    let home = home();
    for n in 0..16 {
        question(&denied(claude(&home, &event("s", "send", &format!("{{\"n\":{n}}}"))), &[]));
    }
    denied(claude(&home, &event("s", "send", "{\"n\":99}")), &["wait for a person"]);
    assert_eq!(count(&home, "question.asked"), 16);
    // Another conversation is not hindered.
    question(&denied(claude(&home, &event("t", "send", "{}")), &["q_"]));
}

#[test]
fn a_host_asks_its_own_person_where_its_form_can_and_that_is_no_approval() {
    let home = home();
    let send = event("s", "send", "{}");
    let ended = decide(&home, "claude-code", &["--ask", "host"], &send).exits(0);
    assert!(ended.out.contains(r#""permissionDecision":"ask""#), "{ended:#?}");
    let told = home.run(&["explain", &home.only_run(), "0"]).exits(0).out;
    assert!(told.contains("whose answer is not known here"), "{told}");
    assert_eq!((count(&home, "question.asked"), count(&home, "approval.used")), (0, 0));
    // The next one asks again, and these two have no ask in their forms.
    let ended = decide(&home, "claude-code", &["--ask", "host"], &send).exits(0);
    assert!(ended.out.contains(r#""permissionDecision":"ask""#), "{ended:#?}");
    let gemini = send.replace("PreToolUse", "BeforeTool");
    for (host, input) in [("gemini-cli", &gemini), ("codex", &send)] {
        let ended = decide(&home, host, &["--ask", "host"], input).exits(2);
        assert!(ended.err.contains("portcullis approve q_"), "{ended:#?}");
    }
    home.run(&["verify"]).exits(0);
}

#[test]
fn labels_of_a_conversation_are_joined() {
    let home = home();
    allowed(claude(&home, &event("s", "Look", "{\"n\":1}")));
    allowed(claude(&home, &event("s", "Look", "{\"n\":2}")));
    allowed(claude(&home, &event("t", "Look", "{\"n\":1}")));
    assert_eq!((count(&home, "thread.opened"), count(&home, "thread.labelled")), (2, 2));
}

#[test]
fn a_store_that_cannot_be_used_is_a_no() {
    let look = event("s", "Look", "{}");
    let gone = home();
    fs::create_dir_all(gone.db()).unwrap();
    denied(claude(&gone, &look), &["cannot decide"]);
    let foreign = home();
    foreign.write("state/portcullis/portcullis.db", "this is not a database, and was never one");
    denied(claude(&foreign, &look), &["cannot decide"]);
    let nowhere = home();
    let db = nowhere.path("no/such/folder/x.db").display().to_string();
    denied(decide(&nowhere, "claude-code", &["--db", &db], &look), &["cannot decide"]);
    // An old copy that was put back would allow what was used up.
    let old = home();
    allowed(claude(&old, &look));
    let copy = old.path("copy.db");
    old.sql("SELECT 1");
    fs::copy(old.db(), &copy).unwrap();
    allowed(claude(&old, &look));
    for side in ["-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{side}", old.db().display()));
    }
    fs::copy(&copy, old.db()).unwrap();
    denied(claude(&old, &look), &["E4002"]);
}

/// Errors of a disk, in Linux's numbers.
const EIO: u32 = 5;
const ENOSPC: u32 = 28;

/// `decide` on a database that is there, with this fault planned: the answer, whether it struck, how many calls there were.
fn struck(preload: &Preload, call: Call, nth: usize, fault: Fault) -> (Home, Ended, bool, usize) {
    let home = home();
    home.run(&["init", "--no-config"]).exits(0);
    let log = home.path("faults.log");
    let mut command = home.command(&["decide", "--host", "claude-code", "--timeout-ms", "60000"]);
    preload.plan(&mut command, Plan { call, files: "portcullis.db", nth, fault }, &log);
    let ended = feed(command, event("s", "Look", "{}").as_bytes());
    let counted = Preload::counted(&log, call);
    (home, ended, counted.fired > 0, counted.calls)
}

#[test]
fn a_full_or_failing_disk_is_a_no_unless_the_record_is_durable() {
    let Some(preload) = Preload::compile() else { return };
    let mut denials = 0;
    for (call, fault) in [(Call::Write, Fault::Stay(ENOSPC)), (Call::Sync, Fault::Stay(EIO))] {
        let (_, whole, fired, all) = struck(&preload, call, 0, Fault::Short);
        assert!(!fired && all > 0);
        allowed(whole);
        for nth in 1..=all {
            let (home, ended, fired, _) = struck(&preload, call, nth, fault);
            assert!(fired, "{fault} at {nth}: {ended:#?}");
            if ended.code == Some(0) {
                allowed(ended);
                let conn = rusqlite::Connection::open(home.db()).unwrap();
                let count = "SELECT count(*) FROM events WHERE kind = 'step.advised'";
                let told: i64 = conn.query_row(count, [], |row| row.get(0)).unwrap();
                assert_eq!(told, 1, "an allow without its record: {fault} at {nth}");
            } else {
                denied(ended, &["cannot decide"]);
                denials += 1;
            }
        }
    }
    assert!(denials > 2, "{denials}");
}

#[test]
fn an_input_that_never_ends_is_a_no_in_time() {
    let home = home();
    let mut child = home
        .command(&["decide", "--host", "claude-code", "--timeout-ms", "200"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"{\"session_id\":").unwrap();
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    let code = child.wait().unwrap().code();
    drop(input);
    denied(Ended { code, out, err }, &["in time"]);
}

#[test]
fn an_answer_that_cannot_be_written_is_a_no() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        portcullis_testkit::skip::skip("no /dev/full on this machine");
        return;
    }
    let home = home();
    let out = fs::OpenOptions::new().write(true).open(full).unwrap();
    let mut command = home.command(&["decide", "--host", "claude-code", "--timeout-ms", "60000"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::from(out))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(event("s", "Look", "{}").as_bytes()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2));
}

#[test]
fn a_conversation_is_told_no_once_a_limit_is_met_and_another_is_not() {
    let home = Home::new();
    let rules = format!("{RULES}[conversation]\nmax_calls = 2\n");
    home.write("config/portcullis/portcullis.toml", &rules);
    for n in 1..=2 {
        allowed(claude(&home, &event("s", "Look", &format!(r#"{{"n":{n}}}"#))));
    }
    let third = event("s", "Look", r#"{"n":3}"#);
    denied(claude(&home, &third), &["a limit of this conversation is met", "thread_calls"]);
    allowed(claude(&home, &event("other", "Look", r#"{"n":3}"#)));
    // Denials count too, and what they keep out is nothing that nobody is asked about.
    home.write(
        "config/portcullis/portcullis.toml",
        format!("{RULES}[conversation]\nmax_denials = 1\n"),
    );
    denied(claude(&home, &event("third", "Burn", "{}")), &["class_denied"]);
    denied(claude(&home, &event("third", "Look", "{}")), &["thread_denials"]);
    denied(claude(&home, &event("third", "mcp__mail__send", "{}")), &["thread_denials"]);
    assert!(
        home.run(&["inbox", "--json"])
            .json(0)
            .get("questions")
            .unwrap()
            .as_array()
            .unwrap()
            .is_empty()
    );
    home.run(&["verify"]).exits(0);
}
