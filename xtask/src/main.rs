//! The project's automation: `cargo xtask <command>`.

#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "automation reads files and the environment and starts cargo"
)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]

mod arrows;
mod bench;
mod claims;
mod conformance;
mod crash_grid;
mod listening;
mod live_local;
mod npm;
mod official;
mod process;
mod provision;
mod runners;
#[cfg(test)]
mod scratch;
mod simulate;
mod skips;
mod stages;
mod table;
mod tidy;
mod workspace;

use std::env;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use crate::stages::Run;

const USAGE: &str = "\
usage: cargo xtask <command>

  test [STAGE…]       everything that must hold before a merge, in stages; the last line is
                      `N passed, N failed, N skipped`
  test --live-local   a model server on this machine (llama.cpp from npm, random weights), asked through the gate;
                      installed below the build folder; about half a minute when the tests are built
  test --mcp          the official conformance suite of MCP against a server alone and behind the gate, check by check;
                      installed below the build folder; about two minutes when the command is built
  tidy                headers, sizes, error pages, reached files, words, leaked paths, crate documents
  arrows              the dependency arrows, with cargo tree
  clippy [PACKAGE…]   the lints as `test` runs them
  claims              docs/claims.toml: the page made from it is current, the tests it names exist;
                      docs/acceptance.md: it is whole, the tests it names exist
  claims --write      make docs/security.md from it
  claims --mutate [--only ID]…
                      break the product for each claim, in a copy, and require that a test fails
  claims --compile [--all]
                      plant each mutation and each fault of the grid and the simulation, in a copy, and require
                      that it compiles; only what changed since it last did, or all
  simulate [--seeds N] [--from S] | --seed S [--trace] | --model | --faults [ID…]
                      seeded histories of the engine against an oracle; a model explored exhaustively; planted
                      faults that have to be found
  crash-grid [--quick | --shard K/N | --all] [--story NAME]… [--store sqlite|memory|command]
                      kill runs at every point of their life, take them up again and count what happened;
                      without a choice a shard of about a minute and a half; the grid is kept in
                      target/crash-grid/grid.txt
  crash-grid --faults [ID…]
                      plant each fault of crash-grid/faults.toml, in a copy, and require that the grid finds it
  bench [--write] [ARGUMENT…]
                      the benches, in release; arguments go to the bench program
  bench --peers [--write] [--quick] [--rounds=N] [--kills=N]
                      the same loops through LangGraph, DBOS, Salvor and ours, and a kill in them;
                      the peers are installed below the build folder.
                      --write puts what was measured into docs/benchmarks.md

exit codes: 0 all well, 1 something does not hold, 2 usage
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let Some((command, rest)) = arguments.split_first() else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    match dispatch(command, rest) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) if error.is::<Usage>() => {
            eprint!("{error}\n\n{USAGE}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A command line that says nothing we know.
#[derive(Debug)]
struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

fn dispatch(command: &str, rest: &[String]) -> Result<bool> {
    if ["help", "--help", "-h"].contains(&command) {
        print!("{USAGE}");
        return Ok(true);
    }
    let root = workspace::root()?;
    let members = workspace::members(&root).context("the workspace cannot be read")?;
    let run = Run { root: &root, members: &members };
    match command {
        "test" if rest == ["--live-local"] => live_local::run(&root),
        "test" if rest == ["--mcp"] => conformance::run(&root),
        "test" => stages::run(&run, rest),
        "tidy" if rest.is_empty() => Ok(tell("tidy", &stages::tidy_findings(&run)?)),
        "arrows" if rest.is_empty() => Ok(tell("arrows", &arrows::check(&root, &members)?)),
        "clippy" => stages::clippy(&run, rest),
        "claims" => claims::run(&root, &members, &claims_options(rest)?),
        "simulate" => simulate::run(&root, rest),
        "crash-grid" => crash_grid::run(&root, rest),
        "bench" => {
            let options = bench::Options::read(rest).map_err(|error| Usage(error.to_string()))?;
            bench::run(&root, &members, &options)
        }
        _ => bail!(Usage(format!("not understood: {command} {}", rest.join(" ")))),
    }
}

fn tell(name: &str, findings: &[String]) -> bool {
    for finding in findings {
        println!("{finding}");
    }
    println!("{name}: {} findings", findings.len());
    findings.is_empty()
}

fn claims_options(arguments: &[String]) -> Result<claims::Options> {
    let mut options = claims::Options::default();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--write" => options.write = true,
            "--mutate" => options.mutate = true,
            "--compile" => options.compile = true,
            "--all" => options.all = true,
            "--only" => {
                let id = arguments
                    .next()
                    .ok_or_else(|| Usage("--only needs the id of a claim".to_owned()))?;
                options.only.push(id.clone());
            }
            other => bail!(Usage(format!("not understood: claims {other}"))),
        }
    }
    let one_thing =
        [options.write, options.mutate, options.compile].iter().filter(|chosen| **chosen).count();
    if one_thing > 1
        || (!options.mutate && !options.only.is_empty())
        || (options.all && !options.compile)
    {
        bail!(Usage(
            "--write, --mutate and --compile stand alone; --only goes with --mutate, --all with --compile"
                .to_owned()
        ));
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Result<claims::Options> {
        claims_options(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn claims_options_are_read() {
        let read = options("--mutate --only a --only b").expect("options");
        assert!(read.mutate && !read.write);
        assert_eq!(read.only, ["a", "b"]);
        assert!(!options("").expect("options").mutate);
    }

    #[test]
    fn options_that_make_no_sense_are_usage_errors() {
        let read = options("--compile --all").expect("options");
        assert!(read.compile && read.all);
        for text in ["--only", "--only a", "--write --mutate", "--all", "--compile --write"] {
            assert!(options(text).expect_err("usage").is::<Usage>(), "{text}");
        }
    }
}
