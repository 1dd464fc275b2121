//! Programs that keep to the protocol, and what they are told.

use std::time::Duration;

use portcullis_agents::{Deadlines, Ending, Exec, StartError};
use portcullis_canon::Value;
use portcullis_domain::run::EndReason;

use crate::programs::{HELLO, PATIENT, Program, ask, exists, json, text, view};

/// Writes down all that it is told and answers each view with a line that has no id, which is the gate's to judge.
const CLERK: &str = r#"
read -r hello; echo "$hello" >> told
echo '{"type":"hello","version":1}'
while read -r line; do
    echo "$line" >> told
    case "$line" in *'"type":"end"'*) exit 7;; esac
    echo '{"kind":"complete"}'
done
exit 8
"#;

#[tokio::test]
async fn views_go_in_and_replies_come_out_verbatim() {
    let program = Program::shell(CLERK);
    let mut agent = program.start();
    for request in 4..7 {
        assert_eq!(text(ask(&mut agent, request).await), r#"{"kind":"complete"}"#);
    }
    let Ending::Exited(status) = agent.end().await else { panic!("it ends by itself") };
    assert_eq!(status.code(), Some(7));

    let told = std::fs::read_to_string(program.folder().join("told")).unwrap();
    let told: Vec<Value> = told.lines().map(json).collect();
    let types: Vec<_> = told.iter().map(|line| line.get("type").and_then(Value::as_str)).collect();
    assert_eq!(types, ["hello", "view", "view", "view", "end"].map(Some));
    assert_eq!(told[0], json(r#"{"type":"hello","protocol":"portcullis-agent","versions":[1]}"#));
    assert_eq!(requests(&told[1]), [0, 1, 2, 3]);
    assert_eq!(told[1].get("goal").and_then(Value::as_str), Some("tidy up"));
    assert!(told[1].get("tools").is_some());
    for (line, request) in [(&told[2], 5), (&told[3], 6)] {
        assert_eq!(line.get("request").and_then(Value::as_u64), Some(request));
        assert_eq!(requests(line), [request - 1]);
        assert_eq!(line.get("omitted").and_then(Value::as_u64), Some(request - 1));
        assert_eq!(line.get("steps_left").and_then(Value::as_u64), Some(50 - request));
        assert!(line.get("goal").is_none() && line.get("tools").is_none());
    }
}

fn requests(view: &Value) -> Vec<u64> {
    let history = view.get("history").and_then(Value::as_array).unwrap();
    history.iter().map(|step| step.get("request").and_then(Value::as_u64).unwrap()).collect()
}

#[tokio::test]
async fn garbage_as_a_reply_is_passed_on_for_the_record() {
    let replies = "read -r v; echo 'this is no JSON'\nread -r v; printf '\\377\\n'\nread -r v; echo\nread -r v";
    let program = Program::shell(&format!("{HELLO}{replies}"));
    let mut agent = program.start();
    assert_eq!(ask(&mut agent, 0).await.unwrap(), b"this is no JSON");
    assert_eq!(ask(&mut agent, 1).await.unwrap(), b"\xff");
    assert_eq!(ask(&mut agent, 2).await.unwrap(), b"");
}

#[tokio::test]
async fn a_hello_may_come_before_ours_was_read_and_a_reply_in_pieces() {
    let slow = "echo '{\"type\":\"hello\",\"version\":1}'\nread -r hello; read -r view\nfor p in a b c; do printf $p; sleep 0.1; done; echo; read -r v";
    let program = Program::shell(slow);
    let mut agent = program.start();
    assert_eq!(text(ask(&mut agent, 0).await), "abc");
}

#[tokio::test]
async fn a_view_that_is_larger_than_a_pipe_arrives_whole() {
    // The program complains a lot before it reads, so that all three pipes are busy at once.
    let busy = "yes complaint | head -c 300000 >&2\nread -r view; printf '%s' \"$view\" | wc -c; read -r v";
    let program = Program::shell(&format!("{HELLO}{busy}"));
    let mut agent = program.start();
    let mut large = view(0);
    large.goal = "x".repeat(1_000_000);
    let counted = text(portcullis_domain::ports::Agent::propose(&mut agent, large).await);
    assert!(counted.trim().parse::<usize>().unwrap() > 1_000_000, "{counted}");
    assert_eq!(agent.stderr_tail().last().unwrap(), "complaint");
}

#[tokio::test]
async fn the_longest_line_is_a_reply() {
    let long = "read -r view; head -c 1048576 /dev/zero | tr '\\0' x; echo; read -r v";
    let program = Program::shell(&format!("{HELLO}{long}"));
    let mut agent = program.start();
    assert_eq!(ask(&mut agent, 0).await.unwrap(), vec![b'x'; 1_048_576]);
}

#[tokio::test]
async fn a_program_that_does_not_end_is_killed() {
    let stubborn = "read -r view; echo reply; while :; do sleep 60; done";
    let program = Program::shell(&format!("{HELLO}{stubborn}"));
    let mut agent = program.start_with(Deadlines { end: Duration::from_millis(200), ..PATIENT });
    assert_eq!(text(ask(&mut agent, 0).await), "reply");
    let pid = agent.pid();
    assert!(exists(pid));
    assert_eq!(agent.end().await, Ending::Killed);
    assert!(!exists(pid));
    let failure = ask(&mut agent, 1).await.unwrap_err();
    assert_eq!(failure.reason, EndReason::AgentExited);
    assert_eq!(agent.end().await, Ending::Killed);
}

#[tokio::test]
async fn an_end_while_it_floods_both_outputs_is_heard() {
    let noisy = "read -r view; echo reply; yes | head -c 1000000; yes | head -c 1000000 >&2; read -r end; exit 5";
    let program = Program::shell(&format!("{HELLO}{noisy}"));
    let mut agent = program.start();
    assert_eq!(text(ask(&mut agent, 0).await), "reply");
    let Ending::Exited(status) = agent.end().await else { panic!("it ends by itself") };
    assert_eq!(status.code(), Some(5));
}

#[tokio::test]
async fn a_program_that_was_never_asked_ends_too() {
    let program = Program::shell("read -r hello; read -r end; exit 3");
    let mut agent = program.start();
    let Ending::Exited(status) = agent.end().await else { panic!("it ends by itself") };
    assert_eq!(status.code(), Some(3));
}

#[test]
fn outside_a_runtime_and_without_its_pipes_it_does_not_start() {
    let program = Program::shell(HELLO);
    assert!(matches!(Exec::start(program.child(), PATIENT), Err(StartError::NoRuntime)));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let mut child = program.child();
    drop(child.stdin.take());
    assert!(matches!(Exec::start(child, PATIENT), Err(StartError::PipeTaken)));
    assert!(Exec::start(program.child(), PATIENT).is_ok());
}
