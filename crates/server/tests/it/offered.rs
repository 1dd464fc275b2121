//! Resources, prompts and completions behind the proxy: by rule, through the gate, in the record, labelled.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portcullis_canon::{Limits, Object, Value, parse};
use portcullis_domain::approval::Answer as Reviewed;
use portcullis_domain::ports::BoxFuture;
use portcullis_domain::time::Timestamp;
use portcullis_domain::tool::EffectClass;
use portcullis_mcp::{
    Answer, Asks, CallFailure, Leave, Listing, Manifest, McpOffers, Offer, OfferKind, OfferRules,
    OfferTerms, Progress, ServerName, Session, SessionError, Told,
};
use portcullis_policy::{ClassTable, Outcome};
use portcullis_server::proxy::ProxyError;
use portcullis_testkit::block_on;
use portcullis_testkit::ports::ManualClock;
use tokio::sync::Notify;

use crate::caller::{Door, asking};
use crate::spoken::Host;
use crate::world::{World, make};

/// A server of notes, which keeps what it was asked.
#[derive(Default)]
struct Notes {
    asked: Mutex<Vec<String>>,
    /// The host has heard how far its read is.
    heard: Notify,
}

impl Notes {
    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn offer(kind: OfferKind, text: &str) -> Offer {
    Offer::read(kind, &parse(text.as_bytes(), &Limits::BARE).unwrap()).unwrap()
}

fn all() -> [Offer; 4] {
    [
        offer(OfferKind::Resource, r#"{"uri":"n://a/1","name":"One","description":"The first."}"#),
        offer(OfferKind::Resource, r#"{"uri":"n://secret/1","name":"Secret"}"#),
        offer(OfferKind::Template, r#"{"uriTemplate":"n://a/{id}","name":"Each"}"#),
        offer(
            OfferKind::Prompt,
            r#"{"name":"sum up","arguments":[{"name":"of","required":true}]}"#,
        ),
    ]
}

impl Session for Notes {
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
        panic!("it has no tools")
    }

    fn offers(&self, kind: OfferKind) -> BoxFuture<'_, Result<Vec<Offer>, SessionError>> {
        Box::pin(async move { Ok(all().into_iter().filter(|o| o.kind() == kind).collect()) })
    }

    fn ask<'a>(
        &'a self,
        asks: Asks,
        params: Object,
        _: Duration,
        told: Told<'a>,
    ) -> BoxFuture<'a, Result<Value, CallFailure>> {
        let params = Value::Object(params);
        self.asked.lock().unwrap().push(format!(
            "{} {}",
            asks.method(),
            params.to_canonical_string()
        ));
        let uri = params.get("uri").and_then(Value::as_str).unwrap_or_default().to_owned();
        let gives = match asks {
            Asks::Read if uri.ends_with("none") => {
                return Box::pin(async { Err(CallFailure::Failed("no such note".to_owned())) });
            }
            Asks::Read => format!(r#"{{"contents":[{{"uri":"{uri}","mimeType":"text/plain","text":"hello"}}]}}"#),
            Asks::Prompt => r#"{"messages":[{"role":"user","content":{"type":"text","text":"Sum up."}},{"role":"assistant","content":{"type":"image","mimeType":"image/png","data":"AQ=="}}]}"#.to_owned(),
            Asks::Complete => r#"{"completion":{"values":["one"],"total":1,"hasMore":false}}"#.to_owned(),
        };
        Box::pin(async move {
            if uri.ends_with("slow") {
                told(Progress { so_far: 1.0, total: Some(2.0) });
                self.heard.notified().await;
            }
            Ok(parse(gives.as_bytes(), &Limits::BARE).unwrap())
        })
    }

    fn changes(&self) -> u64 {
        0
    }
}

fn rules() -> OfferRules {
    OfferRules {
        resources: Some(vec!["n://a/*".parse().unwrap()]),
        prompts: Some(BTreeSet::from(["sum up".to_owned()])),
        completions: true,
        ..OfferRules::default()
    }
}

fn offers(name: &str, rules: &OfferRules) -> (Arc<Notes>, McpOffers) {
    let notes = Arc::new(Notes::default());
    let server = ServerName::new(name).unwrap();
    let listing = Listing::new(Vec::new()).unwrap();
    let manifest = Manifest::pin(server.clone(), &listing, Timestamp::from_micros(0));
    let manifest = manifest.with_offers(all());
    let terms = OfferTerms {
        manifest: &manifest,
        rules,
        place: "here",
        deadline: Duration::from_secs(60),
        max_result_bytes: 4_096,
    };
    let clock = Arc::new(ManualClock::default());
    let opened = McpOffers::open(&server, Arc::clone(&notes) as _, &terms, clock);
    (notes, block_on(opened).unwrap().0)
}

/// A world with a server of notes under these rules.
fn world(rules: &OfferRules) -> (World, Arc<Notes>) {
    let (notes, offers) = offers("notes", rules);
    let mut world = World::new();
    world.offers = vec![Arc::new(offers.telling(Arc::clone(&world.board)))];
    (world, notes)
}

fn request(id: i64, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}}}}}"#)
}

async fn asks(host: &mut Host, method: &str, params: &str) -> Value {
    host.ask(&request(7, method, params)).await
}

fn result(answer: &Value) -> String {
    answer.get("result").unwrap_or_else(|| panic!("{answer:?}")).to_canonical_string()
}

fn error(answer: &Value) -> (i64, String) {
    let code = answer.pointer("/error/code").and_then(Value::as_i64);
    let message = answer.pointer("/error/message").and_then(Value::as_str).unwrap_or_default();
    (code.unwrap_or_else(|| panic!("{answer:?}")), message.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_has_what_the_rules_name_and_each_of_it_is_recorded_and_labelled() {
    let (world, notes) = world(&rules());
    let mut host = Host::of(world.proxy(1));
    let begun = host.begin().await;
    let capabilities = begun.pointer("/result/capabilities").unwrap().to_canonical_string();
    assert_eq!(capabilities, r#"{"completions":{},"prompts":{},"resources":{},"tools":{}}"#);

    let listed = result(&asks(&mut host, "resources/list", "").await);
    assert!(
        listed.contains(r#"[{"description":"The first.","name":"One","uri":"n://a/1"}]"#),
        "{listed}"
    );
    let forms = result(&asks(&mut host, "resources/templates/list", "").await);
    assert!(forms.contains(r#"[{"name":"Each","uriTemplate":"n://a/{id}"}]"#), "{forms}");
    let prompts = result(&asks(&mut host, "prompts/list", "").await);
    assert!(
        prompts
            .contains(r#"[{"arguments":[{"name":"of","required":true}],"name":"notes_sum_up"}]"#),
        "{prompts}"
    );
    assert_eq!(
        (notes.asked().len(), world.runs().len()),
        (0, 0),
        "what is listed is what was pinned"
    );
    let tools = asks(&mut host, "tools/list", "").await;
    assert!(!result(&tools).contains("notes/"), "they are no tools of the host's");

    let read = asks(&mut host, "resources/read", r#""uri":"n://a/7""#).await;
    let contents = read.pointer("/result/contents").unwrap().to_canonical_string();
    assert_eq!(contents, r#"[{"mimeType":"text/plain","text":"hello","uri":"n://a/7"}]"#);
    let got =
        asks(&mut host, "prompts/get", r#""name":"notes_sum_up","arguments":{"of":"all"}"#).await;
    let messages = got.pointer("/result/messages").unwrap().to_canonical_string();
    assert_eq!(
        messages,
        r#"[{"content":{"text":"Sum up.","type":"text"},"role":"user"},{"content":{"data":"AQ==","mimeType":"image/png","type":"image"},"role":"assistant"}]"#
    );
    let typed =
        r#""ref":{"type":"ref/prompt","name":"notes_sum_up"},"argument":{"name":"of","value":"o"}"#;
    let completed = asks(&mut host, "completion/complete", typed).await;
    let completed = completed.pointer("/result/completion").unwrap().to_canonical_string();
    assert_eq!(completed, r#"{"hasMore":false,"total":1,"values":["one"]}"#);
    assert_eq!(
        notes.asked(),
        [
            r#"resources/read {"uri":"n://a/7"}"#,
            r#"prompts/get {"arguments":{"of":"all"},"name":"sum up"}"#,
            r#"completion/complete {"argument":{"name":"of","value":"o"},"ref":{"name":"sum up","type":"ref/prompt"}}"#,
        ]
    );
    assert_eq!(
        (world.runs().len(), world.count("step.started"), world.count("step.finished")),
        (3, 3, 3)
    );
    assert_eq!(
        world.origins(),
        ["external(notes/completion)", "external(notes/n://a/7)", "external(notes/prompts/sum up)"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_rule_names_is_not_there() {
    let (world, notes) = world(&rules());
    let mut host = Host::of(world.proxy(1));
    host.begin().await;
    for uri in [
        "n://secret/1",
        "n://a/../secret/1",
        "n://a/%2e%2e/secret/1",
        "n://a",
        "file:///etc/passwd",
        "",
    ] {
        let told = asks(&mut host, "resources/read", &format!(r#""uri":"{uri}""#)).await;
        assert_eq!(error(&told), (-32_002, "there is no such thing".to_owned()), "{uri}");
    }
    for name in ["sum up", "notes_other", "notes.sum up"] {
        let told = asks(&mut host, "prompts/get", &format!(r#""name":"{name}""#)).await;
        assert_eq!(error(&told).0, -32_002, "{name}");
    }
    let typed = r#""ref":{"type":"ref/resource","uri":"n://secret/{id}"},"argument":{"name":"id","value":""}"#;
    assert_eq!(error(&asks(&mut host, "completion/complete", typed).await).0, -32_002);
    // The tools by which they are had are no tools that a host could call by name.
    let direct = r#""name":"notes/resources/read","arguments":{"uri":"n://a/1"}"#;
    let told = error(&asks(&mut host, "tools/call", direct).await);
    assert_eq!(told, (-32_602, "there is no tool of that name".to_owned()));
    assert_eq!(
        error(&asks(&mut host, "resources/subscribe", r#""uri":"n://a/1""#).await).0,
        -32_601
    );
    assert_eq!((notes.asked().len(), world.runs().len()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_rules_the_methods_are_not_there() {
    let closed = OfferRules { resources: Some(Vec::new()), ..OfferRules::default() };
    for rules in [OfferRules::default(), closed] {
        let (world, notes) = world(&rules);
        let mut host = Host::of(world.proxy(1));
        let begun = host.begin().await;
        let capabilities = begun.pointer("/result/capabilities").unwrap().to_canonical_string();
        assert_eq!(capabilities, r#"{"tools":{}}"#);
        for (method, params) in [
            ("resources/list", ""),
            ("resources/templates/list", ""),
            ("resources/read", r#""uri":"n://a/1""#),
            ("prompts/list", ""),
            ("prompts/get", r#""name":"notes_sum_up""#),
            (
                "completion/complete",
                r#""ref":{"type":"ref/prompt","name":"notes_sum_up"},"argument":{"name":"of","value":""}"#,
            ),
        ] {
            assert_eq!(error(&asks(&mut host, method, params).await).0, -32_601, "{method}");
        }
        assert_eq!(notes.asked().len(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_decides_about_a_read_as_about_each_call() {
    let (mut world, notes) = world(&rules());
    let ask = Outcome::ask("operator", 1).unwrap();
    world.classes = ClassTable::default().with(EffectClass::ReadOnly, ask);
    let mut host = Host::of(world.proxy(1));
    host.begin().await;
    let read = r#""uri":"n://a/7""#;
    for _ in 0..2 {
        let (code, words) = error(&asks(&mut host, "resources/read", read).await);
        assert!(code == -32_000 && words.starts_with("PENDING_APPROVAL: "), "{words}");
    }
    assert_eq!(notes.asked().len(), 0);
    world.answer(&world.question(), Reviewed::Approve, None);
    let given = asks(&mut host, "resources/read", read).await;
    assert!(result(&given).contains("hello"), "{given:?}");
    assert_eq!(notes.asked().len(), 1);

    world.classes = ClassTable::default().with(EffectClass::ReadOnly, Outcome::Deny);
    let mut host = Host::of(world.proxy(2));
    host.begin().await;
    let (code, words) = error(&asks(&mut host, "resources/read", read).await);
    assert!(code == -32_000 && words.starts_with("DENIED: "), "{words}");
    assert_eq!(notes.asked().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_joins_the_conversation_and_a_failure_is_told() {
    let (world, _) = world(&rules());
    let proxy = world.proxy(1);
    make(&proxy, "look", 1);
    let mut host = Host::of(proxy);
    host.begin().await;
    let failed = asks(&mut host, "resources/read", r#""uri":"n://a/none""#).await;
    assert_eq!(error(&failed), (-32_000, "The tool failed: no such note".to_owned()));

    let other = r#""uri":"n://a/7","_meta":{"portcullis/thread":"other"}"#;
    assert!(result(&asks(&mut host, "resources/read", other).await).contains("hello"));
    assert!(
        !world.origins().contains(&"external(notes/n://a/7)".to_owned()),
        "another conversation"
    );
    asks(&mut host, "resources/read", r#""uri":"n://a/7""#).await;
    assert!(
        world.origins().contains(&"external(notes/n://a/7)".to_owned()),
        "{:?}",
        world.origins()
    );
    let odd = r#""uri":"n://a/7","_meta":{"portcullis/thread":7}"#;
    assert!(error(&asks(&mut host, "resources/read", odd).await).1.starts_with("INVALID: "));
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_over_http_have_the_same() {
    let (world, notes) = world(&rules());
    let door = Door::open(world.proxy(1)).await;
    let posted = async |method: &str, name: &str, params: &str| {
        let (head, body) = asking(method, name, params);
        let head: Vec<(&str, &str)> = head.iter().map(|(k, v)| (*k, v.as_str())).collect();
        door.post(&head, &body).await.json()
    };
    let listed = posted("resources/list", "", r#""cursor":null"#).await;
    assert!(result(&listed).contains("The first."), "{listed:?}");
    let read = posted("resources/read", "n://a/7", r#""uri":"n://a/7""#).await;
    assert!(result(&read).contains("hello"), "{read:?}");
    let got =
        posted("prompts/get", "notes_sum_up", r#""name":"notes_sum_up","arguments":{"of":"all"}"#)
            .await;
    assert!(result(&got).contains("Sum up."), "{got:?}");
    let closed = posted("resources/read", "n://secret/1", r#""uri":"n://secret/1""#).await;
    assert_eq!(error(&closed).0, -32_602, "as that revision says it");
    let session = door.session().await;
    let read = door.in_session(&session, &request(3, "resources/read", r#""uri":"n://a/8""#)).await;
    assert!(result(&read.json()).contains("hello"), "{read:?}");
    let got = request(4, "prompts/get", r#""name":"notes_sum_up","arguments":{"of":"all"}"#);
    assert!(result(&door.in_session(&session, &got).await.json()).contains("Sum up."));
    assert_eq!((notes.asked().len(), world.count("step.started")), (4, 4));
    door.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_with_a_token_hears_how_far_the_server_is() {
    let (world, notes) = world(&rules());
    let mut host = Host::of(world.proxy(1));
    host.begin().await;
    let read = r#""uri":"n://a/slow","_meta":{"progressToken":"p"}"#;
    let notice = asks(&mut host, "resources/read", read).await;
    assert_eq!(notice.get("method").and_then(Value::as_str), Some("notifications/progress"));
    let params = notice.get("params").unwrap().to_canonical_string();
    assert_eq!(params, r#"{"progress":1,"progressToken":"p","total":2}"#);
    notes.heard.notify_one();
    assert!(result(&host.hear().await).contains("hello"));
}

#[test]
fn a_name_that_could_mean_two_things_opens_no_proxy() {
    let mut world = World::new();
    let both = |of_other: &OfferRules| {
        [("notes", &rules()), ("other", of_other)]
            .map(|(name, rules)| Arc::new(offers(name, rules).1))
    };
    world.offers = both(&rules()).into();
    let opened = world.try_proxy(world.settings()).err();
    assert_eq!(opened, Some(ProxyError::Both("notes".to_owned(), "other".to_owned())));
    let apart = OfferRules { resources: Some(vec!["n://b/*".parse().unwrap()]), ..rules() };
    world.offers = both(&apart).into();
    assert!(world.try_proxy(world.settings()).is_ok());
}
