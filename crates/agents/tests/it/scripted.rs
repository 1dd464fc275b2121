//! The scripted agent behind the port.

use portcullis_agents::Scripted;
use portcullis_domain::ports::Agent;
use portcullis_domain::proposal::{Ask, Proposal};
use portcullis_domain::run::EndReason;

use crate::programs::view;

const SCRIPT: &[u8] = br#"
{"kind":"tool_call","tool":"files.list"}

{"kind":"tool_call","tool":"files.move","arguments":{"from":"a","to":"b"},"reason":"tidy"}
not a proposal
{"kind":"complete","result":{"moved":1}}
"#;

#[tokio::test]
async fn a_script_is_played_and_its_proposals_are_readable() {
    let mut agent: Box<dyn Agent> = Box::new(Scripted::read(SCRIPT).unwrap());
    for (request, tool) in [(0, "files.list"), (1, "files.move")] {
        let raw = agent.propose(view(request)).await.unwrap();
        let proposal = Proposal::read(&raw, Some(request)).unwrap();
        assert!(matches!(proposal.ask, Ask::ToolCall { tool: named, .. } if named == tool));
    }
    assert_eq!(agent.propose(view(2)).await.unwrap(), b"not a proposal");
    let raw = agent.propose(view(3)).await.unwrap();
    assert!(matches!(Proposal::read(&raw, Some(3)).unwrap().ask, Ask::Complete { .. }));
    let end = agent.propose(view(4)).await.unwrap_err();
    assert_eq!(end.reason, EndReason::AgentExited);
    assert_eq!(end.message, "the script ends after 4 proposals, before request 4");
}

#[tokio::test]
async fn a_run_that_is_taken_up_again_goes_on_where_it_stopped() {
    let mut fresh = Scripted::read(SCRIPT).unwrap();
    let raw = fresh.propose(view(3)).await.unwrap();
    assert_eq!(raw, br#"{"request":3,"kind":"complete","result":{"moved":1}}"#);
    let raw = fresh.propose(view(3)).await.unwrap();
    assert_eq!(raw, br#"{"request":3,"kind":"complete","result":{"moved":1}}"#);
}
