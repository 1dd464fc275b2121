//! A program of this machine that listens on a port of loopback and says which in its first line of JSON.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// How long it may take to say its port.
const START: Duration = Duration::from_secs(60);

/// How long it may take to end what it started itself, and how often that is looked at.
const END: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(10);

/// The program; it ends with this value.
pub(crate) struct Listening {
    child: Child,
    /// Its port.
    pub(crate) port: u16,
}

impl Listening {
    /// Starts it, and waits until it says `{"port":N}`. It ends with its standard input, so that it outlives nobody who
    /// started it.
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().with_context(|| format!("{program} cannot start"))?;
        let mut started = Self { child, port: 0 };
        let stream = started.child.stdout.take();
        let said = lines(stream.context("the program has no output")?);
        let deadline = Instant::now() + START;
        while started.port == 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            let line =
                said.recv_timeout(left).with_context(|| format!("{program} does not start"))?;
            started.port = port(&line).unwrap_or(0);
        }
        Ok(started)
    }
}

/// Reads to the end, so that the program never waits for somebody to read.
fn lines(stream: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (say, said) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let _nobody_waits = say.send(line);
        }
    });
    said
}

/// The port in `{"port":12345}`.
fn port(line: &str) -> Option<u16> {
    line.trim().strip_prefix("{\"port\":")?.strip_suffix('}')?.parse().ok()
}

impl Drop for Listening {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + END;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(LOOK);
        }
        let _gone_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        shell
    }

    #[test]
    fn a_program_says_its_port_in_one_line() {
        assert_eq!(port("{\"port\":40123}\n"), Some(40123));
        for other in ["{\"port\":70000}", "port 1", "", "{\"port\":1,\"x\":2}"] {
            assert_eq!(port(other), None, "{other}");
        }
    }

    #[test]
    fn it_is_heard_past_other_lines_and_gone_with_the_value() {
        let started = Listening::start(shell("echo noise; echo '{\"port\":4711}'; exec cat"));
        let started = started.expect("it says its port");
        assert_eq!(started.port, 4711);
        let id = started.child.id();
        drop(started);
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists(), "{id}");
        let silent = Listening::start(shell("echo nothing")).err().expect("it says no port");
        assert!(silent.to_string().contains("sh does not start"), "{silent}");
    }
}
