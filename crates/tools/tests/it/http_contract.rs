//! The contract of every tool source, over a site that really changes, and what each spec says.

use std::io::Write as _;
use std::sync::{Arc, Mutex};

use portcullis_canon::{Digest, Kind};
use portcullis_domain::ports::ToolSource as _;
use portcullis_domain::tool::EffectClass;
use portcullis_egress::Method;
use portcullis_testkit::tool_contract::{Example, Subject, assert_kept};
use portcullis_tools::HttpPlace;

use crate::web::{ALL, Site, Web, answer, rules};

/// A site that keeps all that it is sent by methods that change something, and a second one that keeps keys.
struct Changing {
    plain: Site,
    keyed: Site,
    kept: Arc<Mutex<Vec<u8>>>,
}

impl Changing {
    fn new() -> Self {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let (plain, keyed) = (Self::site(&kept), Self::site(&kept));
        Self { plain, keyed, kept }
    }

    fn site(kept: &Arc<Mutex<Vec<u8>>>) -> Site {
        let kept = Arc::clone(kept);
        Site::acting(move |request, stream| {
            if !request.line().starts_with("GET") && !request.line().starts_with("HEAD") {
                let mut kept = kept.lock().unwrap();
                kept.extend_from_slice(request.line().as_bytes());
                kept.extend_from_slice(&request.body);
            }
            let _ = stream.write_all(&answer("200 OK", "content-type: text/plain\r\n", "done"));
        })
    }

    fn places(&self) -> [HttpPlace; 2] {
        let keyed = self.keyed.place().methods([Method::Post]);
        [self.plain.place().methods(ALL), keyed.keeps_keys("idempotency-key").unwrap()]
    }
}

#[test]
fn the_contract_is_kept() {
    let site = Changing::new();
    // The client needs a runtime, on which the contract's own waiting does not run.
    let runtime = Web::of(site.places()).runtime;
    let _inside = runtime.enter();
    let (plain, keyed) = (site.plain.origin() + "/a?b=c", site.keyed.origin() + "/");
    let key = "0123456789abcdef".repeat(4);
    let fresh = || {
        let Web { http, runtime } =
            Web::under(rules(site.places()), portcullis_egress::Credentials::none());
        runtime.shutdown_background();
        let kept = Arc::clone(&site.kept);
        Subject {
            source: Box::new(http),
            examples: vec![
                Example::new("http.read", [("url", plain.as_str())]),
                Example::new(
                    "http.send",
                    [("url", plain.as_str()), ("method", "PUT"), ("body", "x")],
                ),
                Example::new(
                    "http.send_keyed",
                    [("url", keyed.as_str()), ("method", "POST"), ("idempotency_key", &key)],
                ),
            ],
            state: Box::new(move || Digest::of(Kind::Content, &kept.lock().unwrap())),
        }
    };
    assert_kept(&fresh);
    assert!(
        !site.kept.lock().unwrap().is_empty(),
        "the site was changed, so that it could be seen"
    );
}

#[test]
fn each_spec_says_what_the_issue_asks_for() {
    let site = Changing::new();
    let specs = Web::of(site.places()).http.specs();
    let said: Vec<_> = specs
        .iter()
        .map(|spec| {
            (spec.name.as_str(), spec.effect, spec.source, spec.sink, spec.authority.join(" "))
        })
        .collect();
    let read = ("http.read", EffectClass::ReadOnly, true, true, "/url".to_owned());
    let send = |name| (name, EffectClass::RemoteMutation, true, true, "/url /body".to_owned());
    assert_eq!(said, [read, send("http.send"), send("http.send_keyed")]);
    let keys: Vec<_> = specs.iter().map(|spec| spec.idempotency_key.as_deref()).collect();
    assert_eq!(keys, [None, None, Some("idempotency_key")]);
    // What a person's answer binds: each place with its methods, and no other tool's.
    let (plain, keyed) = (site.plain.origin(), site.keyed.origin());
    let target = specs[1].target.as_deref().unwrap();
    assert!(target.contains(&plain) && target.contains("DELETE") && !target.contains(&keyed));
    assert!(specs.iter().all(|spec| spec.deadline_ms == 6_000));
}

#[test]
fn a_tool_without_a_place_is_not_there() {
    let site = Site::answering("");
    let named = |place: HttpPlace| -> Vec<String> {
        Web::of([place]).http.specs().into_iter().map(|spec| spec.name).collect()
    };
    assert_eq!(named(site.place()), ["http.read"]);
    assert_eq!(named(site.place().methods([Method::Delete])), ["http.send"]);
    let keyed = site.place().methods([Method::Post]).keeps_keys("x-key").unwrap();
    assert_eq!(named(keyed), ["http.send_keyed"]);
}
