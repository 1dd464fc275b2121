//! Programs that fail, each in its own way, and the reason that each ends in.

use std::time::{Duration, Instant};

use portcullis_agents::Deadlines;
use portcullis_domain::run::EndReason;

use crate::programs::{HELLO, PATIENT, Program, ask, exists, text};

const SHORT: Deadlines = Deadlines {
    hello: Duration::from_millis(400),
    reply: Duration::from_millis(400),
    end: Duration::from_millis(400),
};

/// Runs the program to its first failure, at request `good`, and checks how it ends.
#[track_caller]
fn check(script: &str, deadlines: Deadlines, good: u64, reason: EndReason, sentence: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let program = Program::shell(script);
        let mut agent = program.start_with(deadlines);
        let pid = agent.pid();
        for request in 0..good {
            ask(&mut agent, request).await.unwrap();
        }
        let failure = ask(&mut agent, good).await.unwrap_err();
        assert_eq!(failure.reason, reason, "{script}: {failure}");
        assert_eq!(failure.message, sentence, "{script}");
        assert!(!exists(pid), "it is dead and collected");
        assert_eq!(ask(&mut agent, good + 1).await.unwrap_err(), failure, "a failure is for good");
    });
}

#[test]
fn a_crash_is_named_with_its_status_and_its_last_words() {
    check(
        "exit 3",
        PATIENT,
        0,
        EndReason::AgentExited,
        "the agent's program ended before its hello (exit status: 3)",
    );
    check(
        &format!("{HELLO}printf 'Traceback\\n  \\033[31mline 1\\n' >&2; read -r view; exit 4"),
        PATIENT,
        0,
        EndReason::AgentExited,
        "the agent's program ended before its reply to request 0 (exit status: 4); it last wrote to standard error: \
         Traceback /   \\x1B[31mline 1",
    );
    check(
        &format!(
            "{HELLO}read -r view; echo one; read -r view; printf '{{\"request\":1'; kill -9 $$"
        ),
        PATIENT,
        1,
        EndReason::AgentExited,
        "the agent's program ended in the middle of its reply to request 1 (signal: 9 (SIGKILL))",
    );
}

#[test]
fn a_program_that_only_closes_its_output_is_ended() {
    check(
        &format!("{HELLO}read -r view; exec >&-; while :; do sleep 60; done"),
        PATIENT,
        0,
        EndReason::AgentExited,
        "the agent's program ended before its reply to request 0 (it closed its output)",
    );
}

#[test]
fn the_end_of_a_program_is_seen_while_a_descendant_holds_its_output() {
    // In its session, and out of it, where nobody finds it. It would keep the pipe open past all patience.
    for descendant in ["sleep 90 &", "setsid sleep 90 & echo $! > left"] {
        let begun = Instant::now();
        let script = format!("{HELLO}read -r view; {descendant}\nprintf partial; exit 5");
        let program = Program::shell(&script);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let failure = runtime.block_on(async { ask(&mut program.start(), 0).await.unwrap_err() });
        assert_eq!(failure.reason, EndReason::AgentExited, "{failure}");
        assert_eq!(
            failure.message,
            "the agent's program ended in the middle of its reply to request 0 (exit status: 5)"
        );
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        end_left_behind(&program);
    }
}

/// Kills the process that a script wrote the number of, if it did.
fn end_left_behind(program: &Program) {
    let Ok(left) = std::fs::read_to_string(program.folder().join("left")) else { return };
    let mut kill = std::process::Command::new("kill");
    // It may have been found after all.
    let _ = kill.args(["-9", left.trim()]).output().unwrap();
}

/// Waits for the end of a program without giving the runtime a turn.
fn dead(pid: u32) {
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    for _ in 0..6_000 {
        if stat().contains(") Z ") {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the program never ended");
}

/// The future on a machine that stalls before each of its turns.
async fn stalled<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let turn = std::future::poll_fn(|task| {
        std::thread::sleep(Duration::from_millis(300));
        future.as_mut().poll(task)
    });
    turn.await
}

/// The program writes its reply and ends while nobody looks, and then the machine stalls again and again. The runtime
/// has not heard of the reply when the end is seen, and a descendant holds the pipe open.
#[test]
fn the_last_reply_of_a_program_that_has_ended_counts_however_slow_the_machine_is() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let wait = "touch asked; while [ ! -e go ]; do sleep 0.01; done";
        let reply = "head -c 60000 /dev/zero | tr '\\0' x; echo";
        let script = format!("{HELLO}read -r view; {wait}; sleep 90 & {reply}; exit 5");
        let program = Program::shell(&script);
        let mut agent = program.start();
        tokio::select! {
            early = ask(&mut agent, 0) => panic!("{early:?}"),
            _ = crate::programs::written(&program, "asked") => {}
        }
        std::fs::write(program.folder().join("go"), "").unwrap();
        dead(agent.pid());
        assert_eq!(stalled(ask(&mut agent, 0)).await.unwrap().len(), 60_000);
        let failure = ask(&mut agent, 1).await.unwrap_err();
        assert_eq!(failure.reason, EndReason::AgentExited, "{failure}");
    });
}

/// The control: what a descendant goes on writing is nobody's reply, and holds nothing up.
#[test]
fn a_descendant_that_goes_on_writing_gives_no_last_reply() {
    check(
        &format!("{HELLO}read -r view; printf x; while :; do printf x; sleep 0.01; done & exit 5"),
        PATIENT,
        0,
        EndReason::AgentExited,
        "the agent's program ended in the middle of its reply to request 0 (exit status: 5)",
    );
}

#[test]
fn the_last_reply_of_a_program_that_has_ended_counts() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let script = format!(
            "{HELLO}read -r view; sleep 90 & head -c 300000 /dev/zero | tr '\\0' x; echo; exit 5"
        );
        let program = Program::shell(&script);
        let mut agent = program.start();
        assert_eq!(ask(&mut agent, 0).await.unwrap().len(), 300_000);
        let failure = ask(&mut agent, 1).await.unwrap_err();
        assert_eq!(failure.reason, EndReason::AgentExited, "{failure}");
    });
}

#[test]
fn silence_is_named() {
    check(
        "while :; do sleep 60; done",
        SHORT,
        0,
        EndReason::AgentSilent,
        "the agent's program did not give its hello within 400 ms",
    );
    let patient_hello = Deadlines { hello: PATIENT.hello, ..SHORT };
    check(
        &format!("{HELLO}read -r view; printf partial; while :; do sleep 60; done"),
        patient_hello,
        0,
        EndReason::AgentSilent,
        "the agent's program did not give its reply to request 0 within 400 ms",
    );
}

#[test]
fn a_program_that_never_reads_and_one_that_only_complains_are_silent() {
    let patient_hello = Deadlines { hello: PATIENT.hello, ..SHORT };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for script in ["while :; do sleep 60; done", "yes >&2"] {
            let program = Program::shell(&format!("{HELLO}{script}"));
            let mut agent = program.start_with(patient_hello);
            let mut large = crate::programs::view(0);
            large.goal = "x".repeat(1_000_000);
            let started = Instant::now();
            let failure =
                portcullis_domain::ports::Agent::propose(&mut agent, large).await.unwrap_err();
            assert_eq!(failure.reason, EndReason::AgentSilent, "{failure}");
            assert!(started.elapsed() < Duration::from_secs(30));
        }
    });
}

#[test]
fn an_endless_line_and_one_byte_too_many_are_floods() {
    let endless =
        "the agent's program wrote a line of more than 1048576 bytes as its reply to request 0";
    for script in [
        "read -r view; exec cat /dev/zero",
        "read -r view; head -c 1048577 /dev/zero | tr '\\0' x; echo; read -r v",
    ] {
        check(&format!("{HELLO}{script}"), PATIENT, 0, EndReason::AgentFlooded, endless);
    }
    check(
        "exec cat /dev/zero",
        PATIENT,
        0,
        EndReason::AgentFlooded,
        "the agent's program wrote a line of more than 1048576 bytes as its hello",
    );
}

#[test]
fn endless_lines_and_a_second_line_are_floods() {
    for script in
        ["read -r view; exec yes", "read -r view; printf 'one\\ntwo\\n'; read -r view; read -r v"]
    {
        check(
            &format!("{HELLO}{script}"),
            PATIENT,
            1,
            EndReason::AgentFlooded,
            "the agent's program wrote more than it was asked for, before the next request",
        );
    }
}

#[tokio::test]
async fn a_line_that_comes_late_and_unasked_is_a_flood() {
    let program = Program::shell(&format!(
        "{HELLO}read -r view; echo one; while [ ! -e go ]; do sleep 0.01; done; echo two; mv go gone; read -r v"
    ));
    let mut agent = program.start();
    assert_eq!(text(ask(&mut agent, 0).await), "one");
    std::fs::write(program.folder().join("go"), "").unwrap();
    crate::programs::written(&program, "gone").await;
    assert_eq!(ask(&mut agent, 1).await.unwrap_err().reason, EndReason::AgentFlooded);
}

#[tokio::test]
async fn lines_before_a_view_was_read_are_not_gathered() {
    // One byte of the view shows that it is on its way; lines before that would be ones that nobody asked for.
    let script =
        "dd bs=1 count=1 >/dev/null 2>&1; yes | head -c 4000000; mv agent.sh gone; sleep 600";
    let program = Program::shell(&format!("{HELLO}{script}"));
    let mut agent = program.start_with(Deadlines { reply: Duration::from_secs(1), ..PATIENT });
    let mut large = crate::programs::view(0);
    large.goal = "x".repeat(1_000_000);
    let failure = portcullis_domain::ports::Agent::propose(&mut agent, large).await.unwrap_err();
    // It never read the view, so none of its lines is an answer, and it is stuck behind the first.
    assert_eq!(failure.reason, EndReason::AgentSilent, "{failure}");
    assert!(!program.folder().join("gone").exists());
}

#[test]
fn a_hello_that_is_none_and_one_of_another_version() {
    check(
        "echo 'Welcome to the agent!'; read -r hello; read -r v",
        PATIENT,
        0,
        EndReason::AgentProtocol,
        "the agent's program does not speak the agent protocol: its first line is not a hello: `Welcome to the agent!`",
    );
    check(
        "exec yes '{\"type\":\"hello\",\"version\":2}'",
        PATIENT,
        0,
        EndReason::AgentProtocol,
        "the agent's program does not speak the agent protocol: it answers in version 2, and version 1 was offered",
    );
}

#[tokio::test]
async fn goal_and_tools_that_fit_no_line_are_the_gates_own_error() {
    let program = Program::shell(&format!("{HELLO}read -r view; echo one"));
    let mut agent = program.start();
    let mut huge = crate::programs::view(0);
    huge.goal = "x".repeat(portcullis_agents::MAX_VIEW_BYTES);
    let failure = portcullis_domain::ports::Agent::propose(&mut agent, huge).await.unwrap_err();
    assert_eq!(failure.reason, EndReason::AgentError);
}
