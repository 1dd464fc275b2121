//! `cargo xtask test --live-local`: a real model server on this machine, asked by the product through its own adapter.
//!
//! llama.cpp comes prebuilt with a package for Node, in exactly the versions of `xtask/live-local/package-lock.json`; npm
//! checks their digests and runs none of their scripts. The model is made on the spot. What cannot be had is a skip with
//! its reason, which counts.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::runners::{self, Counts};
use crate::{process, provision, skips};

/// The server and what it needs, below the root.
const SOURCES: &str = "xtask/live-local";

/// What is copied beside the packages, since a module finds packages beside itself.
const FILES: [&str; 5] =
    ["package.json", "package-lock.json", "grammar.mjs", "model.mjs", "server.mjs"];

/// Where it is installed, below the root.
const PLACE: &str = "target/live-local";

/// Names the server to the test.
const VARIABLE: &str = "PORTCULLIS_LIVE_LOCAL";

/// How long the server may take to make its model and to load it.
const START: Duration = Duration::from_secs(60);

/// Installs and starts the server, runs the test against it, and stops it; true when it holds, or was skipped.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let started = Instant::now();
    let counts = match install(root)? {
        Ok(place) => {
            println!("installed in {:.1} s", started.elapsed().as_secs_f64());
            ask(root, &place)?
        }
        Err(reason) => {
            println!("portcullis-skip: {reason}");
            Counts { passed: 0, failed: 0, skipped: 1 }
        }
    };
    println!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped);
    Ok(counts.failed == 0)
}

/// The folder with the server and its packages, or why they cannot be had.
fn install(root: &Path) -> Result<Result<PathBuf, String>> {
    if !provision::node()? {
        return Ok(Err("node 20 or newer, with npm, cannot be had on this machine".to_owned()));
    }
    let place = root.join(PLACE);
    fs::create_dir_all(&place)?;
    let fresh = same(root, &place, "package-lock.json");
    for file in FILES {
        fs::copy(root.join(SOURCES).join(file), place.join(file))
            .with_context(|| format!("{SOURCES}/{file} cannot be copied"))?;
    }
    if fresh && place.join("node_modules/.package-lock.json").is_file() {
        return Ok(Ok(place));
    }
    let mut npm = Command::new("npm");
    // Not `ci`, which refuses a lock without the packages of other platforms; the lock's versions and digests hold all the same.
    npm.args(["install", "--ignore-scripts", "--omit=optional", "--no-save"]);
    npm.args(["--no-audit", "--no-fund"]).current_dir(&place);
    if !process::show(&mut npm)? {
        return Ok(Err("npm cannot install llama.cpp for this machine".to_owned()));
    }
    if !same(root, &place, "package-lock.json") {
        bail!("npm took other versions than {SOURCES}/package-lock.json names");
    }
    Ok(Ok(place))
}

fn same(root: &Path, place: &Path, file: &str) -> bool {
    let ours = fs::read(root.join(SOURCES).join(file));
    matches!((ours, fs::read(place.join(file))), (Ok(ours), Ok(there)) if ours == there)
}

/// Runs the test against a server of its own.
fn ask(root: &Path, place: &Path) -> Result<Counts> {
    let mut build = test(root);
    if !process::show(build.arg("--no-run"))? {
        bail!("the test does not build");
    }
    let server = Server::start(place)?;
    println!("a model server listens on {}", server.base);
    let file = skips::start(root)?;
    let mut command = test(root);
    command.env(VARIABLE, &server.base).env(skips::VARIABLE, &file);
    command.args(["live_local", "--", "--nocapture"]);
    let kept = process::show_and_keep(&mut command)?;
    let Some(counts) = runners::count_cargo(&kept.text) else {
        bail!("the test told no result");
    };
    judge(counts, kept.ok, skips::read(&file)?.tests)
}

/// With a server there is nothing to skip, and a name that matches no test is no green.
fn judge(counts: Counts, ok: bool, skipped: usize) -> Result<Counts> {
    if skipped > 0 || counts.passed + counts.failed == 0 {
        bail!("the server is there, and it was not asked");
    }
    if !ok && counts.failed == 0 {
        bail!("the test's program failed");
    }
    Ok(counts)
}

fn test(root: &Path) -> Command {
    let mut command = process::cargo(root);
    command.args([
        "test",
        "--locked",
        "--profile",
        "ci",
        "--package",
        "portcullis",
        "--test",
        "it",
    ]);
    command
}

/// A server that ends with this value.
struct Server {
    child: Child,
    base: String,
}

impl Server {
    fn start(place: &Path) -> Result<Self> {
        let mut command = Command::new("node");
        command.arg("server.mjs").arg(place.join("tiny.gguf")).current_dir(place);
        // It ends with its standard input, so that it outlives nobody who started it.
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().context("node cannot start")?;
        let mut server = Self { child, base: String::new() };
        let out = server.child.stdout.take().context("the server has no output")?;
        let (say, said) = mpsc::channel();
        thread::spawn(move || {
            // Read to its end, so that the server never waits for somebody to read.
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let _nobody_waits = say.send(line);
            }
        });
        let deadline = Instant::now() + START;
        let port = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = said.recv_timeout(left).context("the server does not start")?;
            if let Some(port) = port(&line) {
                break port;
            }
        };
        server.base = format!("http://127.0.0.1:{port}");
        Ok(server)
    }
}

/// The port in `{"port":12345}`.
fn port(line: &str) -> Option<u16> {
    line.trim().strip_prefix("{\"port\":")?.strip_suffix('}')?.parse().ok()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_says_its_port_in_one_line() {
        assert_eq!(port("{\"port\":40123}\n"), Some(40123));
        for other in ["{\"port\":70000}", "port 1", "", "{\"port\":1,\"x\":2}"] {
            assert_eq!(port(other), None, "{other}");
        }
    }

    #[test]
    fn what_was_not_asked_is_not_green() {
        let counts = |passed, failed| Counts { passed, failed, skipped: 0 };
        assert_eq!(judge(counts(1, 0), true, 0).expect("held"), counts(1, 0));
        assert_eq!(judge(counts(0, 1), false, 0).expect("told"), counts(0, 1));
        assert!(judge(counts(0, 0), true, 0).is_err());
        assert!(judge(counts(1, 0), true, 1).is_err());
        assert!(judge(counts(1, 0), false, 0).is_err());
    }

    #[test]
    fn each_package_is_pinned_with_a_digest_and_no_address() {
        let root = crate::workspace::root().expect("root");
        let read = |file| fs::read_to_string(root.join(SOURCES).join(file)).expect("a file");
        for file in FILES {
            assert!(!read(file).is_empty(), "{file}");
        }
        let lock = read("package-lock.json");
        let packages = lock.matches("\"node_modules/").count();
        assert!(packages > 50, "{packages}");
        assert_eq!(lock.matches("\"integrity\": \"sha512-").count(), packages);
        assert!(!lock.contains("\"resolved\""));
        let wanted = read("package.json");
        assert!(!wanted.contains('^') && !wanted.contains('~'), "ranges are no pins");
    }
}
