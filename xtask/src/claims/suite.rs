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

/// How long one test may take while nothing is broken; some build a crate of their own.
pub(super) const WHOLE_LIMIT: Duration = Duration::from_secs(900);

/// How long one test may take afterwards: a mutation may well make it wait for ever.
pub(super) const BROKEN_LIMIT: Duration = Duration::from_secs(180);

/// The name of the binary of a package's integration tests.
const INTEGRATION: &str = "it";

/// A checkout, or a copy of one, and where it is built.
pub(crate) struct Place {
    /// The root of the sources.
    pub(crate) root: PathBuf,
    /// The target folder; cargo's own choice when absent.
    pub(crate) target: Option<PathBuf>,
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
    /// It was stopped at its limit.
    TimedOut,
    /// The binary ran no test of that name, or ignores it.
    NotRun,
}

/// The test binaries of one package that are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Needed<'a> {
    /// The package.
    pub(super) package: &'a str,
    /// Its unit tests.
    pub(super) unit: bool,
    /// Its integration tests.
    pub(super) integration: bool,
}

impl<'a> Needed<'a> {
    /// What these tests need, in the order in which their packages come up.
    pub(super) fn by(tests: impl IntoIterator<Item = &'a str>) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for (package, path) in tests.into_iter().filter_map(|test| test.split_once("::")) {
            let integration = integration(path).is_some();
            match all.iter_mut().find(|needed| needed.package == package) {
                Some(needed) => {
                    needed.unit |= !integration;
                    needed.integration |= integration;
                }
                None => all.push(Self { package, unit: !integration, integration }),
            }
        }
        all
    }

    /// What to say to cargo. Integration tests may start the package's examples, which cargo builds only when no
    /// kind of target is named.
    fn arguments(self, member: &Member, has_examples: bool) -> Vec<&'static str> {
        let unit = if member.has_lib { "--lib" } else { "--bins" };
        match (self.unit, self.integration) {
            (_, true) if has_examples => Vec::new(),
            (unit_too, true) => {
                let mut arguments = vec!["--test", INTEGRATION];
                arguments.extend(unit_too.then_some(unit));
                arguments
            }
            (_, false) => vec![unit],
        }
    }
}

/// The path within the integration binary, when the name says that the test is there.
fn integration(path: &str) -> Option<&str> {
    path.strip_prefix(INTEGRATION)?.strip_prefix("::")
}

/// Builds all test binaries of the workspace. A failed build is an error.
pub(super) fn build_all(root: &Path, members: &[Member], place: &Place) -> Result<Suite> {
    let built = cargo_test(root, members, place, &["--workspace", "--tests"])?;
    built.map_err(|message| anyhow::anyhow!("the tests do not build:\n{message}"))
}

/// Builds the test binaries of one package; the inner error is what the compiler says.
pub(super) fn build(
    root: &Path,
    members: &[Member],
    place: &Place,
    needed: Needed<'_>,
) -> Result<Result<Suite, String>> {
    let Some(member) = members.iter().find(|member| member.name == needed.package) else {
        bail!("there is no package `{}`", needed.package);
    };
    let has_examples = place.root.join(&member.folder).join("examples").is_dir();
    let mut arguments = vec!["--package", needed.package];
    arguments.extend(needed.arguments(member, has_examples));
    cargo_test(root, members, place, &arguments)
}

fn cargo_test(
    root: &Path,
    members: &[Member],
    place: &Place,
    arguments: &[&str],
) -> Result<Result<Suite, String>> {
    let mut command = process::cargo(root);
    command.current_dir(&place.root).arg("test").args(arguments);
    command.args(["--no-run", "--locked", "--profile", "ci"]);
    command.args(["--message-format", "json-render-diagnostics"]);
    into_target(&mut command, place);
    let output = command.stdin(Stdio::null()).output().context("cargo cannot start")?;
    if !output.status.success() {
        return Ok(Err(diagnosis(&String::from_utf8_lossy(&output.stderr))));
    }
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(Ok(Suite { binaries: binaries(&messages, members, &place.root) }))
}

/// Has cargo build into the place's own target folder.
pub(crate) fn into_target(command: &mut Command, place: &Place) {
    if let Some(target) = &place.target {
        // One small change after the other: here what the profile switches off pays.
        command.env("CARGO_TARGET_DIR", target).env("CARGO_INCREMENTAL", "1");
    }
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
        // Only test builds: the same message announces plain executables, whose target may be tested too.
        let profile = line.split_once("\"profile\":{").and_then(|(_, rest)| rest.split_once('}'));
        if !profile.is_some_and(|(profile, _)| profile.contains("\"test\":true")) {
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
    /// The test that a claim's name means, or none when there is no such test.
    pub(super) fn find<'a>(&'a self, name: &'a str) -> Result<Vec<Found<'a>>> {
        let Some((package, path)) = name.split_once("::") else {
            bail!("`{name}` is no test name: write package::path::to::test");
        };
        let inside = integration(path);
        let path = inside.unwrap_or(path);
        let mut found = Vec::new();
        for binary in self.binaries.iter().filter(|binary| binary.package == package) {
            if (binary.name == INTEGRATION) == inside.is_some() {
                let test = binary.tests()?.iter().find(|test| **test == path);
                found.extend(test.map(|test| Found { binary, test }));
            }
        }
        Ok(found)
    }

    /// The same suite with the binaries of another package.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.binaries.extend(other.binaries);
        self
    }

    /// A suite without binaries.
    pub(super) const fn empty() -> Self {
        Self { binaries: Vec::new() }
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
    /// Runs this test alone, for no longer than `limit`.
    pub(super) fn run(&self, target: Option<&Path>, limit: Duration) -> Result<Ended> {
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
            if started.elapsed() > limit {
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

    #[test]
    fn only_the_binaries_that_tests_name_are_built() {
        let needed = |tests: &[&'static str]| Needed::by(tests.iter().copied());
        let unit = needed(&["p-a::a::one"]);
        assert_eq!(unit, [Needed { package: "p-a", unit: true, integration: false }]);
        assert_eq!(unit[0].arguments(&member(), true), ["--lib"]);
        let both = needed(&["p-b::it::a", "p-a::it::a::one", "p-a::two", "p-b::it::b"]);
        assert_eq!(both[0], Needed { package: "p-b", unit: false, integration: true });
        assert_eq!(both[1].arguments(&member(), false), ["--test", "it", "--lib"]);
        assert!(both[1].arguments(&member(), true).is_empty());
        let program = Member { has_lib: false, ..member() };
        assert_eq!(unit[0].arguments(&program, false), ["--bins"]);
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
    fn a_name_finds_its_test_in_the_binary_that_it_names() {
        let tree = Scratch::new("find");
        let suite = scripted(&tree, "printf 'a::one: test\\nb::two: bench\\n'");
        assert_eq!(suite.find("p-a::it::a::one").expect("lists").len(), 1);
        for absent in ["p-a::a::one", "p-a::it::a", "p-a::it::b::two", "p-b::it::a::one"] {
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
            let found = suite.find("p-a::it::one").expect("lists");
            found[0].run(None, WHOLE_LIMIT).expect("runs")
        };
        assert_eq!(ended_of("pass", "echo 'test result: ok. 1 passed; 0 failed'"), Ended::Passed);
        assert_eq!(ended_of("fail", "exit 101"), Ended::Failed);
        assert_eq!(
            ended_of("none", "echo 'test result: ok. 0 passed; 0 failed; 1 ignored'"),
            Ended::NotRun
        );
    }
}
