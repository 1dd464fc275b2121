//! The security claims: one list, the page made from it, the tests that back it, the patches that break it.
//!
//! `docs/claims.toml` is the list ([`list`] has its shape). `docs/security.md` is made from it and never edited. Each
//! claim names tests that exist, and a small change of the product after which at least one of them fails. The tests that
//! the acceptance list names ([`acceptance`]) are looked up in the same build.

mod acceptance;
mod compile;
mod list;
mod mutate;
mod page;
mod suite;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::workspace::Member;

/// The list.
pub(crate) const LIST: &str = "docs/claims.toml";

/// The page made from the list.
const PAGE: &str = "docs/security.md";

/// Small changes of the product in a copy of the checkout, for others who break it on purpose.
pub(crate) mod patches {
    pub(crate) use super::compile::Planted;
    pub(crate) use super::list::Edit;
    pub(crate) use super::mutate::{apply, copy, misplaced_edits as misplaced, restore};
    pub(crate) use super::suite::{Place, into_target};
}

/// What `cargo xtask claims` was asked to do.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// Write the page instead of comparing it.
    pub(crate) write: bool,
    /// Apply each claim's mutation and require that a test fails.
    pub(crate) mutate: bool,
    /// Compile what is planted, here and in the lists of the grid and the simulation.
    pub(crate) compile: bool,
    /// Compile all of it, not only what changed since it last compiled.
    pub(crate) all: bool,
    /// Only the claims with these ids; all when empty.
    pub(crate) only: Vec<String>,
}

/// Checks the list, the page and the tests; gives one line per finding. The tests are built when they are not.
pub(crate) fn check(root: &Path, members: &[Member]) -> Result<Vec<String>> {
    let list = list::read(root)?;
    let mut findings = list.findings();
    let rendered = page::render(&list);
    if fs::read_to_string(root.join(PAGE)).unwrap_or_default() != rendered {
        findings.push(format!("{PAGE} is not what {LIST} says: run `cargo xtask claims --write`"));
    }
    findings.extend(mutate::misplaced(root, &list.claim));
    let suite = suite::build_all(root, members, &suite::Place::checkout(root))?;
    for claim in &list.claim {
        for test in &claim.tests {
            if suite.find(test)?.is_empty() {
                findings.push(format!(
                    "{LIST}: the claim `{}` names the test {test}, which does not exist",
                    claim.id
                ));
            }
        }
    }
    findings.extend(acceptance::findings(root, &suite)?);
    Ok(findings)
}

/// Runs the command; false when a claim did not hold.
pub(crate) fn run(root: &Path, members: &[Member], options: &Options) -> Result<bool> {
    if options.write {
        let list = list::read(root)?;
        fs::write(root.join(PAGE), page::render(&list))
            .with_context(|| format!("{PAGE} cannot be written"))?;
        println!("wrote {PAGE}: {} claims", list.claim.len());
        return Ok(list.findings().iter().map(|finding| println!("{finding}")).count() == 0);
    }
    if options.mutate {
        let list = list::read(root)?;
        for id in &options.only {
            if !list.claim.iter().any(|claim| claim.id == *id) {
                bail!("no claim has the id `{id}`");
            }
        }
        let chosen = list
            .claim
            .iter()
            .filter(|claim| options.only.is_empty() || options.only.contains(&claim.id));
        return mutate::run(root, members, &chosen.collect::<Vec<_>>());
    }
    let findings =
        if options.compile { compile::run(root, options.all)? } else { check(root, members)? };
    for finding in &findings {
        println!("{finding}");
    }
    println!("claims: {} findings", findings.len());
    Ok(findings.is_empty())
}

/// Whether the checkout has a list.
pub(crate) fn present(root: &Path) -> bool {
    root.join(LIST).is_file()
}
