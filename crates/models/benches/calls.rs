//! What an adapter costs beside the network, as a difference to the same exchange by the HTTP library alone, and what 200
//! replies at once that come in pieces take. `cargo bench -p portcullis-models --bench calls`. Nothing here is asserted:
//! figures are for reading. The server is this program once more, so that its memory is not counted.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench reads the clock, prints, and stops at the first surprise"
)]

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use portcullis_canon::{Object, Value};
use portcullis_domain::label::Labels;
use portcullis_domain::ports::{
    Model, ModelCall, ModelName, ModelOutcome, Price, Projection, Watch,
};
use portcullis_egress::{Credentials, Egress, EgressRules};
use portcullis_models::{Dialect, Head, OverEgress, Provider, ProviderConfig, Turn};
use portcullis_testkit::ports::ManualClock;

/// The argument that makes a server of this program.
const SERVE: &str = "--serve";

/// Replies at once.
const STREAMS: usize = 200;

/// Pieces of each of them, of about a kilobyte, so that the text of one is 256 KiB.
const PIECES: usize = 256;

/// Exchanges that are measured, after as many that are not.
const CALLS: usize = 400;

/// A reply that comes whole.
const WHOLE: &str = r#"{"choices":[{"finish_reason":"stop","message":{"role":"assistant","content":"Well."}}],"usage":{"prompt_tokens":11,"completion_tokens":7}}"#;

/// Answers one connection after the other request, each on a thread; those that want pieces meet half way.
fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap());
    let all = Arc::new(Barrier::new(STREAMS));
    for stream in listener.incoming() {
        let all = Arc::clone(&all);
        // A connection that ends is no surprise here.
        std::thread::spawn(move || drop(stream.and_then(|stream| converse(stream, &all))));
    }
}

fn converse(stream: TcpStream, all: &Barrier) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let (mut length, mut line) = (0, String::new());
        while reader.read_line(&mut line)? > 2 {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            line.clear();
        }
        if line.is_empty() {
            return Ok(());
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        if String::from_utf8_lossy(&body).contains("\"stream\":true") {
            pieces(&stream, all)?;
        } else {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
            write!(&stream, "{head} {}\r\n\r\n{WHOLE}", WHOLE.len())?;
        }
    }
}

fn chunk(mut stream: &TcpStream, data: &str) -> std::io::Result<()> {
    let event = format!("data: {data}\n\n");
    write!(stream, "{:x}\r\n{event}\r\n", event.len())
}

fn pieces(mut stream: &TcpStream, all: &Barrier) -> std::io::Result<()> {
    let text = "x".repeat(1024);
    let piece =
        format!(r#"{{"choices":[{{"delta":{{"content":"{text}"}},"finish_reason":null}}]}}"#);
    stream.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
    )?;
    for nth in 0..PIECES {
        if nth == PIECES / 2 {
            all.wait();
        }
        chunk(stream, &piece)?;
    }
    chunk(stream, r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#)?;
    chunk(stream, "[DONE]")?;
    stream.write_all(b"0\r\n\r\n")
}

/// The server's process, which ends with this.
struct Server(Child, String);

impl Server {
    fn start() -> Self {
        let own = std::env::current_exe().unwrap();
        let mut child = Command::new(own).arg(SERVE).stdout(Stdio::piped()).spawn().unwrap();
        let mut base = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut base).unwrap();
        Self(child, format!("http://{}", base.trim()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.0.kill().and_then(|()| self.0.wait());
    }
}

fn provider(base: &str) -> Provider {
    let clock = Arc::new(ManualClock::default());
    let credentials = Credentials::new([]).unwrap();
    let rules = EgressRules::closed().loopback();
    let egress = Egress::new(rules, credentials, Arc::<ManualClock>::clone(&clock)).unwrap();
    let config = ProviderConfig {
        name: ModelName::read("p:m").unwrap(),
        dialect: Dialect::OpenAi,
        base: base.to_owned(),
        credential: None,
        marked_for: BTreeSet::new(),
        price: Price::Free,
    };
    Provider::new(config, Arc::new(OverEgress::new(egress, clock))).unwrap()
}

fn call(watch: Option<Watch>) -> ModelCall {
    let head = Head {
        model: "m".to_owned(),
        system: "Be brief.".to_owned(),
        tools: [].into(),
        max_output_tokens: 100,
        strict_tools: false,
        extra: Object::from_iter([("temperature", Value::from(0_u64))]),
    };
    let turn = Dialect::OpenAi.turn(&Turn::User("a question of some length. ".repeat(300)));
    let body = Dialect::OpenAi.frame(&head).unwrap().around(&[&turn]);
    let projection = Projection::of(u64::try_from(body.len()).unwrap(), 100);
    ModelCall { request: 0, projection, body: body.into(), labels: Labels::none(), watch }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// The adapter, and the library alone, turn and turn about, so that both see the same machine.
async fn overhead(base: &str) {
    let provider = provider(base);
    // The library asks for it, though nothing here is encrypted.
    tokio_rustls::rustls::crypto::ring::default_provider().install_default().unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("{base}/chat/completions");
    let call = call(None);
    let (mut adapter, mut alone) = (Vec::new(), Vec::new());
    for nth in 0..2 * CALLS {
        let begun = Instant::now();
        let outcome = provider.attempt(call.clone()).await;
        let took = begun.elapsed();
        assert!(matches!(outcome, ModelOutcome::Reply(_)), "{outcome:?}");
        let begun = Instant::now();
        let request = client.post(&url).header("content-type", "application/json");
        let answer = request.body(call.body.to_vec()).send().await.unwrap();
        let read = answer.bytes().await.unwrap();
        let plain = begun.elapsed();
        assert_eq!(read.as_ref(), WHOLE.as_bytes());
        if nth >= CALLS {
            adapter.push(took);
            alone.push(plain);
        }
    }
    let (adapter, alone) = (median(adapter), median(alone));
    println!("a call through the adapter, median   {adapter:>10.1?}");
    println!("the same by the HTTP library alone   {alone:>10.1?}");
    println!("what the adapter adds (at most 200 µs) {:>8.1?}", adapter.saturating_sub(alone));
}

/// A field of this process's status, in KiB.
fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Replies that are all under way at once, since the server lets none go on before all have come half way.
async fn streams(base: &str) {
    let provider = Arc::new(provider(base));
    let before = status("VmRSS:");
    let begun = Instant::now();
    let calls: Vec<_> = (0..STREAMS)
        .map(|_| {
            let provider = Arc::clone(&provider);
            tokio::spawn(async move { provider.attempt(call(Some(Watch::new(|_| {})))).await })
        })
        .collect();
    for made in calls {
        let outcome = made.await.unwrap();
        let ModelOutcome::Reply(reply) = outcome else { panic!("{outcome:?}") };
        assert_eq!(reply.text.len(), PIECES * 1024);
    }
    let took = begun.elapsed();
    let grown = status("VmHWM:").saturating_sub(before);
    let each = grown / u64::try_from(STREAMS).unwrap();
    println!("{STREAMS} replies at once, of {PIECES} KiB each, on two threads: {took:.1?}");
    println!("memory at the peak for each (at most 2048 KiB) {each:>6} KiB");
}

fn main() {
    if std::env::args().any(|argument| argument == SERVE) {
        return serve();
    }
    let server = Server::start();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    // First the memory, since a peak does not fall again.
    runtime.block_on(streams(&server.1));
    runtime.block_on(overhead(&server.1));
}
