//! The contract of a provider, over all three dialects, whole and in pieces, against real sockets.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use portcullis_canon::{Limits, Object, Value, from_slice, parse};
use portcullis_domain::label::Labels;
use portcullis_domain::ports::{
    Charge, Disposition, Model, ModelCall, ModelFailure, ModelFault, ModelName, ModelOutcome,
    ModelReply, Price, Projection, Shown, Stop, Usage, Watch,
};
use portcullis_egress::{Credential, Credentials, Deadlines, Egress, EgressRules, Secret};
use portcullis_models::{Dialect, Head, OverEgress, Provider, ProviderConfig, Turn};
use portcullis_testkit::ports::ManualClock;

use crate::fake::{Act, Fake, Received, answer, chunked, cut, endless, header, ok, silent};
use crate::shapes::{Spec, pieces, whole};

const CANARY: &str = "sk-canary-0123456789abcdefghijklmnopqrstuvwxyz";

fn provider(dialect: Dialect, base: &str, credential: Option<&str>) -> Provider {
    let deadlines = Deadlines {
        header: Duration::from_secs(1),
        idle: Duration::from_secs(10),
        total: Duration::from_secs(60),
    };
    let rules = EgressRules::closed().loopback().deadlines(Duration::from_secs(1), deadlines);
    let key = Credential::given(Secret::new(CANARY.to_owned()).unwrap())
        .only_to(base.strip_prefix("http://").unwrap());
    let credentials = Credentials::new([("work", key.unwrap())]).unwrap();
    let clock = Arc::new(ManualClock::default());
    let egress =
        Egress::new(rules.unwrap(), credentials, Arc::<ManualClock>::clone(&clock)).unwrap();
    let transport = OverEgress::new(egress, clock);
    assert!(!format!("{transport:?}").contains("canary"));
    let config = ProviderConfig {
        name: ModelName::read("p:m").unwrap(),
        dialect,
        base: base.to_owned(),
        credential: credential.map(str::to_owned),
        marked_for: BTreeSet::from(["internal".to_owned()]),
        price: Price::Unpriced,
    };
    Provider::new(config, Arc::new(transport)).unwrap()
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn call(dialect: Dialect, watch: Option<Watch>) -> ModelCall {
    let head = Head {
        model: "m".to_owned(),
        system: "Be brief.".to_owned(),
        tools: [].into(),
        max_output_tokens: 100,
        strict_tools: false,
        extra: Object::new(),
    };
    let turn = dialect.turn(&Turn::User("hello".to_owned()));
    let body = dialect.frame(&head).unwrap().around(&[&turn]);
    ModelCall {
        request: 0,
        projection: Projection::of(body.len() as u64, 100),
        body: body.into(),
        labels: Labels::none(),
        watch,
    }
}

/// One attempt against a server that does this.
fn attempt(dialect: Dialect, streamed: bool, act: Act) -> (ModelOutcome, Received) {
    let fake = Fake::new(vec![act]);
    let provider = provider(dialect, &fake.base(), Some("work"));
    let watch = streamed.then(|| Watch::new(|_| {}));
    let outcome = block_on(provider.attempt(call(dialect, watch)));
    (outcome, fake.finish().remove(0))
}

fn everywhere(mut check: impl FnMut(Dialect, bool)) {
    for dialect in Dialect::ALL {
        for streamed in [false, true] {
            check(dialect, streamed);
        }
    }
}

fn serve(dialect: Dialect, streamed: bool, spec: &Spec) -> ModelOutcome {
    let act = if streamed { chunked(pieces(dialect, spec)) } else { ok(whole(dialect, spec)) };
    attempt(dialect, streamed, act).0
}

#[track_caller]
fn reply(spec: &Spec, check: impl Fn(Dialect, ModelReply)) {
    everywhere(|dialect, streamed| match serve(dialect, streamed, spec) {
        ModelOutcome::Reply(reply) => check(dialect, reply),
        other => panic!("{dialect:?} {streamed}: {other:?}"),
    });
}

#[track_caller]
fn fault_of(outcome: ModelOutcome) -> ModelFailure {
    match outcome {
        ModelOutcome::Failed(failure) => {
            assert!(!failure.to_string().contains("canary"), "{failure}");
            failure
        }
        other => panic!("{other:?}"),
    }
}

/// A reply of this shape is this fault, and is charged so.
#[track_caller]
fn refused(spec: &Spec, fault: ModelFault, charged: Charge) {
    everywhere(|dialect, streamed| {
        let failure = fault_of(serve(dialect, streamed, spec));
        let place = format!("{dialect:?} {streamed}: {failure}");
        assert_eq!(failure.fault, fault, "{place}");
        assert_eq!(failure.fault.charge(), charged, "{place}");
        assert_eq!(failure.fault.disposition(), Disposition::Refuse, "{place}");
        if charged == Charge::Served {
            let usage = failure.usage.unwrap_or_else(|| panic!("no usage: {place}"));
            assert_eq!((usage.input_tokens, usage.output_tokens), (11, 7), "{place}");
        }
    });
}

const SERVED: Usage = Usage {
    input_tokens: 11,
    cache_read_tokens: 0,
    cache_write_tokens: 0,
    cache_write_long_tokens: 0,
    output_tokens: 7,
};

fn read(path: &'static str) -> (&'static str, &'static str, &'static str) {
    ("call_a", "files__read", path)
}

#[test]
fn words_alone_are_a_whole_reply() {
    reply(&Spec::default(), |_, reply| {
        assert_eq!((reply.stop, reply.text.as_str()), (Stop::EndTurn, "Well."));
        assert!(reply.uses.is_empty());
        assert_eq!(reply.usage, Some(SERVED));
        assert!(!reply.raw.is_empty());
    });
}

#[test]
fn tool_uses_come_in_order_with_exact_arguments() {
    let second =
        ("call_b", "files__list", r#"{"deep":{"n":9007199254740993,"é":[1.50,"\"\\\n"]}}"#);
    let spec =
        Spec { uses: vec![read(r#"{"path":"a"}"#), second], stop: "tools", ..Spec::default() };
    reply(&spec, |_, reply| {
        assert_eq!(reply.stop, Stop::ToolUse);
        let uses: Vec<(&str, &str, String)> = reply
            .uses
            .iter()
            .map(|u| {
                let arguments = Value::Object(u.arguments.clone()).to_canonical_string();
                (u.id.as_str(), u.name.as_str(), arguments)
            })
            .collect();
        let exact = parse(second.2.as_bytes(), &Limits::BARE).unwrap().to_canonical_string();
        assert_eq!(
            uses,
            [
                ("call_a", "files__read", r#"{"path":"a"}"#.to_owned()),
                ("call_b", "files__list", exact)
            ]
        );
        assert_eq!(reply.text, "Well.");
    });
}

#[test]
fn a_tool_use_without_words_or_id_is_one() {
    let spec = Spec { text: "", uses: vec![("", "t", "{}")], stop: "tools", ..Spec::default() };
    reply(&spec, |_, reply| {
        assert_eq!((reply.uses.len(), reply.uses[0].id.as_str()), (1, "use_0"));
    });
}

#[test]
fn what_was_cut_off_or_refused_asks_for_nothing() {
    for (stop, expected) in [("length", Stop::MaxTokens), ("refused", Stop::Refusal)] {
        // Arguments that were cut in the middle are no fault either: nothing of them counts.
        for arguments in [r#"{"path":"/"}"#, "[1]"] {
            let uses = vec![read(arguments)];
            let spec = Spec { uses, stop, ..Spec::default() };
            everywhere(|dialect, streamed| {
                if dialect == Dialect::Ollama && stop == "refused" {
                    return;
                }
                let ModelOutcome::Reply(reply) = serve(dialect, streamed, &spec) else {
                    panic!("{dialect:?} {streamed}")
                };
                assert_eq!(reply.stop, expected, "{dialect:?}");
                assert!(reply.uses.is_empty() && reply.verbatim.is_none(), "{dialect:?}");
                assert_eq!(reply.usage, Some(SERVED));
            });
        }
        // The control: with another stop the same reply asks for something.
        let spec = Spec { uses: vec![read(r#"{"path":"/"}"#)], stop: "tools", ..Spec::default() };
        reply(&spec, |_, reply| assert_eq!(reply.uses.len(), 1));
    }
}

#[test]
fn a_stop_that_nobody_knows_is_no_whole_reply() {
    let uses = vec![read("{}")];
    let spec = Spec { uses, stop: "because", ..Spec::default() };
    refused(&spec, ModelFault::UnknownStop, Charge::Served);
}

#[test]
fn arguments_that_are_no_object_are_named() {
    for arguments in ["[1]", "\"x\"", "7", "true"] {
        let spec = Spec { uses: vec![read(arguments)], stop: "tools", ..Spec::default() };
        refused(&spec, ModelFault::ArgumentsNotObject, Charge::Served);
    }
}

#[test]
fn two_tool_uses_with_one_id_are_named() {
    let uses = vec![read("{}"), ("call_a", "files__delete", "{}")];
    let spec = Spec { uses, stop: "tools", ..Spec::default() };
    refused(&spec, ModelFault::RepeatedId, Charge::Served);
}

#[test]
fn a_reply_that_says_nothing_is_named() {
    refused(&Spec { text: "", ..Spec::default() }, ModelFault::EmptyReply, Charge::Served);
    let spec = Spec { text: "  \n", stop: "tools", ..Spec::default() };
    refused(&spec, ModelFault::EmptyReply, Charge::Served);
}

#[test]
fn more_tool_uses_than_one_may_have_are_named() {
    let ids: Vec<&'static str> =
        (0..65).map(|n| &*Box::leak(format!("i{n}").into_boxed_str())).collect();
    let uses = |count: usize| ids.iter().take(count).map(|id| (*id, "t", "{}")).collect();
    let spec = Spec { uses: uses(65), stop: "tools", ..Spec::default() };
    refused(&spec, ModelFault::TooManyUses, Charge::Served);
    let spec = Spec { uses: uses(64), stop: "tools", ..Spec::default() };
    reply(&spec, |_, reply| assert_eq!(reply.uses.len(), 64));
}

#[test]
fn counts_that_cannot_be_are_charged_the_projection() {
    for usage in [
        ("-1", "7"),
        ("11", "-7"),
        ("1.5", "7"),
        ("11", "1e30"),
        ("2000000000", "7"),
        ("\"11\"", "7"),
    ] {
        let spec = Spec { usage: Some(usage), ..Spec::default() };
        refused(&spec, ModelFault::UsageImplausible, Charge::Projection);
    }
}

#[test]
fn a_reply_without_counts_is_kept_and_charged_the_projection() {
    let spec = Spec { usage: None, ..Spec::default() };
    reply(&spec, |_, reply| {
        assert_eq!(reply.usage, None);
        let projection = Projection::of(300, 100);
        assert_eq!(ModelOutcome::Reply(reply).charge(&projection), projection.usage());
    });
}

#[test]
fn caches_are_counted_apart_and_never_hold_more_than_there_was() {
    let openai = |usage: &str| {
        format!(
            r#"{{"choices":[{{"finish_reason":"stop","message":{{"content":"x"}}}}],"usage":{usage}}}"#
        )
    };
    let anthropic = |usage: &str| {
        format!(
            r#"{{"content":[{{"type":"text","text":"x"}}],"stop_reason":"end_turn","usage":{usage}}}"#
        )
    };
    let of =
        |dialect: Dialect, body: String| dialect.read(body.as_bytes()).map(|r| r.usage.unwrap());
    let usage = of(Dialect::OpenAi, openai(r#"{"prompt_tokens":10,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}"#)).unwrap();
    assert_eq!((usage.input_tokens, usage.cache_read_tokens, usage.output_tokens), (6, 4, 2));
    let more = of(
        Dialect::OpenAi,
        openai(
            r#"{"prompt_tokens":3,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}"#,
        ),
    );
    assert_eq!(more.unwrap_err().fault, ModelFault::UsageImplausible);
    let usage = of(Dialect::Anthropic, anthropic(r#"{"input_tokens":5,"output_tokens":2,"cache_read_input_tokens":100,"cache_creation_input_tokens":30,"cache_creation":{"ephemeral_5m_input_tokens":20,"ephemeral_1h_input_tokens":10}}"#)).unwrap();
    let expected = Usage {
        input_tokens: 5,
        cache_read_tokens: 100,
        cache_write_tokens: 20,
        cache_write_long_tokens: 10,
        output_tokens: 2,
    };
    assert_eq!(usage, expected);
    let more = of(
        Dialect::Anthropic,
        anthropic(
            r#"{"input_tokens":5,"output_tokens":2,"cache_creation_input_tokens":3,"cache_creation":{"ephemeral_1h_input_tokens":10}}"#,
        ),
    );
    assert_eq!(more.unwrap_err().fault, ModelFault::UsageImplausible);
}

#[track_caller]
fn body_is(streamed: bool, body: &'static str, fault: ModelFault) {
    for dialect in Dialect::ALL {
        let failure = fault_of(attempt(dialect, streamed, ok(body)).0);
        assert_eq!(failure.fault, fault, "{dialect:?} {body}: {failure}");
        assert_eq!(failure.fault.charge(), Charge::Projection);
    }
}

#[test]
fn what_is_no_reply_is_named() {
    let page = "<!DOCTYPE html><html><body>Sign in to the proxy</body></html>";
    for streamed in [false, true] {
        body_is(streamed, page, ModelFault::NotJson);
        body_is(streamed, r#"{"choices":[{"message":{"content":"he"#, ModelFault::NotJson);
    }
    body_is(false, "", ModelFault::NotJson);
    body_is(false, "[]", ModelFault::WrongShape);
    body_is(false, "null", ModelFault::WrongShape);
    body_is(
        false,
        r#"{"choices":[{"finish_reason":"stop","message":"x"}],"content":"x"}"#,
        ModelFault::WrongShape,
    );
    for dialect in [Dialect::OpenAi, Dialect::Anthropic] {
        assert_eq!(dialect.read(b"{}").unwrap_err().fault, ModelFault::WrongShape);
    }
    // A server that does not stream is understood all the same.
    for dialect in Dialect::ALL {
        let (outcome, _) = attempt(dialect, true, ok(whole(dialect, &Spec::default())));
        assert!(matches!(outcome, ModelOutcome::Reply(_)), "{dialect:?}: {outcome:?}");
    }
    // A repeated key could be read in two ways, and so is in none.
    body_is(false, r#"{"error":null,"error":null}"#, ModelFault::NotJson);
}

#[test]
fn an_error_inside_of_a_reply_is_served() {
    everywhere(|dialect, streamed| {
        let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Too busy"}}"#;
        let body = match (dialect, streamed) {
            (Dialect::Ollama, _) => r#"{"error":"Too busy"}"#.to_owned(),
            (_, true) => format!("event: error\ndata: {error}\n\n"),
            (_, false) => error.to_owned(),
        };
        let failure = fault_of(attempt(dialect, streamed, ok(body)).0);
        assert_eq!(failure.fault, ModelFault::ProviderError, "{dialect:?} {streamed}");
        assert!(failure.message.contains("Too busy"), "{failure}");
    });
}

#[test]
fn a_stream_that_does_not_say_that_it_is_whole_is_cut_short() {
    for dialect in Dialect::ALL {
        let spec = Spec { uses: vec![read("{}")], stop: "tools", ..Spec::default() };
        let all = pieces(dialect, &spec);
        let mark = match dialect {
            Dialect::OpenAi => "\"finish_reason\":\"tool_calls\"",
            Dialect::Anthropic => "event: message_stop",
            Dialect::Ollama => {
                "{\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done_reason\""
            }
        };
        let mut at = all.find(mark).unwrap();
        at = all[..at].rfind('\n').map_or(0, |line| line + 1);
        let failure = fault_of(attempt(dialect, true, chunked(&all[..at])).0);
        assert_eq!(failure.fault, ModelFault::CutShort, "{dialect:?}");
        // The control: all of it is a reply.
        assert!(matches!(attempt(dialect, true, chunked(all)).0, ModelOutcome::Reply(_)));
    }
}

#[test]
fn a_lost_connection_and_a_late_answer_are_charged_the_projection() {
    everywhere(|dialect, streamed| {
        let half = if streamed { "data: {\"choices\":[]}\n\n" } else { "{\"choices\":" };
        let half = if dialect == Dialect::Ollama && streamed { "{\"done\":false}\n" } else { half };
        let failure = fault_of(attempt(dialect, streamed, cut(half)).0);
        assert_eq!(failure.fault, ModelFault::ConnectionLost, "{dialect:?} {streamed}");
        let none: Act = Box::new(|_| {});
        let failure = fault_of(attempt(dialect, streamed, none).0);
        assert_eq!(failure.fault, ModelFault::ConnectionLost, "{dialect:?} {streamed}");
    });
    let failure = fault_of(attempt(Dialect::OpenAi, false, silent()).0);
    assert_eq!(failure.fault, ModelFault::TimedOut);
    assert_eq!(failure.fault.charge(), Charge::Projection);
    assert_eq!(failure.fault.disposition(), Disposition::Retry);
}

#[test]
fn a_body_without_an_end_is_cut_off() {
    for dialect in Dialect::ALL {
        let failure = fault_of(attempt(dialect, false, endless(vec![b' '; 65536])).0);
        assert_eq!(failure.fault, ModelFault::TooLarge, "{dialect:?}");
        let text = "x".repeat(60_000);
        let event = match dialect {
            Dialect::OpenAi => {
                format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
            }
            Dialect::Anthropic => format!(
                "data: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}}}\n\n"
            ),
            Dialect::Ollama => {
                format!("{{\"message\":{{\"content\":\"{text}\"}},\"done\":false}}\n")
            }
        };
        let failure = fault_of(attempt(dialect, true, endless(event)).0);
        assert_eq!(failure.fault, ModelFault::TooLarge, "{dialect:?}");
        // And one line that never ends.
        let failure = fault_of(attempt(dialect, true, endless(vec![b'a'; 65536])).0);
        assert_eq!(failure.fault, ModelFault::TooLarge, "{dialect:?}");
    }
}

#[test]
fn gzip_that_is_none_is_named() {
    everywhere(|dialect, streamed| {
        let act = answer("200 OK", "content-encoding: gzip\r\n", "no gzip");
        let failure = fault_of(attempt(dialect, streamed, act).0);
        assert_eq!(failure.fault, ModelFault::BadEncoding, "{dialect:?}");
    });
}

#[test]
fn each_status_has_its_reason_and_its_charge() {
    let cases = [
        ("301 Moved", ModelFault::Redirected, Disposition::Operator),
        ("400 Bad", ModelFault::RequestRefused, Disposition::Refuse),
        ("401 Unauthorized", ModelFault::KeyRefused, Disposition::Operator),
        ("402 Payment", ModelFault::OutOfCredit, Disposition::Operator),
        ("403 Forbidden", ModelFault::KeyRefused, Disposition::Operator),
        ("404 Not Found", ModelFault::UnknownModel, Disposition::Operator),
        ("413 Large", ModelFault::RequestRefused, Disposition::Refuse),
        ("429 Slow", ModelFault::Throttled, Disposition::Retry),
        ("500 Oops", ModelFault::ServerError, Disposition::Retry),
        ("502 Bad", ModelFault::ConnectionLost, Disposition::Retry),
        ("503 Busy", ModelFault::Overloaded, Disposition::Retry),
        ("504 Late", ModelFault::TimedOut, Disposition::Retry),
        ("524 Late", ModelFault::TimedOut, Disposition::Retry),
        ("529 Busy", ModelFault::Overloaded, Disposition::Retry),
    ];
    for (status, fault, disposition) in cases {
        everywhere(|dialect, streamed| {
            let body = format!(r#"{{"error":{{"message":"no, and your key {CANARY} is wrong"}}}}"#);
            let act = answer(status, "location: http://elsewhere.example/\r\n", body);
            let failure = fault_of(attempt(dialect, streamed, act).0);
            assert_eq!(failure.fault, fault, "{dialect:?} {status}");
            // Whoever stood in between had handed the request on.
            let handed_on = ["502 Bad", "504 Late", "524 Late"].contains(&status);
            let charge = if handed_on { Charge::Projection } else { Charge::Nothing };
            assert_eq!(failure.fault.charge(), charge, "{status}");
            assert_eq!(failure.fault.disposition(), disposition, "{status}");
            assert!(!failure.message.contains("elsewhere"), "{failure}");
            let number = status.split(' ').next().unwrap();
            assert!(failure.message.contains(number), "{failure}");
        });
    }
    // The page of a proxy is no sentence of a provider.
    let page = answer("502 Bad", "", "<html>secret page</html>");
    let failure = fault_of(attempt(Dialect::OpenAi, false, page).0);
    assert_eq!(failure.message, "the provider answered 502");
}

#[test]
fn a_wait_is_handed_on_and_a_wait_of_a_year_ends_it() {
    let throttled = |status: &str, after: &str| {
        let act = answer(status, &format!("retry-after: {after}\r\n"), "{}");
        fault_of(attempt(Dialect::Anthropic, false, act).0)
    };
    let failure = throttled("429 Slow", "7");
    assert_eq!(
        (failure.fault, failure.retry_after),
        (ModelFault::Throttled, Some(Duration::from_secs(7)))
    );
    let failure = throttled("429 Slow", "3600");
    assert_eq!(failure.retry_after, Some(Duration::from_secs(3600)));
    for status in ["429 Slow", "503 Busy"] {
        let failure = throttled(status, "31536000");
        assert_eq!((failure.fault, failure.retry_after), (ModelFault::ThrottledTooLong, None));
        assert_eq!(failure.fault.disposition(), Disposition::Operator);
    }
    assert_eq!(throttled("401 Who", "7").retry_after, None);
}

#[test]
fn what_nobody_hears_is_unreachable_and_free() {
    // A port that was just given back: nobody listens there.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for dialect in Dialect::ALL {
        let provider = provider(dialect, &format!("http://{address}"), None);
        let failure = fault_of(block_on(provider.attempt(call(dialect, None))));
        assert_eq!(failure.fault, ModelFault::Unreachable);
        assert_eq!(failure.fault.charge(), Charge::Nothing);
    }
}

#[test]
fn a_request_travels_with_its_key_and_without_it_nothing_does() {
    for dialect in Dialect::ALL {
        let (_, received) = attempt(dialect, false, ok(whole(dialect, &Spec::default())));
        let sent = match dialect {
            Dialect::Anthropic => header(&received.head, "x-api-key"),
            _ => header(&received.head, "authorization").map(|h| h.replace("Bearer ", "")),
        };
        assert_eq!(sent.as_deref(), Some(CANARY), "{dialect:?}");
        assert!(
            received.head.starts_with(&format!("POST {} ", dialect.path())),
            "{}",
            received.head
        );
        let body = parse(&received.body, &Limits::BARE).unwrap();
        assert_eq!(body.get("model").and_then(Value::as_str), Some("m"));
        let cap = body.get("max_tokens").or_else(|| body.pointer("/options/num_predict"));
        assert_eq!(cap.and_then(Value::as_u64), Some(100), "{dialect:?}");
        let (_, received) = attempt(dialect, true, chunked(pieces(dialect, &Spec::default())));
        let body = parse(&received.body, &Limits::BARE).unwrap();
        assert_eq!(body.get("stream").and_then(Value::as_bool), Some(true), "{dialect:?}");

        let provider = provider(dialect, "http://127.0.0.1:1", Some("other"));
        let failure = fault_of(block_on(provider.attempt(call(dialect, None))));
        assert_eq!(failure.fault, ModelFault::KeyRefused);
    }
}

#[test]
fn what_is_labelled_goes_only_where_it_may() {
    let labelled = |tag: &str| -> Labels {
        let text = format!(r#"{{"origins":["owner"],"tags":["{tag}"]}}"#);
        from_slice(text.as_bytes(), &Limits::BARE).unwrap()
    };
    for dialect in Dialect::ALL {
        let fake = Fake::new(vec![ok(whole(dialect, &Spec::default()))]);
        let provider = provider(dialect, &fake.base(), None);
        let secret = ModelCall { labels: labelled("secret"), ..call(dialect, None) };
        let failure = fault_of(block_on(provider.attempt(secret)));
        assert_eq!(failure.fault, ModelFault::NotMarked);
        assert_eq!(failure.fault.charge(), Charge::Nothing);
        // The control: a tag that it is marked for. It is also the only exchange that the server saw.
        let marked = ModelCall { labels: labelled("internal"), ..call(dialect, None) };
        assert!(matches!(block_on(provider.attempt(marked)), ModelOutcome::Reply(_)));
        assert_eq!(fake.finish().len(), 1);
    }
}

#[test]
fn whoever_watches_sees_the_reply_being_made() {
    let spec = Spec { uses: vec![read("{}")], stop: "tools", ..Spec::default() };
    for dialect in Dialect::ALL {
        let shown = Arc::new(Mutex::new((String::new(), Vec::new())));
        let kept = Arc::clone(&shown);
        let watch = Watch::new(move |piece| {
            let mut shown = kept.lock().unwrap();
            match piece {
                Shown::Text(text) => shown.0.push_str(text),
                Shown::Tool(name) => shown.1.push(name.to_owned()),
                Shown::Thinking(_) => {}
            }
        });
        let fake = Fake::new(vec![chunked(pieces(dialect, &spec))]);
        let provider = provider(dialect, &fake.base(), None);
        let outcome = block_on(provider.attempt(call(dialect, Some(watch))));
        assert!(matches!(outcome, ModelOutcome::Reply(_)), "{outcome:?}");
        let shown = shown.lock().unwrap();
        assert_eq!(
            (shown.0.as_str(), shown.1.as_slice()),
            ("Well.", &["files__read".to_owned()][..])
        );
    }
}

#[test]
fn counts_that_are_not_all_said_are_none() {
    // What a start of a stream counts is a placeholder: a reply that fails after it is charged what it could have cost.
    let start =
        r#"{"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}"#;
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Too busy"}}"#;
    let body = format!("event: message_start\ndata: {start}\n\nevent: error\ndata: {error}\n\n");
    let failure = fault_of(attempt(Dialect::Anthropic, true, ok(body)).0);
    assert_eq!((failure.fault, failure.usage), (ModelFault::ProviderError, None));
    let reply = |usage: &str| {
        format!(
            r#"{{"choices":[{{"message":{{"content":"hello"}},"finish_reason":"stop"}}],"usage":{usage}}}"#
        )
    };
    for (usage, counted) in [
        (r#"{"prompt_tokens":9,"completion_tokens":1}"#, true),
        ("{}", false),
        (r#"{"total_tokens":900}"#, false),
        (r#"{"prompt_tokens":9}"#, false),
        (r#"{"prompt_tokens":0,"completion_tokens":0}"#, false),
    ] {
        let outcome = attempt(Dialect::OpenAi, false, ok(reply(usage))).0;
        let ModelOutcome::Reply(reply) = outcome else { panic!("{outcome:?}") };
        assert_eq!(reply.usage.is_some(), counted, "{usage}");
    }
}
