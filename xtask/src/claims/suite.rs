//! The built test binaries: which there are, which tests they hold, and running one test.
//!
//! The binaries are started directly, since they are what cargo and nextest both start: one test is then a matter of
//! milliseconds, and a test that never ends can be stopped with all that it started.

use std::cell::OnceCell;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::process;
use crate::workspace::Member;

/// How long one test may take; a mutation may well make a test wait for ever.
const TEST_LIMIT: Duration = Duration::from_secs(300);

/// A checkout, or a copy of one, and where it is built.
pub(super) struct Place {
    /// The root of the sources.
    pub(super) root: PathBuf,
    /// The target folder; cargo's own choice when absent.
    pub(super) target: Option<PathBuf>,
}

impl Place {
    /// The checkout itself, built where the tests were built.
    pub(super) fn checkout(root: &Path) -> Self {
        Self { root: root.to_path_buf(), target: None }
    }
}

/// One test binary.
#[derive(Debug)]
struct Binary {
    package: String,
    /// `it` for the integration tests, the crate's name for unit tests.
    name: String,
    path: PathBuf,
    /// The package's folder: tests run there.
    folder: PathBuf,
    tests: OnceCell<Vec<String>>,
}

/// The test binaries of a build.
#[derive(Debug)]
pub(super) struct Suite {
    binaries: Vec<Binary>,
}

/// One test in one binary.
#[derive(Clone, Debug)]
pub(super) struct Found<'a> {
    binary: &'a Binary,
    test: &'a str,
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It ran and passed.
    Passed,
    /// It ran and failed.
    Failed,
    /// It was stopped after [`TEST_LIMIT`].
    TimedOut,
    /// The binary ran no test of that name, or ignores it.
    NotRun,
}

/// Builds the test binaries of the packages, or of all when none is named. A failed build is an error.
pub(super) fn build(
    root: &Path,
    members: &[Member],
    place: &Place,
    packages: &[&str],
) -> Result<Suite> {
    match try_build(root, members, place, packages)? {
        Ok(suite) => Ok(suite),
        Err(message) => bail!("the tests do not build:\n{message}"),
    }
}

/// Builds like [`build`]; the inner error is what the compiler says.
pub(super) fn try_build(
    root: &Path,
    members: &[Member],
    place: &Place,
    packages: &[&str],
) -> Result<Result<Suite, String>> {
    let mut command = process::cargo(root);
    command.current_dir(&place.root);
    command.args([
        "test",
        "--tests",
        "--no-run",
        "--locked",
        "--profile",
        "ci",
        "--message-format",
        "json-render-diagnostics",
    ]);
    if packages.is_empty() {
        command.arg("--workspace");
    }
    for package in packages {
        command.args(["--package", package]);
    }
    if let Some(target) = &place.target {
        command.env("CARGO_TARGET_DIR", target);
    }
    let output = command.stdin(Stdio::null()).output().context("cargo cannot start")?;
    if !output.status.success() {
        return Ok(Err(diagnosis(&String::from_utf8_lossy(&output.stderr))));
    }
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(Ok(Suite { binaries: binaries(&messages, members, &place.root) }))
}

/// The last lines of cargo's text for people, which end with the reason.
fn diagnosis(stderr: &str) -> String {
    let lines: Vec<&str> =
        stderr.lines().filter(|line| !line.trim_start().starts_with("Compiling")).collect();
    lines.iter().skip(lines.len().saturating_sub(12)).copied().collect::<Vec<_>>().join("\n")
}

/// Reads cargo's messages: those that carry an executable of a member.
fn binaries(messages: &str, members: &[Member], root: &Path) -> Vec<Binary> {
    let mut binaries = Vec::new();
    for line in messages.lines() {
        let executable = field(line, "\"executable\":\"");
        let (Some(path), Some(package)) = (executable, field(line, "\"package_id\":\"")) else {
            continue;
        };
        let Some(target) =
            line.split_once("\"target\":").and_then(|(_, rest)| field(rest, "\"name\":\""))
        else {
            continue;
        };
        // Only test builds: the same message announces plain executables. A target also has a field of that name.
        let profile = line.split_once("\"profile\":").map_or("", |(_, rest)| rest);
        if !profile.contains("\"test\":true}") {
            continue;
        }
        let member = members.iter().find(|member| {
            let folder = root.join(&member.folder);
            let id = package.split_once("file://").map_or("", |(_, rest)| rest);
            let id = id.split_once('#').map_or(id, |(folder, _)| folder);
            Path::new(id) == folder
        });
        if let Some(member) = member {
            binaries.push(Binary {
                package: member.name.clone(),
                name: target.to_owned(),
                path: PathBuf::from(path),
                folder: root.join(&member.folder),
                tests: OnceCell::new(),
            });
        }
    }
    binaries
}

/// The string after `key` in one line of JSON; our paths and names hold no quotes.
fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_once(key)?.1.split_once('"').map(|(value, _)| value)
}

impl Suite {
    /// The tests that a claim's name means: one, or none when there is no such test.
    pub(super) fn find<'a>(&'a self, name: &'a str) -> Result<Vec<Found<'a>>> {
        let Some((package, path)) = name.split_once("::") else {
            bail!("`{name}` is no test name: write package::path::to::test");
        };
        let mut found = Vec::new();
        for binary in self.binaries.iter().filter(|binary| binary.package == package) {
            let inside = path.strip_prefix(&binary.name).and_then(|rest| rest.strip_prefix("::"));
            let known = binary.tests()?;
            let test = known
                .iter()
                .find(|test| **test == path || inside.is_some_and(|inside| **test == inside));
            found.extend(test.map(|test| Found { binary, test }));
        }
        Ok(found)
    }
}

impl Binary {
    fn tests(&self) -> Result<&[String]> {
        if self.tests.get().is_none() {
            let listed = process::keep(self.command().args(["--list", "--format", "terse"]))?;
            let _first = self.tests.set(listed_tests(&listed));
        }
        Ok(self.tests.get().map(Vec::as_slice).unwrap_or_default())
    }

    /// The binary as cargo would start it.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder);
        command.env("CARGO_MANIFEST_DIR", &self.folder);
        command.env("CARGO_MANIFEST_PATH", self.folder.join("Cargo.toml"));
        command.env("CARGO_PKG_NAME", &self.package);
        command
    }
}

fn listed_tests(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.strip_suffix(": test").map(str::to_owned)).collect()
}

impl Found<'_> {
    /// Runs this test alone.
    pub(super) fn run(&self, target: Option<&Path>) -> Result<Ended> {
        let mut command = self.binary.command();
        command.args(["--exact", self.test]);
        if let Some(target) = target {
            command.env("CARGO_TARGET_DIR", target);
        }
        // A group of its own, so that what the test starts ends with it.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("a test binary cannot start")?;
        let stdout = child.stdout.take().context("a test binary has no output")?;
        let reader = thread::spawn(move || std::io::read_to_string(stdout).unwrap_or_default());
        let started = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if started.elapsed() > TEST_LIMIT {
                break None;
            }
            thread::sleep(Duration::from_millis(10));
        };
        // What is left of the group would hold the pipe open. The shell's own `kill`, since not every machine has the
        // program.
        let kill_group = format!("kill -KILL -- -{}", child.id());
        process::works(Command::new("sh").args(["-c", &kill_group]));
        let Some(status) = status else {
            child.kill()?;
            child.wait()?;
            return Ok(Ended::TimedOut);
        };
        let output = reader.join().unwrap_or_default();
        Ok(ended(status.success(), &output))
    }
}

/// Judges one run: a passing run counts only when the test really ran.
fn ended(success: bool, output: &str) -> Ended {
    if !success {
        return Ended::Failed;
    }
    let ran = output.lines().any(|line| line.starts_with("test result: ok. 1 passed;"));
    if ran { Ended::Passed } else { Ended::NotRun }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn member() -> Member {
        Member {
            name: "p-a".to_owned(),
            folder: "crates/a".to_owned(),
            features: Vec::new(),
            benches: Vec::new(),
            declared_tests: Vec::new(),
            has_lib: true,
        }
    }

    #[test]
    fn test_binaries_are_read_from_the_messages() {
        let line = |executable: &str, test: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"package_id\":\"path+file:///x/crates/a#p-a@0.1.0\",\
                 \"target\":{{\"kind\":[\"test\"],\"name\":\"it\",\"test\":true}},\"profile\":{{\"test\":{test}}},\
                 \"executable\":{executable}}}\n"
            )
        };
        let messages =
            line("\"/t/it-1\"", "true") + &line("null", "true") + &line("\"/t/bin\"", "false");
        let found = binaries(&messages, &[member()], Path::new("/x"));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].package.as_str(), found[0].name.as_str()), ("p-a", "it"));
        assert_eq!(found[0].path, Path::new("/t/it-1"));
    }

    fn scripted(tree: &Scratch, body: &str) -> Suite {
        let path = tree.path().join("fake");
        // Another process writes it: were it open for writing here while another test starts a program, that program
        // would hold it open too, and the kernel would refuse to start it.
        let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$2\" && chmod 755 \"$2\"";
        assert!(process::works(Command::new("sh").args(["-c", write, "sh", body]).arg(&path)));
        let binary = Binary {
            package: "p-a".to_owned(),
            name: "it".to_owned(),
            path,
            folder: tree.path().to_path_buf(),
            tests: OnceCell::new(),
        };
        Suite { binaries: vec![binary] }
    }

    #[test]
    fn a_name_finds_its_test_with_and_without_the_binary() {
        let tree = Scratch::new("find");
        let suite = scripted(&tree, "printf 'a::one: test\\nb::two: bench\\n'");
        assert_eq!(suite.find("p-a::a::one").expect("lists").len(), 1);
        assert_eq!(suite.find("p-a::it::a::one").expect("lists").len(), 1);
        for absent in ["p-a::a", "p-a::b::two", "p-b::a::one", "p-a::other::a::one"] {
            assert!(suite.find(absent).expect("lists").is_empty(), "{absent}");
        }
        assert!(suite.find("one").is_err());
    }

    #[test]
    fn a_run_tells_passed_failed_and_not_run_apart() {
        let ended_of = |name: &str, body: &str| {
            let tree = Scratch::new(name);
            let body = format!("[ \"$1\" = --list ] && {{ echo 'one: test'; exit 0; }}\n{body}");
            let suite = scripted(&tree, &body);
            let found = suite.find("p-a::one").expect("lists");
            found[0].run(None).expect("runs")
        };
        assert_eq!(ended_of("pass", "echo 'test result: ok. 1 passed; 0 failed'"), Ended::Passed);
        assert_eq!(ended_of("fail", "exit 101"), Ended::Failed);
        assert_eq!(
            ended_of("none", "echo 'test result: ok. 0 passed; 0 failed; 1 ignored'"),
            Ended::NotRun
        );
    }
}
