//! Where requests go: the address that was judged, and no other.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use portcullis_domain::ports::Disposition;
use portcullis_egress::{AddressClass, Credentials, EgressRules, Fault, HostRule, Reach, Sent};

use crate::server::{Scripted, Server, get, named, ok};

/// Rules for one name that may lead inside, at the port of a server.
fn rules(name: &str, reach: Reach, port: u16) -> EgressRules {
    let rule = HostRule::new(name, reach).expect("a rule").ports([port]);
    EgressRules::closed().host(rule).expect("one rule")
}

#[tokio::test]
async fn a_name_that_changes_its_answer_is_dialled_where_it_was_judged() {
    let judged = Server::answering(ok("text/plain", "judged")).await;
    let trap = Server::beside(judged.at, "127.0.0.2", ok("text/plain", "trap")).await;
    let url = format!("http://models.test:{}/", judged.at.port());
    // The first answer is where the rule wants it; every later one is the trap.
    let names = Scripted::new(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let rules = rules("models.test", Reach::Private, judged.at.port());
    let egress = named(rules, Credentials::none(), Arc::clone(&names));
    let answer = egress.send(get(&url)).await.expect("an answer");
    assert_eq!(answer.body, b"judged");
    assert_eq!(names.asked.load(Ordering::SeqCst), 1, "asked once for one connection");
    assert_eq!((judged.connections(), trap.connections()), (1, 0));
    assert_eq!(
        judged.seen()[0].header("host"),
        Some(format!("models.test:{}", judged.at.port()).as_str())
    );
    // The trap is there for whoever does ask again: the next connection is judged and dialled anew.
    assert_eq!(egress.send(get(&url)).await.expect("an answer").body, b"trap");
    assert_eq!(names.asked.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_name_that_turns_to_a_closed_place_is_refused_the_next_time() {
    let server = Server::answering(ok("text/plain", "fine")).await;
    let url = format!("http://models.test:{}/", server.at.port());
    let names = Scripted::new(&[&["127.0.0.1"], &["169.254.169.254"]]);
    let rules = rules("models.test", Reach::Private, server.at.port());
    let egress = named(rules, Credentials::none(), names);
    assert!(egress.send(get(&url)).await.is_ok());
    let error = egress.send(get(&url)).await.expect_err("refused");
    let host = "models.test".to_owned();
    assert_eq!(error.fault, Fault::Address { host, class: AddressClass::LinkLocal });
    assert_eq!((error.sent, error.disposition()), (Sent::Nothing, Disposition::Refuse));
}

#[tokio::test]
async fn a_public_name_does_not_lead_inside() {
    let server = Server::answering(ok("text/plain", "inside")).await;
    let port = server.at.port();
    let url = format!("http://www.example.com:{port}/");
    for answer in [
        &["127.0.0.1"][..],
        &["1.1.1.1", "127.0.0.1"],
        &["::1"],
        &["::ffff:127.0.0.1"],
        &["10.0.0.1"],
    ] {
        let names = Scripted::new(&[answer]);
        let egress = named(EgressRules::closed().public(), Credentials::none(), names);
        let error = egress.send(get(&url)).await.expect_err("refused");
        assert!(matches!(error.fault, Fault::Address { .. }), "{answer:?}: {error:?}");
        assert_eq!(error.sent, Sent::Nothing);
    }
    assert_eq!(server.connections(), 0);
    // With a rule that says so, the same name and answer lead there.
    let names = Scripted::new(&[&["127.0.0.1"]]);
    let egress = named(rules("www.example.com", Reach::Private, port), Credentials::none(), names);
    assert_eq!(egress.send(get(&url)).await.expect("an answer").body, b"inside");
}

#[tokio::test]
async fn a_name_that_no_rule_admits_is_never_asked_for() {
    let names = Scripted::new(&[&["127.0.0.1"]]);
    let egress = named(EgressRules::closed().public(), Credentials::none(), Arc::clone(&names));
    for url in ["http://metadata.google.internal/", "http://printer/", "http://x.local/"] {
        let error = egress.send(get(url)).await.expect_err("refused");
        assert!(matches!(error.fault, Fault::NotAdmitted { .. }), "{error:?}");
    }
    assert_eq!(names.asked.load(Ordering::SeqCst), 0, "no name leaves by way of a question");
    let _ = egress.send(get("http://www.example.com/")).await;
    assert_eq!(names.asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn literal_addresses_are_judged_though_no_resolver_sees_them() {
    let server = Server::answering(ok("text/plain", "inside")).await;
    let names = Scripted::new(&[&["1.1.1.1"]]);
    let egress = named(EgressRules::closed().public(), Credentials::none(), Arc::clone(&names));
    let port = server.at.port();
    for host in ["127.0.0.1", "[::1]", "[::ffff:7f00:1]", "0.0.0.0", "localhost"] {
        let error = egress.send(get(&format!("http://{host}:{port}/"))).await.expect_err(host);
        assert_eq!(error.sent, Sent::Nothing, "{host}");
    }
    assert_eq!(server.connections(), 0);
    let rules = EgressRules::closed().public().loopback_port(port);
    let egress = named(rules, Credentials::none(), Arc::clone(&names));
    for host in ["127.0.0.1", "localhost"] {
        let answer = egress.send(get(&format!("http://{host}:{port}/"))).await;
        assert_eq!(answer.expect(host).body, b"inside");
    }
    assert_eq!(names.asked.load(Ordering::SeqCst), 0, "nobody is asked where this machine is");
}

#[tokio::test]
async fn a_name_that_leads_nowhere_is_named() {
    let names = Scripted::new(&[]);
    let egress = named(EgressRules::closed().public(), Credentials::none(), names);
    let error = egress.send(get("https://www.example.com/p?q")).await.expect_err("nowhere");
    assert_eq!(error.fault, Fault::Unresolved { host: "www.example.com".to_owned() });
    assert_eq!((error.sent, error.disposition()), (Sent::Nothing, Disposition::Retry));
}
