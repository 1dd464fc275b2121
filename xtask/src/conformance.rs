//! `cargo xtask test --mcp`: the official conformance suite of MCP, against a server alone and against the same server behind
//! the gate; and the product's own client against servers that the suite plays.
//!
//! What the suite says of the two has to be the same, check by check, but for what the rules of the gate deny, and for the entries
//! of `tests/conformance/differences.toml`, none of which may be of a scenario that the suite requires, unless the suite only notes it. The suite, its two releases and the SDK of the peer are packages
//! of the lock in `tests/mcp`; what cannot be had is a skip with its reason, which counts.

mod checks;
mod clients;
mod differences;
mod sides;
mod suite;

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::runners::Counts;
use crate::{official, process, table, workspace};
use checks::Checks;
use differences::{Found, List, Sides};
use sides::Gate;
use suite::{SETS, Set};

/// What is copied beside the packages, since a module finds packages above itself.
const FILES: &str = "tests/conformance";

/// Runs it; true when all is as the list says, or was skipped.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let list = List::read(&root.join(FILES).join(differences::FILE))?;
    let counts = match official::PACKAGES.install(root)? {
        Ok(packages) => against_both(root, &packages, &list)?,
        Err(reason) => {
            println!("portcullis-skip: {reason}");
            Counts { passed: 0, failed: 0, skipped: 1 }
        }
    };
    println!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped);
    Ok(counts.failed == 0)
}

/// What one set of scenarios says of the server alone and behind the gate.
struct Said<'a> {
    set: &'a Set,
    bare: Checks,
    gate: Checks,
    found: Found,
}

fn against_both(root: &Path, packages: &Path, list: &List) -> Result<Counts> {
    let mut build = process::cargo(root);
    build.args(["build", "--workspace", "--bins", "--examples", "--locked", "--profile", "ci"]);
    if !process::show(&mut build)? {
        bail!("the command does not build");
    }
    let portcullis = workspace::target(root).join("ci/portcullis");
    let place = packages.join("conformance");
    sides::lay_out(&root.join(FILES), &place)?;
    let node = sides::node(packages)?;

    let peer = sides::peer(&node, &place, &[])?;
    println!("the peer alone listens on {}", peer.port);
    let quiet = sides::peer(&node, &place, &["quiet"])?;
    let gate = Gate::start(&node, &place, &portcullis, peer.port)?;
    println!("the gate in front of it listens on {}", gate.port());

    let names = SETS.iter().map(|set| set.name).chain(clients::names());
    let unknown = list.unknown(&names.collect::<Vec<_>>());
    if !unknown.is_empty() {
        bail!("{} names sets that are none: {}", differences::FILE, unknown.join(", "));
    }
    let mut all = Vec::new();
    for set in SETS {
        println!("{}: {}", set.name, set.words.join(" "));
        let required = set.required(&node, packages)?;
        let run = |side: &str, port: u16| {
            set.run(&node, packages, &place.join("results").join(side), port)
        };
        let bare = run("bare", peer.port)?;
        set.is_baseline(&bare, &required).context("the peer alone is no baseline")?;
        let gate = run("gate", gate.port())?;
        let without = match list.denied(set.name).is_empty() {
            true => Checks::default(),
            false => run("quiet", quiet.port)?,
        };
        let sides = Sides { bare: &bare, quiet: &without, gate: &gate };
        let found = list.compare(set.name, &required, &sides);
        all.push(Said { set, bare, gate, found });
    }
    let mut counts = tell(&all, list);
    let client = clients::run(root, &node, packages, list)?;
    counts.passed += client.passed;
    counts.failed += client.failed;
    Ok(counts)
}

/// Prints what was found, and counts it: what passes on both sides passes, what differs and is neither denied nor listed fails, and so
/// does an entry of the list that does not differ.
fn tell(all: &[Said<'_>], list: &List) -> Counts {
    let mut counts = Counts::default();
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|Said { set, bare, gate, found }| {
            counts.passed += found.same;
            counts.failed += found.unlisted.len() + found.undenied.len();
            let numbers = [bare.scenarios().len(), bare.passed(), gate.passed(), found.same];
            let others = [found.alike, found.denied, found.listed, found.unlisted.len()];
            let numbers = numbers.into_iter().chain(others);
            [set.name.to_owned()].into_iter().chain(numbers.map(|n| n.to_string())).collect()
        })
        .collect();
    for Said { set, found, .. } in all {
        for difference in &found.unlisted {
            println!("{}: {difference}", set.name);
        }
        for scenario in &found.undenied {
            println!("{}: {scenario} is said to be denied, and is not", set.name);
        }
    }
    let stale = list.stale(all.iter().flat_map(|said| &said.found.used));
    counts.failed += stale.len();
    stale.iter().for_each(|entry| println!("listed, and no difference: {entry}"));
    let head =
        ["set", "scenarios", "alone", "behind", "same", "alike", "denied", "listed", "differ"];
    println!("\nchecks that pass alone and behind the gate\n\n{}", table::render(&head, &rows));
    counts
}
