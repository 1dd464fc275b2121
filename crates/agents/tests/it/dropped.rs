//! Futures that are dropped half-way, and what is left of a program whose agent is dropped.

use std::task::{Context, Waker};

use portcullis_domain::ports::Agent as _;
use portcullis_domain::run::EndReason;

use crate::programs::{HELLO, Program, ask, exists, text, view, written};

/// Answers each view with its request id, once a file of that name is there.
const WAITER: &str = r#"
while read -r view; do
    request=${view##*\"request\":}
    request=${request%%,*}
    echo "$request" > "asked.tmp"; mv asked.tmp "asked$request"
    while [ ! -e "go$request" ]; do sleep 0.01; done
    echo "reply $request"
done
"#;

#[tokio::test]
async fn a_dropped_request_is_taken_up_again() {
    let program = Program::shell(&format!("{HELLO}{WAITER}"));
    let mut agent = program.start();
    // Dropped while it waits for the hello, again and again, then while it waits for the reply.
    for request in 0..3 {
        while !program.folder().join(format!("asked{request}")).exists() {
            tokio::select! {
                biased;
                _ = agent.propose(view(request)) => panic!("nothing can be answered yet"),
                () = tokio::time::sleep(std::time::Duration::from_millis(3)) => {}
            }
        }
        std::fs::write(program.folder().join(format!("go{request}")), "").unwrap();
        assert_eq!(text(ask(&mut agent, request).await), format!("reply {request}"));
    }
}

#[tokio::test]
async fn dropped_after_any_number_of_polls_it_stays_in_step() {
    for polls in 0..12 {
        let program = Program::shell(&format!(
            "{HELLO}while read -r view; do r=${{view##*\\\"request\\\":}}; echo \"reply ${{r%%,*}}\"; done"
        ));
        let mut agent = program.start();
        for request in 0..3 {
            let mut early = None;
            {
                let mut future = agent.propose(view(request));
                for _ in 0..polls {
                    let poll = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                    if let std::task::Poll::Ready(reply) = poll {
                        early = Some(reply);
                        break;
                    }
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
            }
            let reply = match early {
                Some(reply) => reply,
                None => ask(&mut agent, request).await,
            };
            assert_eq!(text(reply), format!("reply {request}"), "after {polls} polls");
        }
    }
}

#[tokio::test]
async fn a_reply_that_nobody_waits_for_any_more_is_not_taken_for_the_next() {
    let program = Program::shell(&format!("{HELLO}{WAITER}"));
    let mut agent = program.start();
    tokio::select! {
        _ = agent.propose(view(0)) => panic!("nothing can be answered yet"),
        _ = written(&program, "asked0") => {}
    }
    for request in 0..2 {
        std::fs::write(program.folder().join(format!("go{request}")), "").unwrap();
    }
    assert_eq!(text(ask(&mut agent, 1).await), "reply 1");
}

#[tokio::test]
async fn a_failure_whose_caller_left_keeps_its_reason() {
    let program =
        Program::shell("exec >&-; echo $$ > pid.tmp; mv pid.tmp pid; while :; do sleep 60; done");
    let mut agent = program.start();
    written(&program, "pid").await;
    // It closed its output, and is given a second to end; nobody stays to see it.
    tokio::select! {
        _ = agent.propose(view(0)) => panic!("it lingers"),
        () = tokio::time::sleep(std::time::Duration::from_millis(200)) => {}
    }
    let failure = ask(&mut agent, 0).await.unwrap_err();
    assert_eq!(failure.reason, EndReason::AgentExited);
    assert_eq!(
        failure.message,
        "the agent's program ended before its hello (it closed its output)"
    );
}

#[tokio::test]
async fn a_dropped_agent_leaves_no_process_behind() {
    let family = "sleep 600 & echo $! > child.tmp; mv child.tmp child; read -r view; while :; do sleep 600; done";
    let program = Program::shell(&format!("{HELLO}{family}"));
    let mut agent = program.start();
    tokio::select! {
        _ = agent.propose(view(0)) => panic!("it never answers"),
        _ = written(&program, "child") => {}
    }
    let pid = agent.pid();
    let child: u32 = written(&program, "child").await.trim().parse().unwrap();
    assert!(exists(pid) && exists(child));
    drop(agent);
    assert!(!exists(pid), "neither running nor a zombie");
    // Its child was killed with it; whoever inherited it collects it.
    for _ in 0..6_000 {
        if !runs(child) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the child of the agent's program still runs");
}

fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}
