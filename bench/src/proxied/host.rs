//! An MCP host: it starts a server, with the gate before it or without, and calls.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use portcullis::canon::{Limits, Value, parse};

/// A server that was started, and its pipes.
pub(crate) struct Host {
    child: Child,
    write: Option<ChildStdin>,
    read: BufReader<ChildStdout>,
    asked: i64,
}

impl Host {
    /// Starts it and says hello.
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let (write, read) = (child.stdin.take(), child.stdout.take().context("no output")?);
        let mut host = Self { child, write, read: BufReader::new(read), asked: 0 };
        let hello = r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}"#;
        host.send("initialize", hello)?;
        host.hear()?;
        host.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)?;
        Ok(host)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lists the tools, and says how many there are.
    pub(crate) fn list(&mut self) -> Result<usize> {
        self.send("tools/list", "{}")?;
        let (_, result) = self.hear()?;
        Ok(result.get("tools").and_then(Value::as_array).context("no list of tools")?.len())
    }

    /// Makes one call and takes its time.
    pub(crate) fn call(&mut self, tool: &str, record: u64) -> Result<Duration> {
        let begun = Instant::now();
        self.send_call(tool, record)?;
        self.hear_seen()?;
        Ok(begun.elapsed())
    }

    /// Makes this many calls at once and takes the time until the last one is answered.
    pub(crate) fn call_many(&mut self, tool: &str, from: u64, count: u64) -> Result<Duration> {
        let begun = Instant::now();
        for number in 0..count {
            self.send_call(tool, from + number)?;
        }
        let mut open: BTreeSet<i64> =
            (self.asked - i64::try_from(count)? + 1..=self.asked).collect();
        while !open.is_empty() {
            let id = self.hear_seen()?;
            ensure!(open.remove(&id), "{id} was answered twice, or never asked");
        }
        Ok(begun.elapsed())
    }

    /// Ends it, as a host does.
    pub(crate) fn end(mut self) -> Result<()> {
        drop(self.write.take());
        let status = self.child.wait()?;
        ensure!(status.success(), "it ended with {status}");
        Ok(())
    }

    fn send_call(&mut self, tool: &str, record: u64) -> Result<()> {
        self.send(
            "tools/call",
            &format!(r#"{{"name":"{tool}","arguments":{{"record":{record}}}}}"#),
        )
    }

    fn send(&mut self, method: &str, params: &str) -> Result<()> {
        self.asked += 1;
        let id = self.asked;
        self.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#))
    }

    fn say(&mut self, line: &str) -> Result<()> {
        let write = self.write.as_mut().context("it was ended")?;
        write.write_all(format!("{line}\n").as_bytes())?;
        Ok(())
    }

    /// The next answer that has the result of the tool.
    fn hear_seen(&mut self) -> Result<i64> {
        let (id, result) = self.hear()?;
        let text = result.pointer("/content/0/text").and_then(Value::as_str);
        ensure!(
            text.is_some_and(|text| text.contains("seen")),
            "a call was answered with {}",
            result.to_canonical_string()
        );
        Ok(id)
    }

    /// The next answer: the number of what was asked, and the result.
    fn hear(&mut self) -> Result<(i64, Value)> {
        loop {
            let mut line = String::new();
            ensure!(self.read.read_line(&mut line)? > 0, "it closed its output");
            let message = parse(line.trim_end().as_bytes(), &Limits::ENVELOPE)?;
            let Some(id) = message.get("id").and_then(Value::as_i64) else { continue };
            let result = message.get("result").with_context(|| format!("no result: {line}"))?;
            return Ok((id, result.clone()));
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // After an error; one that ended is no error.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}
