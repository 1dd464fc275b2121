//! The protocol, spoken by the library's own client over a pair of pipes.

use std::sync::Arc;

use portcullis_canon::{Limits, Value, parse};
use portcullis_mcp::{Served, serve};
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf,
};

use crate::world::World;

/// A host that speaks by the letter.
pub(crate) struct Host {
    read: BufReader<ReadHalf<DuplexStream>>,
    write: WriteHalf<DuplexStream>,
    served: tokio::task::JoinHandle<Result<(), portcullis_mcp::ServeError>>,
}

impl Host {
    pub(crate) fn of(served: Arc<dyn Served>) -> Self {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (read, write) = tokio::io::split(theirs);
        let served = tokio::spawn(serve(served, read, write, std::future::pending()));
        let (read, write) = tokio::io::split(ours);
        Self { read: BufReader::new(read), write, served }
    }

    async fn say(&mut self, line: &str) {
        self.write.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    pub(crate) async fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.read.read_line(&mut line).await.unwrap();
        parse(line.trim_end().as_bytes(), &Limits::ENVELOPE).unwrap()
    }

    pub(crate) async fn ask(&mut self, line: &str) -> Value {
        self.say(line).await;
        self.hear().await
    }

    pub(crate) async fn begin(&mut self) -> Value {
        let begun = self
            .ask(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#)
            .await;
        self.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        begun
    }
}

fn text(answer: &Value) -> &str {
    answer.pointer("/result/content/0/text").and_then(Value::as_str).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_lists_and_calls() {
    let world = World::new();
    let mut host = Host::of(world.proxy(1));
    let begun = host.begin().await;
    let version = begun.pointer("/result/protocolVersion").and_then(Value::as_str);
    assert_eq!(version, Some("2025-11-25"), "{begun:?}");
    let listed = host.ask(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#).await;
    let tools = listed.pointer("/result/tools").and_then(Value::as_array).unwrap();
    let named = |name: &str| tools.iter().find(|tool| tool.get("name") == Some(&Value::from(name)));
    let hint = |name: &str, hint: &str| {
        named(name).unwrap().pointer(&format!("/annotations/{hint}")).and_then(Value::as_bool)
    };
    assert_eq!(tools.len(), 7, "{listed:?}");
    assert_eq!(
        (hint("look", "readOnlyHint"), hint("write", "readOnlyHint")),
        (Some(true), Some(false))
    );
    assert_eq!(
        (hint("burn", "destructiveHint"), hint("write", "destructiveHint")),
        (Some(true), Some(false))
    );
    let call = r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"look","arguments":{"n":1}}}"#;
    let answer = host.ask(call).await;
    assert_eq!(text(&answer), r#"{"ok":true}"#);
    assert_eq!(answer.pointer("/result/structuredContent/ok"), Some(&Value::from(true)));
    // A number that would not survive is refused by the gate, which sees all its digits.
    let call = r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"write","arguments":{"n":12345678901234567890123}}}"#;
    let answer = host.ask(call).await;
    assert!(text(&answer).starts_with("INVALID: "), "{answer:?}");
    assert_eq!(answer.pointer("/result/isError"), Some(&Value::from(true)));
    // A tool that is not there is no result, but an error of the protocol.
    let call = r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"other","arguments":{}}}"#;
    let answer = host.ask(call).await;
    assert_eq!(answer.pointer("/error/code"), Some(&Value::from(-32602)), "{answer:?}");
    assert_eq!(world.tools.effects("write"), 0);
    drop(host.write);
    drop(host.read);
    host.served.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_of_the_stateless_revision_needs_no_beginning() {
    let world = World::new();
    let mut host = Host::of(world.proxy(1));
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;
    let discover =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{{{meta}}}}}"#);
    let discovered = host.ask(&discover).await;
    let versions = discovered.pointer("/result/supportedVersions").and_then(Value::as_array);
    assert!(versions.is_some_and(|all| all.contains(&Value::from("2026-07-28"))), "{discovered:?}");
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"write","arguments":{{"n":1}},{meta}}}}}"#
    );
    let answer = host.ask(&call).await;
    assert_eq!(text(&answer), r#"{"ok":true}"#);
    assert_eq!(answer.pointer("/result/resultType"), Some(&Value::from("complete")));
    assert_eq!(world.tools.effects("write"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_message_is_answered_and_the_next_one_is_heard() {
    let world = World::new();
    let mut host = Host::of(world.proxy(1));
    host.begin().await;
    for (line, code) in [
        ("{", -32_700),
        (
            r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"write","arguments":{"n":1,"n":2}}}"#,
            -32_700,
        ),
        (r#"{"jsonrpc":"2.0","id":2}"#, -32_600),
    ] {
        let answer = host.ask(line).await;
        assert_eq!(answer.pointer("/error/code").and_then(Value::as_i64), Some(code), "{line}");
    }
    let call = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"write","arguments":[]}}"#;
    let answer = host.ask(call).await;
    assert!(answer.get("error").is_some(), "{answer:?}");
    assert_eq!(world.tools.effects("write"), 0);
    let answer = host.ask(r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#).await;
    assert!(answer.get("result").is_some(), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_wants_to_know_is_told_that_its_call_waits() {
    let world = World::new();
    let settings = portcullis_server::proxy::Settings {
        hold: std::time::Duration::from_secs(15),
        ..world.settings()
    };
    let mut host = Host::of(world.proxy_with(1, settings));
    host.begin().await;
    host.say(r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"send","arguments":{"n":1},"_meta":{"progressToken":"p"}}}"#)
        .await;
    let notice = host.hear().await;
    assert_eq!(notice.get("method").and_then(Value::as_str), Some("notifications/progress"));
    assert_eq!(notice.pointer("/params/progressToken").and_then(Value::as_str), Some("p"));
    // The host gives up: the hold ends, the question stays, and other calls go on.
    host.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#)
        .await;
    let answer = host.ask(r#"{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"look","arguments":{"n":1}}}"#).await;
    assert_eq!(answer.get("id").and_then(Value::as_i64), Some(6));
    assert_eq!(world.open_questions().len(), 1);
}

/// A host that reads nothing, and is asked by nobody to: two pipes, so that each can be closed alone.
struct Deaf {
    write: DuplexStream,
    /// What it would read.
    _read: DuplexStream,
    served: tokio::task::JoinHandle<Result<(), portcullis_mcp::ServeError>>,
}

impl Deaf {
    async fn begin(served: Arc<dyn Served>) -> Self {
        let ((write, theirs), (ours, read)) = (tokio::io::duplex(4096), tokio::io::duplex(64));
        let served = tokio::spawn(serve(served, theirs, ours, std::future::pending()));
        let mut host = Self { write, _read: read, served };
        host.say(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#).await.unwrap();
        host.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await.unwrap();
        host
    }

    async fn say(&mut self, line: &str) -> std::io::Result<()> {
        self.write.write_all(format!("{line}\n").as_bytes()).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_reads_nothing_can_leave() {
    let world = World::new();
    let mut host = Deaf::begin(world.proxy(1)).await;
    host.say(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#).await.unwrap();
    drop(host.write);
    host.served.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_asks_without_end_and_reads_nothing_is_left() {
    let world = World::new();
    let mut host = Deaf::begin(world.proxy(1)).await;
    // Its number comes back with each answer, so that a hundred of them would wait with as many mebibytes.
    let number = "x".repeat(1 << 20);
    let mut asked = 0;
    while host.say(&format!(r#"{{"jsonrpc":"2.0","id":"{number}","method":"ping"}}"#)).await.is_ok()
    {
        asked += 1;
        assert!(asked < 200, "it goes on for ever");
    }
    assert!(asked > 32, "a host may be slow: {asked}");
    host.served.await.unwrap().unwrap();
}
