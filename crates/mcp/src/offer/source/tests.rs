//! Offers of a server that a test plays: what is asked of it, and what is not.

use std::collections::BTreeSet;
use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicU64, Ordering};

use portcullis_domain::time::Timestamp;
use portcullis_testkit::block_on;
use portcullis_testkit::permit::permit_for;
use portcullis_testkit::ports::ManualClock;

use super::*;
use crate::listing::Listing;
use crate::progress::Told;
use crate::session::{Answer, CallFailure, Leave};

const NOTE: &str = r#"{"uri":"n://a/1","name":"One"}"#;
const FORM: &str = r#"{"uriTemplate":"n://a/{id}","name":"Each"}"#;
const SUM: &str = r#"{"name":"sum","description":"Sums up.","arguments":[{"name":"of"}]}"#;

/// A server whose offers and answers a test decides, and which keeps what it was asked.
struct Fake {
    offers: StdMutex<Vec<(OfferKind, String)>>,
    changes: AtomicU64,
    fails: StdMutex<bool>,
    asked: StdMutex<Vec<String>>,
    gives: StdMutex<String>,
}

impl Fake {
    fn new() -> Arc<Self> {
        let offers =
            [(OfferKind::Resource, NOTE), (OfferKind::Template, FORM), (OfferKind::Prompt, SUM)];
        Arc::new(Self {
            offers: StdMutex::new(offers.map(|(kind, text)| (kind, text.to_owned())).into()),
            changes: AtomicU64::new(0),
            fails: StdMutex::new(false),
            asked: StdMutex::default(),
            gives: StdMutex::default(),
        })
    }

    fn change(&self, from: &str, to: &str) {
        for (_, text) in self.offers.lock().unwrap().iter_mut() {
            *text = text.replace(from, to);
        }
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    fn gives(&self, text: &str) {
        *self.gives.lock().unwrap() = text.to_owned();
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    fn all(&self) -> Vec<Offer> {
        let offers = self.offers.lock().unwrap();
        let read = |(kind, text): &(OfferKind, String)| {
            Offer::read(*kind, &parse(text.as_bytes(), &Limits::BARE).unwrap()).unwrap()
        };
        offers.iter().map(read).collect()
    }
}

impl Session for Fake {
    fn list(&self) -> BoxFuture<'_, Result<Listing, SessionError>> {
        Box::pin(async { Ok(Listing::new(Vec::new())?) })
    }

    fn call<'a>(
        &'a self,
        _: &'a str,
        _: Object,
        _: Leave,
        _: Told<'a>,
    ) -> BoxFuture<'a, Result<Answer, CallFailure>> {
        panic!("no tool is called here")
    }

    fn offers(&self, kind: OfferKind) -> BoxFuture<'_, Result<Vec<Offer>, SessionError>> {
        Box::pin(async move {
            if *self.fails.lock().unwrap() {
                return Err(SessionError::Closed("listing its prompts"));
            }
            Ok(self.all().into_iter().filter(|offer| offer.kind() == kind).collect())
        })
    }

    fn ask<'a>(
        &'a self,
        asks: Asks,
        params: Object,
        _: Duration,
        _: Told<'a>,
    ) -> BoxFuture<'a, Result<Value, CallFailure>> {
        Box::pin(async move {
            let params = Value::Object(params).to_canonical_string();
            self.asked.lock().unwrap().push(format!("{} {params}", asks.method()));
            let gives = self.gives.lock().unwrap().clone();
            parse(gives.as_bytes(), &Limits::ENVELOPE)
                .map_err(|_| CallFailure::Failed("no such thing".to_owned()))
        })
    }

    fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }
}

fn rules() -> OfferRules {
    OfferRules {
        resources: Some(vec!["n://a/*".parse().unwrap()]),
        prompts: Some(BTreeSet::from(["sum".to_owned()])),
        completions: true,
        ..OfferRules::default()
    }
}

fn opened(fake: &Arc<Fake>, rules: &OfferRules) -> McpOffers {
    let server = ServerName::new("notes").unwrap();
    let listing = Listing::new(Vec::new()).unwrap();
    let manifest = Manifest::pin(server.clone(), &listing, Timestamp::from_micros(0));
    let manifest = manifest.with_offers(fake.all());
    let terms = OfferTerms {
        manifest: &manifest,
        rules,
        place: "here",
        deadline: Duration::from_secs(60),
        max_result_bytes: 4_096,
    };
    let session = Arc::clone(fake) as Arc<dyn Session>;
    let clock = Arc::new(ManualClock::default());
    block_on(McpOffers::open(&server, session, &terms, clock)).unwrap().0
}

fn call(offers: &McpOffers, tool: &str, arguments: &str) -> Result<ToolOutput, ToolFailure> {
    let Value::Object(arguments) = parse(arguments.as_bytes(), &Limits::BARE).unwrap() else {
        panic!("arguments are an object")
    };
    block_on(offers.call(permit_for(tool, arguments)))
}

#[track_caller]
fn not_asked(fake: &Fake, outcome: Result<ToolOutput, ToolFailure>, words: &str) {
    let Err(ToolFailure::NothingHappened { message }) = outcome else { panic!("{outcome:?}") };
    assert!(message.contains(words), "{message}");
    assert_eq!(fake.asked(), 0);
}

const READ: &str = "notes/resources/read";
const GET: &str = "notes/prompts/get";
const COMPLETE: &str = "notes/completion/complete";

#[test]
fn a_resource_is_read_and_labelled_with_its_own_name() {
    let fake = Fake::new();
    let offers = opened(&fake, &rules());
    fake.gives(r#"{"contents":[{"uri":"n://a/7","text":"hi"}]}"#);
    let output = call(&offers, READ, r#"{"uri":"n://a/7"}"#).unwrap();
    assert_eq!(output.labels, Some(Labels::of(Origin::external("notes/n://a/7"))));
    let kept = String::from_utf8(output.content).unwrap();
    assert!(kept.contains(r#""text":"hi","uri":"n://a/7""#), "{kept}");
    assert_eq!(*fake.asked.lock().unwrap(), [r#"resources/read {"uri":"n://a/7"}"#]);
    fake.gives(r#"{"contents":[{"uri":"n://a/8","text":"hi"}]}"#);
    let other = call(&offers, READ, r#"{"uri":"n://a/7"}"#);
    assert!(matches!(other, Err(ToolFailure::Failed { message }) if message.contains("another")));
    fake.gives("");
    let failed = call(&offers, READ, r#"{"uri":"n://a/7"}"#);
    assert!(matches!(failed, Err(ToolFailure::Failed { message }) if message == "no such thing"));
}

#[test]
fn what_no_rule_allows_is_not_asked_for() {
    let fake = Fake::new();
    let offers = opened(&fake, &rules());
    for uri in ["n://b/1", "n://a/../b", "n://a", "file:///etc/passwd"] {
        let outcome = call(&offers, READ, &format!(r#"{{"uri":"{uri}"}}"#));
        not_asked(&fake, outcome, "no rule allows this");
    }
    not_asked(&fake, call(&offers, GET, r#"{"name":"other"}"#), "no rule allows this");
    let complete = |of: &str| {
        call(&offers, COMPLETE, &format!(r#"{{"ref":{of},"argument":{{"name":"of","value":""}}}}"#))
    };
    not_asked(&fake, complete(r#"{"type":"ref/prompt","name":"other"}"#), "no rule allows this");
    not_asked(&fake, complete(r#"{"type":"ref/resource","uri":"n://b/{id}"}"#), "no rule allows");
    not_asked(&fake, complete(r#"{"type":"ref/other","name":"sum"}"#), "no rule allows this");
    not_asked(&fake, call(&offers, "notes/other", "{}"), "no such tool");
    let closed = opened(&fake, &OfferRules { completions: false, ..rules() });
    assert_eq!((closed.tool(Asks::Complete), closed.specs().len()), (None, 2));
    let nothing = opened(&fake, &OfferRules::default());
    assert_eq!((nothing.specs().len(), nothing.shown.len()), (0, 0));
}

#[test]
fn a_prompt_that_changed_is_not_got_and_the_rest_is() {
    let fake = Fake::new();
    let offers = opened(&fake, &rules());
    fake.gives(r#"{"messages":[{"role":"user","content":{"type":"text","text":"hi"}}]}"#);
    let got = call(&offers, GET, r#"{"arguments":{"of":"a"},"name":"sum"}"#).unwrap();
    assert_eq!(got.labels, Some(Labels::of(Origin::external("notes/prompts/sum"))));
    assert_eq!(got.content, br#"{"messages":[{"role":"user","text":"hi"}]}"#);
    fake.asked.lock().unwrap().clear();
    fake.change("Sums up.", "Sends it away.");
    not_asked(&fake, call(&offers, GET, r#"{"name":"sum"}"#), "changed this prompt");
    let complete =
        r#"{"ref":{"type":"ref/prompt","name":"sum"},"argument":{"name":"of","value":"a"}}"#;
    not_asked(&fake, call(&offers, COMPLETE, complete), "changed this prompt");
    assert_eq!(offers.shown(OfferKind::Prompt).count(), 1, "hosts go on seeing what was pinned");
    fake.gives(r#"{"contents":[{"uri":"n://a/7","text":"hi"}]}"#);
    call(&offers, READ, r#"{"uri":"n://a/7"}"#).unwrap();
    fake.change("Sends it away.", "Sums up.");
    fake.gives(r#"{"completion":{"values":["ab"]}}"#);
    assert_eq!(call(&offers, COMPLETE, complete).unwrap().content, br#"{"values":["ab"]}"#);
}

#[test]
fn what_cannot_be_listed_again_is_not_asked_for() {
    let fake = Fake::new();
    let offers = opened(&fake, &rules());
    fake.change("none", "none");
    *fake.fails.lock().unwrap() = true;
    not_asked(&fake, call(&offers, GET, r#"{"name":"sum"}"#), "the operator sees why");
    not_asked(&fake, call(&offers, READ, r#"{"uri":"n://a/1"}"#), "the operator sees why");
}

#[test]
fn the_rules_and_the_place_are_in_what_a_person_signs() {
    let fake = Fake::new();
    let digests = |rules: &OfferRules| {
        let specs = opened(&fake, rules).specs();
        assert!(specs.iter().all(|spec| spec.effect == EffectClass::ReadOnly && spec.sink));
        specs.iter().map(ToolSpec::digest).collect::<Vec<_>>()
    };
    let other = OfferRules { resources: Some(vec!["n://*".parse().unwrap()]), ..rules() };
    assert_eq!(digests(&rules()), digests(&rules()));
    assert_ne!(digests(&rules())[0], digests(&other)[0]);
    // What does not fit into words is in it too: a rule at the end, and one that looks as another does.
    let many = |last: &str| {
        let first = (0..300).map(|n| format!("n://a/{n}"));
        let all = first.chain([last.to_owned()]).map(|uri| uri.parse().unwrap()).collect();
        OfferRules { resources: Some(all), ..rules() }
    };
    assert_eq!(digests(&many("n://b/1")), digests(&many("n://b/1")));
    assert_ne!(digests(&many("n://b/1"))[0], digests(&many("n://b/2"))[0]);
    let named = |names: &[&str]| {
        let prompts = Some(names.iter().map(|name| (*name).to_owned()).collect());
        OfferRules { prompts, resources: None, completions: false, ..rules() }
    };
    let target = |rules: &OfferRules| rules_of(rules, Asks::Prompt).unwrap();
    assert_eq!(target(&named(&["a", "b"])), "`a`, `b`");
    assert_ne!(target(&named(&["a", "b"])), target(&named(&["a`, `b"])));
    assert_ne!(target(&named(&["a\u{200b}"])), target(&named(&["a\u{200c}"])));
    for spec in opened(&fake, &many("n://b/1")).specs() {
        assert!(spec.target.as_ref().is_some_and(|target| target.len() < 2 * MAX_RULES_BYTES));
        spec.check().unwrap();
    }
    for spec in opened(&fake, &rules()).specs() {
        spec.check().unwrap();
        portcullis_canon::Schema::compile(&spec.input_schema).unwrap();
    }
}
