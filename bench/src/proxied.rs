//! What the proxy adds to a call of an MCP server, beside the same server called directly, over a pipe and over HTTP.
//!
//! Calls are made in turn, a read each with arguments of its own, with the database in memory: what is left beside the
//! server's own time is what the proxy costs beside its commits.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use portcullis::canon::{Limits, Value, parse};

use crate::figures::{self, load, median, micros, ratio};
use crate::start;

/// The word that makes this program be a server of so many tools.
pub(crate) const CHILD: &str = "proxied-server";

const ROUNDS: i64 = 2_000;

/// Calls that are on their way at once.
const PARALLEL: i64 = 100;

/// What the proxy may add to a call beside its commits, in milliseconds at the median.
const MAX_ADDED_MS: f64 = 0.3;

/// What it may take to list and verify a thousand tools, in milliseconds.
const MAX_LISTED_MS: f64 = 300.0;

/// What the proxy may take with ten servers, in MiB.
const MAX_MIB: f64 = 40.0;

/// Measures and prints; `place` is a folder in memory.
pub(crate) fn report(place: &Path) -> Result<()> {
    println!("\n## the proxy beside the same server called directly (load {})\n", load());
    let program = start::program()?;
    added(&program, place)?;
    listed(&program, place)?;
    ten(&program, place)
}

/// The same call, made directly, through a pipe and over HTTP, in turn.
fn added(program: &Path, place: &Path) -> Result<()> {
    let house = House::of(program, place, 1, 5)?;
    let mut direct = Line::begin(&mut server(5)?)?;
    let mut piped = Line::begin(&mut house.command(&["proxy"]))?;
    let mut door = Door::begin(&house)?;
    let mut samples = [const { Vec::new() }; 3];
    for n in 0..ROUNDS {
        let mut sample = |place: usize, begun: Instant| {
            if let Some(samples) = samples.get_mut(place) {
                samples.push(micros(begun.elapsed()) / 1e3);
            }
        };
        let begun = Instant::now();
        direct.ask(&call(n, "t0"))?;
        sample(0, begun);
        let begun = Instant::now();
        piped.ask(&call(n, "s0_t0"))?;
        sample(1, begun);
        let begun = Instant::now();
        // Arguments of their own: the record knows those of the pipe.
        door.ask(&call(n.saturating_add(ROUNDS), "s0_t0"))?;
        sample(2, begun);
    }
    let [direct_ms, piped_ms, door_ms] = samples.map(|samples| median(&samples));
    println!("direct {direct_ms:.3} ms, over a pipe {piped_ms:.3} ms, over HTTP {door_ms:.3} ms");
    ratio("ms that the proxy adds beside its commits", piped_ms - direct_ms, Some(MAX_ADDED_MS));
    ratio("ms that the proxy adds over HTTP", door_ms - direct_ms, Some(MAX_ADDED_MS));
    let begun = Instant::now();
    for n in 0..PARALLEL {
        piped.send(&call(n.saturating_add(4 * ROUNDS), "s0_t0"))?;
    }
    for _ in 0..PARALLEL {
        piped.hear()?;
    }
    let all_ms = micros(begun.elapsed()) / 1e3;
    ratio(&format!("ms for {PARALLEL} calls at once through the proxy"), all_ms, None);
    Ok(())
}

/// A thousand tools, listed by their server and held against what was pinned.
fn listed(program: &Path, place: &Path) -> Result<()> {
    let house = House::of(program, place, 1, 1_000)?;
    let mut samples = [const { Vec::new() }; 2];
    for _ in 0..20 {
        for (arguments, samples) in [["check"], ["--version"]].iter().zip(&mut samples) {
            let begun = Instant::now();
            let status = house.command(arguments).stdout(Stdio::null()).status()?;
            samples.push(micros(begun.elapsed()) / 1e3);
            ensure!(status.success(), "{arguments:?} ended with {status}");
        }
    }
    let [checked, nothing] = samples.map(|samples| median(&samples));
    let name = "ms to start a server and list and verify 1,000 tools";
    ratio(name, checked - nothing, Some(MAX_LISTED_MS));
    Ok(())
}

/// The memory of the proxy's own process, with ten servers behind it that were all called.
fn ten(program: &Path, place: &Path) -> Result<()> {
    let house = House::of(program, place, 10, 20)?;
    let mut piped = Line::begin(&mut house.command(&["proxy"]))?;
    for n in 0..200 {
        piped.ask(&call(n, &format!("s{}_t{}", n % 10, n % 20)))?;
    }
    let status = format!("/proc/{}/status", piped.child.id());
    #[allow(clippy::cast_precision_loss, reason = "some thousand KiB")]
    let mib = figures::field(&status, "VmHWM:")? as f64 / 1024.0;
    ratio("MiB at the peak, the proxy with ten servers", mib, Some(MAX_MIB));
    Ok(())
}

fn call(n: i64, tool: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{n},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"n":{n}}}}}}}"#
    )
}

/// The server without a gate.
fn server(tools: usize) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(CHILD).arg(tools.to_string());
    Ok(command)
}

/// A home with servers that are pinned, and rules for each of their tools.
struct House {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl House {
    fn of(program: &Path, place: &Path, servers: usize, tools: usize) -> Result<Self> {
        let folder = tempfile::tempdir_in(place)?;
        let own = std::env::current_exe()?;
        let mut rules = String::new();
        for s in 0..servers {
            let own = own.display();
            writeln!(
                rules,
                "[mcp.servers.s{s}]\ncommand = '{own}'\nargs = ['{CHILD}', '{tools}']\nmanifest = 's{s}.json'"
            )?;
            for t in 0..tools {
                writeln!(rules, "[mcp.servers.s{s}.tools.t{t}]\neffect = 'read_only'")?;
            }
        }
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600);
        file.open(folder.path().join("rules.toml"))?.write_all(rules.as_bytes())?;
        let house = Self { folder, program: program.to_owned() };
        for s in 0..servers {
            let pinned =
                house.command(&["pin", &format!("s{s}")]).stdout(Stdio::null()).status()?;
            ensure!(pinned.success(), "the server is not pinned: {pinned}");
        }
        Ok(house)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        let place = self.folder.path();
        command.arg("-c").arg(place.join("rules.toml")).args(arguments).env("HOME", place);
        command
    }
}

/// A server at the other end of a pipe.
struct Line {
    child: Child,
    write: ChildStdin,
    read: BufReader<ChildStdout>,
}

impl Line {
    fn begin(command: &mut Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let write = child.stdin.take().context("no standard input")?;
        let read = BufReader::new(child.stdout.take().context("no standard output")?);
        let mut line = Self { child, write, read };
        line.ask(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#)?;
        line.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)?;
        Ok(line)
    }

    fn send(&mut self, message: &str) -> Result<()> {
        Ok(writeln!(self.write, "{message}")?)
    }

    fn hear(&mut self) -> Result<()> {
        let mut line = String::new();
        self.read.read_line(&mut line)?;
        right(&line)
    }

    fn ask(&mut self, message: &str) -> Result<()> {
        self.send(message)?;
        self.hear()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The proxy at the other end of one connection over HTTP.
struct Door {
    child: Child,
    read: BufReader<TcpStream>,
    head: String,
}

impl Door {
    fn begin(house: &House) -> Result<Self> {
        let mut command = house.command(&["proxy", "--listen", "127.0.0.1:0", "--json"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let said = BufReader::new(child.stderr.take().context("no standard error")?);
        let mut told = None;
        for line in said.lines() {
            let line = parse(line?.as_bytes(), &Limits::BARE)?;
            if line.get("url").is_some() {
                told = Some(line);
                break;
            }
        }
        let told = told.context("it does not listen")?;
        let text = |key| told.get(key).and_then(Value::as_str).context("the note misses a member");
        let place = text("url")?.trim_start_matches("http://").trim_end_matches("/mcp");
        let token = std::fs::read_to_string(text("token_file")?)?;
        let stream = TcpStream::connect(place)?;
        stream.set_nodelay(true)?;
        let head = format!(
            "POST /mcp HTTP/1.1\r\nhost: {place}\r\nauthorization: Bearer {}\r\naccept: application/json, text/event-stream\r\n\
             content-type: application/json\r\n",
            token.trim_end()
        );
        Ok(Self { child, read: BufReader::new(stream), head })
    }

    fn ask(&mut self, message: &str) -> Result<()> {
        let request = format!("{}content-length: {}\r\n\r\n{message}", self.head, message.len());
        self.read.get_mut().write_all(request.as_bytes())?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            ensure!(self.read.read_line(&mut line)? > 0, "the connection ended");
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        self.read.read_exact(&mut body)?;
        right(&String::from_utf8(body)?)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether an answer is the result, of the server itself where it is one of a call.
fn right(answer: &str) -> Result<()> {
    let fits = answer.contains(r#""result""#) && !answer.contains(r#""isError":true"#);
    ensure!(fits, "this is no result: {answer}");
    Ok(())
}

/// The child: a server that answers by the letter and does nothing.
pub(crate) fn child(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let tools: usize = arguments.next().context("how many tools?")?.parse()?;
    let listing: Vec<String> = (0..tools)
        .map(|t| {
            format!(
                r#"{{"name":"t{t}","description":"Reads what is under a number.","inputSchema":{{"type":"object","properties":{{"n":{{"type":"integer"}}}}}},"annotations":{{"readOnlyHint":true}}}}"#
            )
        })
        .collect();
    let listing = format!(r#"{{"tools":[{}]}}"#, listing.join(","));
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let message = parse(line?.as_bytes(), &Limits::ENVELOPE)?;
        let Some(id) = message.get("id") else { continue };
        let id = id.to_canonical_string();
        let method = message.get("method").and_then(Value::as_str).unwrap_or_default();
        let answer = match method {
            "initialize" => {
                r#""result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}"#.to_owned()
            }
            "tools/list" => format!(r#""result":{listing}"#),
            "tools/call" => r#""result":{"content":[{"type":"text","text":"seven"}]}"#.to_owned(),
            _ => r#""error":{"code":-32601,"message":"no"}"#.to_owned(),
        };
        writeln!(out, r#"{{"jsonrpc":"2.0","id":{id},{answer}}}"#)?;
        out.flush()?;
    }
    Ok(())
}
