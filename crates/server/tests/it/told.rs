//! What a host is told, in words that name nothing of ours.

use portcullis_domain::approval::Answer;
use portcullis_mcp::{HostCall, Served as _};
use portcullis_server::proxy::{Proxy, ProxyError, Settings};

use crate::world::{World, host_call, made, make, object, word};

fn status(proxy: &Proxy) -> String {
    let call = HostCall { arguments: object("{}"), ..host_call("gate_status", 0) };
    let reply = made(proxy, call);
    assert_eq!((word(&reply), reply.failed), ("STATUS", false));
    reply.text
}

#[test]
fn what_the_rules_deny_and_what_cannot_be_read_is_not_made() {
    let world = World::new();
    let proxy = world.proxy(1);
    let denied = make(&proxy, "burn", 1);
    assert_eq!((word(&denied), denied.failed), ("DENIED", true));
    assert!(denied.text.contains("class_denied"), "{}", denied.text);
    let mut call = host_call("write", 1);
    call.arguments = object(r#"{"n":"one","secret":"s3cr3t"}"#);
    let invalid = made(&proxy, call);
    assert_eq!((word(&invalid), invalid.failed), ("INVALID", true));
    assert!(!invalid.text.contains("s3cr3t"), "{}", invalid.text);
    assert_eq!(word(&make(&proxy, "no_such_tool", 1)), "INVALID");
    assert_eq!((world.tools.effects("burn"), world.tools.effects("write")), (0, 0));
    // Neither is in the way of a call that fits.
    assert_eq!(word(&make(&proxy, "write", 1)), "-");
}

#[test]
fn nothing_of_ours_is_named_to_a_host() {
    let world = World::new();
    let proxy = world.proxy(1);
    let mut told = vec![proxy.instructions()];
    told.extend(proxy.tools().into_iter().map(|tool| tool.description));
    told.extend(
        [("send", 1), ("burn", 1), ("look", 1)].map(|(tool, n)| make(&proxy, tool, n).text),
    );
    told.push(status(&proxy));
    let question = world.question();
    for text in told {
        for ours in ["ortcullis", "run_", "q_", "thread_", "sqlite", "portcullis.db"] {
            assert!(!text.contains(ours), "{ours} in {text}");
        }
        assert!(!text.contains(&question.id.to_string()), "{text}");
    }
}

#[test]
fn the_status_tool_tells_what_waits_and_what_became_of_it_and_writes_nothing() {
    let world = World::new();
    let proxy = world.proxy(1);
    assert!(status(&proxy).contains("no call"), "{}", status(&proxy));
    make(&proxy, "send", 1);
    make(&proxy, "send", 2);
    make(&proxy, "write", 3);
    let questions = world.open_questions();
    world.answer(&questions[0], Answer::Reject, Some("never"));
    world.answer(&questions[1], Answer::Approve, None);
    let runs = world.runs().len();
    let told = status(&proxy);
    let lines: Vec<_> = told.lines().skip(1).collect();
    assert_eq!(lines.len(), 3, "{told}");
    assert!(lines[0].contains("write") && lines[0].contains("succeeded"), "{told}");
    assert!(lines[1].contains(r#"{"n":2}"#) && lines[1].contains("is approved"), "{told}");
    assert!(lines[2].contains("rejected by a person: never"), "{told}");
    assert_eq!(world.runs().len(), runs);
    assert_eq!(world.tools.effects("send"), 0);
    let other = world.proxy_with(1, Settings { thread: None, ..world.settings() });
    assert!(status(&other).contains("no call"), "another conversation");
    assert_eq!(word(&make(&proxy, "gate_status", 1)), "INVALID");
}

#[test]
fn a_name_that_means_two_tools_opens_no_door() {
    let world = World::new();
    let named = |name: &str| Settings { status_tool: Some(name.to_owned()), ..world.settings() };
    assert_eq!(world.try_proxy(named("look")).err(), Some(ProxyError::Repeated("look".to_owned())));
    assert!(matches!(world.try_proxy(named("a b")).err(), Some(ProxyError::Name(_))));
    assert!(world.try_proxy(named("other")).is_ok());
}
