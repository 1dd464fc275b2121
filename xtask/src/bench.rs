//! `cargo xtask bench`: every bench target, then the bench program, in release; the ratios that they print, together.
//! With `--peers` instead: the same loops through other systems and through ours, and what a kill does to each.
//!
//! Ratios are shown and never fail the command: a busy machine is no broken product. `--write` puts what was measured
//! into `docs/benchmarks.md`.

mod figures;
mod machine;
mod page;
mod peers;
mod ratios;

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::bench::machine::Machine;
use crate::bench::ratios::Ratio;
use crate::process::{self, Kept};
use crate::table;
use crate::workspace::{Member, target};

/// The package of whole-program benches.
const PROGRAM: &str = "portcullis-bench";

/// The package of the command, which the bench program starts.
const COMMAND: &str = "portcullis-cli";

/// What the command line of `bench` says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Whether the page gets what is measured.
    write: bool,
    /// The peers instead of our own benches.
    peers: Option<peers::Extent>,
    /// What goes to the bench program.
    passed: Vec<String>,
}

impl Options {
    /// Reads the words after `bench`; those that are not for this command go to the bench program.
    pub(crate) fn read(arguments: &[String]) -> Result<Self> {
        let mut options = Self { write: false, peers: None, passed: Vec::new() };
        for argument in arguments {
            match argument.as_str() {
                "--write" => options.write = true,
                "--peers" => options.peers = Some(peers::Extent::default()),
                _ => options.passed.push(argument.clone()),
            }
        }
        if let Some(extent) = &mut options.peers {
            for argument in std::mem::take(&mut options.passed) {
                extent.read(&argument)?;
            }
        }
        if options.write && options.passed.iter().any(|word| !word.starts_with('-')) {
            bail!("--write puts all figures into the page: leave the names of benches out");
        }
        Ok(options)
    }
}

/// Runs what was asked for; true when everything could be run.
pub(crate) fn run(root: &Path, members: &[Member], options: &Options) -> Result<bool> {
    // Marks that are missing are found before the minutes of measuring.
    if options.write {
        page::check(root)?;
    }
    match &options.peers {
        Some(extent) => peers::run(root, extent, options.write),
        None => own(root, members, options),
    }
}

fn own(root: &Path, members: &[Member], options: &Options) -> Result<bool> {
    let mut outputs = Vec::new();
    let with_targets: Vec<&Member> = members
        .iter()
        .filter(|member| !member.benches.is_empty() && member.name != PROGRAM)
        .collect();
    for member in &with_targets {
        println!("{}: {}", member.name, member.benches.join(", "));
        let mut command = process::cargo(root);
        command.args(["bench", "--locked", "--package", &member.name, "--bench", "*"]);
        outputs.push(process::show_and_keep(&mut command)?);
    }
    let mut tables = String::new();
    let mut machine = Machine::of(root)?;
    if members.iter().any(|member| member.name == PROGRAM) {
        build(root)?;
        machine = Machine::of(root)?;
        let kept = process::show_and_keep(program(root).args(&options.passed))?;
        tables.clone_from(&kept.text);
        outputs.push(kept);
    }
    if outputs.is_empty() {
        println!("no package has benches yet");
    }
    let ratios: Vec<Ratio> = outputs.iter().flat_map(|kept| ratios::read(&kept.text)).collect();
    let rows: Vec<Vec<String>> = ratios.iter().map(Ratio::row).collect();
    if !rows.is_empty() {
        println!("\n{}", table::render(&ratios::HEAD, &rows));
    }
    let well = outputs.iter().all(|kept: &Kept| kept.ok);
    if options.write {
        if !well {
            bail!("nothing is written: a bench failed");
        }
        let rest = ratios::without(&tables);
        let table = page::table(&ratios::HEAD, &rows);
        let body = format!("{}\n{table}\nAs printed:\n\n```text\n{rest}\n```\n", machine.told());
        page::write(root, page::OWN, &body)?;
    }
    Ok(well)
}

/// Builds the bench program and the command, so that nothing is compiled while something is measured.
fn build(root: &Path) -> Result<()> {
    let mut command = process::cargo(root);
    command.args(["build", "--release", "--locked", "--package", PROGRAM, "--package", COMMAND]);
    if !process::show(&mut command)? {
        bail!("the bench program does not build");
    }
    Ok(())
}

/// The bench program as it was built. It would build the command if it knew of a cargo.
fn program(root: &Path) -> Command {
    let mut program = Command::new(target(root).join("release").join(PROGRAM));
    program.env_remove("CARGO");
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Result<Options> {
        Options::read(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_not_for_the_command_goes_to_the_program() {
        let read = options("steps --quick").expect("options");
        assert!(!read.write && read.peers.is_none());
        assert_eq!(read.passed, ["steps", "--quick"]);
    }

    #[test]
    fn the_page_gets_all_figures_or_none() {
        let read = options("--write --quick --big=1024").expect("options");
        assert_eq!((read.write, read.passed.len()), (true, 2));
        let told = options("steps --write").expect_err("one bench alone").to_string();
        assert!(told.contains("leave the names"), "{told}");
    }

    #[test]
    fn peers_have_their_own_words() {
        let read = options("--peers --rounds=2 --kills=4").expect("options");
        assert!(read.peers.is_some() && read.passed.is_empty() && !read.write);
        assert!(options("--peers --big").is_err());
        assert!(options("--rounds=2 --peers").expect("options").peers.is_some());
    }
}
