//! The example that `docs/own-agent.md` explains runs, asks before it sends, and leaves an intact record.

#[path = "../../examples/own_agent.rs"]
mod own_agent;

use portcullis::domain::run::EndReason;

#[tokio::test]
async fn a_host_with_its_own_loop_sends_after_a_yes_and_only_then() {
    let told = own_agent::story().await.unwrap();
    assert_eq!(told.ended, Some(EndReason::GoalCompleted));
    assert_eq!(told.sent_before_yes, 0);
    assert_eq!(told.sent, ["ann@example.org"]);
    assert!(told.intact);
}
