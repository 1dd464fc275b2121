//! `cargo xtask bench --peers`: the same loops, and the same kills in them, through other systems and through ours.
//!
//! Every side is a driver: a program with the command line that `bench/peers/driver.py` describes. A round runs each of
//! them once, in turns, on one disk; a ratio is made within a round, so that all meet the same neighbours.

mod drivers;
mod install;
mod kills;
mod loops;

use std::num::NonZeroU32;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::bench::machine::Machine;
use crate::bench::page;
use crate::bench::peers::drivers::Driver;
use crate::table;
use crate::workspace::target;

/// How much is measured.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    rounds: u32,
    kills: u32,
    lengths: Vec<u32>,
}

impl Default for Extent {
    fn default() -> Self {
        Self { rounds: 5, kills: 10, lengths: vec![100, 400] }
    }
}

impl Extent {
    /// Takes one word of the command line.
    pub(crate) fn read(&mut self, word: &str) -> Result<()> {
        let count = |text: &str| -> Result<u32> {
            let count: NonZeroU32 =
                text.parse().with_context(|| format!("`{word}` has no number from 1 on"))?;
            Ok(count.get())
        };
        match word.split_once('=') {
            Some(("--rounds", text)) => self.rounds = count(text)?,
            Some(("--kills", text)) => self.kills = count(text)?,
            None if word == "--quick" => {
                *self = Self { rounds: 1, kills: 4, lengths: vec![100] };
            }
            _ => bail!("`{word}` is none of --rounds=N, --kills=N, --quick, --write"),
        }
        Ok(())
    }
}

/// A table with its title.
struct Measured {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// Sentences below the table: settings, versions, what failed.
    notes: Vec<String>,
}

impl Measured {
    fn print(&self, title: &str) {
        println!("\n## {title}\n\n{}", table::render(&self.head, &self.rows));
        self.notes.iter().for_each(|note| println!("{note}"));
    }

    fn body(&self, machine: &Machine, skips: &[String]) -> String {
        let list = |lines: &[String]| -> String {
            lines.iter().map(|line| format!("- {line}\n")).collect()
        };
        let skipped = match skips {
            [] => "No peer was skipped.\n".to_owned(),
            some => format!("{} skipped:\n\n{}", some.len(), list(some)),
        };
        let table = page::table(&self.head, &self.rows);
        let mut parts = vec![machine.told(), table, list(&self.notes), skipped];
        parts.retain(|part| !part.is_empty());
        parts.join("\n")
    }
}

/// Installs, measures, prints, and writes when asked; true when every driver did what it should.
pub(crate) fn run(root: &Path, extent: &Extent, write: bool) -> Result<bool> {
    crate::bench::build(root)?;
    let place = target(root).join("peers");
    let installed = install::all(root, &place)?;
    let mut drivers = vec![Driver::own(root)];
    drivers.extend(installed.drivers);
    let skips = installed.skips;

    let machine = Machine::of(root)?;
    let looped = loops::measure(&drivers, &place, extent)?;
    looped.measured.print("steps through each system, in turns");
    if write {
        page::write(root, page::LOOPS, &looped.measured.body(&machine, &skips))?;
    }
    let machine = Machine::of(root)?;
    let killed = kills::measure(&drivers, &place, extent)?;
    killed.measured.print("killed in a step, and resumed");
    if write {
        page::write(root, page::KILLS, &killed.measured.body(&machine, &skips))?;
    }
    println!();
    skips.iter().for_each(|skip| println!("skipped: {skip}"));
    println!("{} peers skipped", skips.len());
    Ok(looped.well && killed.well)
}

/// A table, and whether every driver did what it should.
struct Outcome {
    measured: Measured,
    well: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extent_is_read() {
        let mut extent = Extent::default();
        extent.read("--quick").expect("quick");
        extent.read("--rounds=2").expect("rounds");
        assert_eq!(extent, Extent { rounds: 2, kills: 4, lengths: vec![100] });
        for word in ["--rounds", "--rounds=x", "--rounds=0", "--kills=", "steps"] {
            assert!(extent.read(word).is_err(), "{word}");
        }
    }

    #[test]
    fn skips_are_counted_and_named_below_the_table() {
        let measured = Measured {
            head: vec!["a"],
            rows: vec![vec!["1".to_owned()]],
            notes: vec!["a note".to_owned()],
        };
        let root = crate::workspace::root().expect("root");
        let machine = Machine::of(&root).expect("a machine");
        let body = measured.body(&machine, &["DBOS: not to be had".to_owned()]);
        assert!(body.contains("| a |") && body.contains("- a note\n"), "{body}");
        assert!(body.ends_with("1 skipped:\n\n- DBOS: not to be had\n"), "{body}");
        assert!(measured.body(&machine, &[]).ends_with("\n\nNo peer was skipped.\n"));
    }
}
