//! `cargo xtask test`: the stages in order, the table of their times, and the line for machines.
//!
//! A stage that fails does not stop those after it, unless they need what it makes; so one run tells everything. Each
//! stage that is no test runner counts as one, so that the last line is never green beside a red stage.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::runners::{self, Counts};
use crate::workspace::Member;
use crate::{arrows, claims, crash_grid, official, process, provision, skips, table, tidy};

/// What the stages work on.
pub(crate) struct Run<'a> {
    /// The checkout.
    pub(crate) root: &'a Path,
    /// Its packages.
    pub(crate) members: &'a [Member],
}

/// How a stage ended.
#[derive(Debug)]
enum Ended {
    /// The stage's check holds.
    Held,
    /// The stage is a test runner and counted; false when the runner itself reports a failure.
    Counted(Counts, bool),
    /// It cannot be made here; the reason.
    Skipped(String),
    /// There is nothing to check in this workspace.
    Nothing(&'static str),
    /// What it found.
    Broken(Vec<String>),
}

struct Stage {
    name: &'static str,
    /// Whether later stages are pointless when this one is broken.
    foundation: bool,
    /// Whether it is left out when a foundation is broken.
    needs_build: bool,
    run: fn(&Run<'_>) -> Result<Ended>,
}

const STAGES: &[Stage] = &[
    Stage { name: "machine", foundation: true, needs_build: false, run: machine },
    Stage { name: "fmt", foundation: false, needs_build: false, run: fmt },
    Stage { name: "tidy", foundation: false, needs_build: false, run: tidy_stage },
    Stage { name: "arrows", foundation: false, needs_build: true, run: arrows_stage },
    Stage { name: "deny", foundation: false, needs_build: true, run: deny },
    Stage { name: "build", foundation: true, needs_build: true, run: build },
    Stage { name: "tests", foundation: false, needs_build: true, run: tests },
    Stage { name: "crash-grid", foundation: false, needs_build: true, run: crash_grid_stage },
    Stage { name: "doctests", foundation: false, needs_build: true, run: doctests },
    Stage { name: "clippy", foundation: false, needs_build: true, run: clippy_stage },
    Stage { name: "features", foundation: false, needs_build: true, run: features },
    Stage { name: "claims", foundation: false, needs_build: true, run: claims_stage },
];

/// One line of the report.
struct Row {
    name: &'static str,
    result: String,
    counts: Counts,
    time: Duration,
}

/// Runs the named stages, or all when none is named; true when all is well.
pub(crate) fn run(run: &Run<'_>, only: &[String]) -> Result<bool> {
    for name in only {
        if !STAGES.iter().any(|stage| stage.name == name) {
            let names: Vec<&str> = STAGES.iter().map(|stage| stage.name).collect();
            bail!("there is no stage `{name}`: {}", names.join(", "));
        }
    }
    let mut rows = Vec::new();
    let mut well = true;
    let mut founded = true;
    for stage in
        STAGES.iter().filter(|stage| only.is_empty() || only.iter().any(|name| name == stage.name))
    {
        if stage.needs_build && !founded {
            rows.push(Row {
                name: stage.name,
                result: "not run".to_owned(),
                counts: Counts::default(),
                time: Duration::ZERO,
            });
            continue;
        }
        println!("\n== {} ==", stage.name);
        let started = Instant::now();
        // A stage that could not be carried out is a broken stage: the others still tell what they find.
        let ended =
            (stage.run)(run).unwrap_or_else(|error| Ended::Broken(vec![format!("{error:#}")]));
        let (result, counts, held) = report(&ended);
        well &= held;
        founded &= held || !stage.foundation;
        rows.push(Row { name: stage.name, result, counts, time: started.elapsed() });
    }
    println!("\n{}", summary(&rows));
    Ok(well)
}

/// Prints what a stage found; gives the word for the table, what it counts for, and whether it holds.
fn report(ended: &Ended) -> (String, Counts, bool) {
    let one = |passed, failed, skipped| Counts { passed, failed, skipped };
    match ended {
        Ended::Held => ("ok".to_owned(), one(1, 0, 0), true),
        Ended::Nothing(reason) => {
            println!("nothing to do: {reason}");
            ("nothing to do".to_owned(), Counts::default(), true)
        }
        Ended::Skipped(reason) => {
            println!("skipped: {reason}");
            ("skipped".to_owned(), one(0, 0, 1), true)
        }
        Ended::Counted(counts, true) if counts.failed == 0 => ("ok".to_owned(), *counts, true),
        // A runner may fail without a failed test, for instance when a binary dies.
        Ended::Counted(counts, _) => {
            ("FAILED".to_owned(), Counts { failed: counts.failed.max(1), ..*counts }, false)
        }
        Ended::Broken(findings) => {
            for finding in findings {
                println!("{finding}");
            }
            ("FAILED".to_owned(), one(0, 1, 0), false)
        }
    }
}

/// The table of the stages and, as the last line alone, the sums.
fn summary(rows: &[Row]) -> String {
    let mut total = Counts::default();
    let mut time = Duration::ZERO;
    let mut cells = Vec::new();
    let mut line = |name: &str, result: &str, counts: Counts, time: Duration| {
        let numbers = [counts.passed, counts.failed, counts.skipped].map(|count| count.to_string());
        let mut row = vec![name.to_owned(), result.to_owned()];
        row.extend(numbers);
        row.push(format!("{:.1} s", time.as_secs_f64()));
        cells.push(row);
    };
    for row in rows {
        total = total.plus(row.counts);
        time += row.time;
        line(row.name, &row.result, row.counts, row.time);
    }
    line("all", "", total, time);
    let table = table::render(&["stage", "result", "passed", "failed", "skipped", "time"], &cells);
    format!("{table}\n{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped)
}

fn machine(run: &Run<'_>) -> Result<Ended> {
    provision::toolchain(run.root)?;
    provision::c_compiler()?;
    if !provision::python()? {
        println!(
            "python3 is missing and cannot be installed here: the tests that need it will count as skipped"
        );
    }
    Ok(Ended::Held)
}

fn fmt(run: &Run<'_>) -> Result<Ended> {
    if !provision::component(run.root, "fmt", "rustfmt") {
        return Ok(Ended::Skipped("rustfmt is not installed and rustup cannot add it".to_owned()));
    }
    let held = process::show(process::cargo(run.root).args(["fmt", "--all", "--check"]))?;
    Ok(held_or(held, "run `cargo fmt --all`"))
}

fn tidy_stage(run: &Run<'_>) -> Result<Ended> {
    findings(tidy_findings(run)?)
}

/// The findings of `tidy`, after the largest functions were printed.
pub(crate) fn tidy_findings(run: &Run<'_>) -> Result<Vec<String>> {
    let files = tidy::files(run.root)?;
    println!("the largest functions, for information:");
    for function in tidy::largest(&files, 10) {
        println!("  {:>4} lines  {}  {}", function.lines, function.name, function.place);
    }
    Ok(tidy::check(run.root, run.members, &files))
}

fn arrows_stage(run: &Run<'_>) -> Result<Ended> {
    let found = arrows::check(run.root, run.members)?;
    println!("{} packages, every edge looked up", run.members.len());
    findings(found)
}

fn deny(run: &Run<'_>) -> Result<Ended> {
    if !provision::subcommand(run.root, "deny") {
        return Ok(Ended::Skipped(
            "cargo-deny is not installed, and building it takes longer than the tests".to_owned(),
        ));
    }
    let mut command = process::cargo(run.root);
    command.args(["deny", "--locked", "check", "bans", "licenses", "sources"]);
    Ok(held_or(process::show(&mut command)?, "see deny.toml"))
}

fn build(run: &Run<'_>) -> Result<Ended> {
    let mut command = process::cargo(run.root);
    command.args(["build", "--workspace", "--all-targets", "--locked", "--profile", "ci"]);
    Ok(held_or(process::show(&mut command)?, "the workspace does not build"))
}

fn tests(run: &Run<'_>) -> Result<Ended> {
    let nextest = provision::subcommand(run.root, "nextest");
    if !nextest {
        println!("cargo-nextest is not installed: cargo's own runner takes its place");
    }
    if let Err(reason) = official::PACKAGES.install(run.root)? {
        println!("{reason}: the tests with the official MCP servers will count as skipped");
    }
    let file: PathBuf = skips::start(run.root)?;
    let kept =
        process::show_and_keep(runners::tests(run.root, nextest).env(skips::VARIABLE, &file))?;
    let count = if nextest { runners::count_nextest } else { runners::count_cargo };
    let Some(counts) = count(&kept.text) else {
        bail!("the test runner told no result");
    };
    let skips = skips::read(&file)?;
    for line in &skips.lines {
        println!("portcullis-skip: {line}");
    }
    Ok(Ended::Counted(counts.with_skips(skips.tests), kept.ok))
}

fn crash_grid_stage(run: &Run<'_>) -> Result<Ended> {
    if !crash_grid::present(run.root) {
        return Ok(Ended::Nothing("no crash-grid/faults.toml"));
    }
    findings(crash_grid::stage(run.root)?)
}

fn doctests(run: &Run<'_>) -> Result<Ended> {
    let kept = process::show_and_keep(&mut runners::doctests(run.root))?;
    match runners::count_cargo(&kept.text) {
        Some(counts) => Ok(Ended::Counted(counts, kept.ok)),
        None => bail!("the examples told no result"),
    }
}

fn clippy_stage(run: &Run<'_>) -> Result<Ended> {
    if !provision::component(run.root, "clippy", "clippy") {
        return Ok(Ended::Skipped("clippy is not installed and rustup cannot add it".to_owned()));
    }
    Ok(held_or(clippy(run, &[])?, "clippy has warnings"))
}

/// Lints twice: the product with the bans of `clippy.toml`, then everything without them, since tests may open files,
/// read the clock and start programs.
pub(crate) fn clippy(run: &Run<'_>, packages: &[String]) -> Result<bool> {
    let passes: [(&[&str], &[&str]); 2] = [
        (product(run.members, packages), &["-D", "warnings"]),
        (&["--all-targets"], &["-D", "warnings", "-A", "clippy::disallowed_methods"]),
    ];
    let mut held = true;
    for (targets, lints) in passes {
        let mut command = process::cargo(run.root);
        command.args(["clippy", "--locked", "--profile", "ci"]).args(targets);
        if packages.is_empty() {
            command.arg("--workspace");
        }
        for package in packages {
            command.args(["--package", package]);
        }
        command.arg("--").args(lints);
        held &= process::show(&mut command)?;
    }
    Ok(held)
}

/// What names the product of these packages to cargo, which refuses `--lib` where none of them has a library.
fn product(members: &[Member], packages: &[String]) -> &'static [&'static str] {
    let chosen = |member: &&Member| packages.is_empty() || packages.contains(&member.name);
    let has_lib = members.iter().filter(chosen).any(|member| member.has_lib);
    if has_lib { &["--lib", "--bins"] } else { &["--bins"] }
}

fn features(run: &Run<'_>) -> Result<Ended> {
    let mut held = true;
    let mut any = false;
    for member in run.members.iter().filter(|member| !member.features.is_empty()) {
        any = true;
        for bare in [&[][..], &["--no-default-features"][..]] {
            let mut command = process::cargo(run.root);
            command
                .args(["check", "--locked", "--profile", "ci", "--package", &member.name])
                .args(bare);
            held &= process::show(&mut command)?;
        }
    }
    if !any {
        return Ok(Ended::Nothing("no package has features"));
    }
    Ok(held_or(held, "a package does not build alone with its bare defaults"))
}

fn claims_stage(run: &Run<'_>) -> Result<Ended> {
    if !claims::present(run.root) {
        return Ok(Ended::Skipped(format!("there is no {}", claims::LIST)));
    }
    findings(claims::check(run.root, run.members)?)
}

fn held_or(held: bool, otherwise: &str) -> Ended {
    if held { Ended::Held } else { Ended::Broken(vec![otherwise.to_owned()]) }
}

fn findings(found: Vec<String>) -> Result<Ended> {
    Ok(if found.is_empty() { Ended::Held } else { Ended::Broken(found) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static str, ended: &Ended) -> Row {
        let (result, counts, _) = report(ended);
        Row { name, result, counts, time: Duration::from_millis(1_500) }
    }

    #[test]
    fn the_last_line_stands_alone_and_sums_all_stages() {
        let counts = Counts { passed: 40, failed: 0, skipped: 2 };
        let rows = [
            row("fmt", &Ended::Held),
            row("deny", &Ended::Skipped("absent".to_owned())),
            row("tests", &Ended::Counted(counts, true)),
            row("features", &Ended::Nothing("none")),
            row("claims", &Ended::Broken(vec!["x".to_owned()])),
        ];
        let text = summary(&rows);
        assert_eq!(text.lines().last(), Some("41 passed, 1 failed, 3 skipped"));
        assert!(text.contains("tests     ok                 40       0        2  1.5 s"), "{text}");
    }

    #[test]
    fn a_runner_that_fails_without_a_failed_test_is_a_failure() {
        let counts = Counts { passed: 3, failed: 0, skipped: 0 };
        let (result, counts, held) = report(&Ended::Counted(counts, false));
        assert_eq!((result.as_str(), counts.failed, held), ("FAILED", 1, false));
    }

    #[test]
    fn a_package_without_a_library_is_linted_by_its_programs() {
        let root = crate::workspace::root().expect("root");
        let members = crate::workspace::members(&root).expect("members");
        let of = |names: &[&str]| {
            product(&members, &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of(&["xtask"]), ["--bins"]);
        for names in [&[][..], &["xtask", "portcullis-canon"]] {
            assert_eq!(of(names), ["--lib", "--bins"], "{names:?}");
        }
    }

    #[test]
    fn an_unknown_stage_is_refused() {
        let nothing = Run { root: Path::new("/"), members: &[] };
        let error = run(&nothing, &["speed".to_owned()]).expect_err("no such stage");
        assert!(error.to_string().contains("no stage `speed`"));
    }

    #[test]
    fn stages_that_need_the_build_come_after_it() {
        let at = |name: &str| STAGES.iter().position(|stage| stage.name == name).expect("a stage");
        for name in ["tests", "doctests", "claims"] {
            assert!(at("build") < at(name), "{name}");
        }
    }
}
