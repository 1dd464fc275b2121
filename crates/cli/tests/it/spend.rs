//! `spend`: what models cost, by run and by day; and the limits on models of `run`.

use std::collections::BTreeSet;
use std::sync::Arc;

use portcullis_canon::Value;
use portcullis_domain::label::Labels;
use portcullis_domain::ports::{
    Agent, AgentFailure, BoxFuture, Model, ModelCall, ModelHandle, ModelName, ModelOutcome,
    ModelReply, Price, Projection, Rates, Stop, Usage, View,
};
use portcullis_engine::{Driving, Engaged};
use portcullis_testkit::block_on;

use crate::home::Home;
use crate::scene::{Scene, assert_safe, text_at};

struct Small(ModelName, BTreeSet<String>);

impl Model for Small {
    fn name(&self) -> &ModelName {
        &self.0
    }

    fn price(&self) -> Price {
        Price::Priced(Rates { input: 1_000_000, output: 4_000_000, ..Rates::default() })
    }

    fn marked_for(&self) -> &BTreeSet<String> {
        &self.1
    }

    fn attempt(&self, _: ModelCall) -> BoxFuture<'_, ModelOutcome> {
        let usage = Usage { input_tokens: 40, output_tokens: 9, ..Usage::default() };
        let reply = ModelReply {
            stop: Stop::EndTurn,
            text: "go on".to_owned(),
            uses: Vec::new(),
            verbatim: None,
            usage: Some(usage),
            raw: Arc::from([]),
        };
        Box::pin(async move { ModelOutcome::Reply(reply) })
    }
}

/// Asks the model, looks once, asks again and is done.
struct Asker;

impl Agent for Asker {
    fn propose(&mut self, _: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
        panic!("the driver hands over a model")
    }

    fn propose_with<'a>(
        &'a mut self,
        view: View,
        model: &'a dyn ModelHandle,
    ) -> BoxFuture<'a, Result<Vec<u8>, AgentFailure>> {
        Box::pin(async move {
            let call = ModelCall {
                request: view.request,
                body: Arc::from([]),
                projection: Projection::of(100, 20),
                labels: Labels::none(),
                watch: None,
            };
            assert!(matches!(model.call(call).await, ModelOutcome::Reply(_)));
            let rest = match view.request {
                0 => r#""kind":"tool_call","tool":"look","arguments":{"path":"a.txt"}}"#,
                _ => r#""kind":"complete","result":1}"#,
            };
            Ok(format!("{{\"request\":{},{rest}", view.request).into_bytes())
        })
    }
}

#[test]
fn what_models_cost_is_shown_by_run_and_by_day() {
    let scene = Scene::new();
    let held = scene.begin("look");
    let run = held.run().to_string();
    let none = scene.run(&["spend", &run]).out(0);
    assert!(none.contains("no model was called"), "{none}");
    let name = ModelName::read("fake:small").unwrap();
    let engaged = Engaged::new(Arc::new(Small(name, BTreeSet::new())));
    block_on(async {
        let mut driving = Driving::start_with(held, Box::new(Asker), Some(engaged)).await.unwrap();
        driving.finished().await.unwrap()
    });
    let out = scene.run(&["spend", &run]).out(0);
    assert_safe(&out);
    // Twice 40 tokens at one micro each and 9 at four.
    for words in ["fake:small", "look", "(none was called)", "0.000152"] {
        assert!(out.contains(words), "{words}: {out}");
    }
    let json = scene.run(&["spend", &run, "--json"]).json(0);
    let number = |pointer: &str| json.pointer(pointer).and_then(Value::as_u64);
    assert_eq!(number("/spent/calls"), Some(2));
    assert_eq!(number("/spent/input_tokens"), Some(80));
    assert_eq!(number("/spent/cost_micros"), Some(152));
    assert_eq!(number("/held/calls"), Some(0));
    assert_eq!(text_at(&json, "/by_run/0/name"), run);
    assert_eq!(text_at(&json, "/by_model/0/name"), "fake:small");
    assert_eq!(text_at(&json, "/outcomes/0/outcome"), "answered");
    let shown = scene.run(&["show", &run, "--json"]).json(0);
    let owner = text_at(&shown, "/run/owner").to_owned();
    let date = &text_at(&shown, "/run/created_at")[..10];
    let day = scene.run(&["spend", "--owner", &owner, "--day", date, "--json"]).json(0);
    assert_eq!(day.pointer("/spent/calls").and_then(Value::as_u64), Some(2));
    let long_ago = scene.run(&["spend", "--owner", &owner, "--day", "2001-01-01"]).out(0);
    assert!(long_ago.contains("no model was called"), "{long_ago}");
}

#[test]
fn limits_on_models_are_limits_of_the_run() {
    let home = Home::new();
    let script = r#"{"kind":"complete","result":1}"#;
    home.scripted(script, &["--max-model-calls", "7"]).exits(0);
    let events = home.run(&["events", &home.only_run(), "--json"]).exits(0);
    let created = events.out.lines().find(|line| line.contains("run.created")).unwrap();
    assert!(created.contains(r#""max_model_calls":7"#), "{created}");
    home.scripted(script, &["--max-total-tokens", "0"]).refuses(2, "E9002", &["max_total_tokens"]);
}
