//! `cargo xtask simulate`: histories by their seeds, the model, and faults that both have to find.
//!
//! The program is the package `portcullis-simulate`, built with optimisations of its own profile. With `--faults` it
//! plants faults in its own doubles; then the faults of `simulate/faults.toml` are planted in the product, in the copy in
//! which claims are broken too.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::Usage;
use crate::claims::patches::{self, Edit, Place, Planted};
use crate::process;

/// The package.
const PACKAGE: &str = "portcullis-simulate";

/// The faults that are kept for the product.
const FAULTS: &str = "simulate/faults.toml";

/// Seeds that a fault in the product may take to be found.
const PATIENCE: &str = "1000";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    fault: Vec<Fault>,
}

/// A fault in the product.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fault {
    id: String,
    text: String,
    edits: Vec<Edit>,
}

/// What the list plants.
pub(crate) fn planted(root: &Path) -> Result<Vec<Planted>> {
    let name = |fault: Fault| Planted {
        name: format!("simulate {}", fault.id),
        edits: fault.edits,
        fails: false,
    };
    Ok(read(root)?.into_iter().map(name).collect())
}

/// Runs the program, passing `arguments` on; true when all is well. `--faults ID…` plants the named faults of the
/// product only.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<bool> {
    match arguments.split_first() {
        Some((word, only)) if word == "--faults" && !only.is_empty() => in_the_product(root, only),
        Some((word, _)) if word == "--faults" => {
            Ok(program(root, arguments)? & in_the_product(root, &[])?)
        }
        _ => program(root, arguments),
    }
}

fn program(root: &Path, arguments: &[String]) -> Result<bool> {
    let mut command = process::cargo(root);
    command.args([
        "run",
        "--quiet",
        "--locked",
        "--profile",
        "simulate",
        "--package",
        PACKAGE,
        "--",
    ]);
    process::show(command.args(arguments))
}

fn read(root: &Path) -> Result<Vec<Fault>> {
    let text = fs::read_to_string(root.join(FAULTS))
        .with_context(|| format!("{FAULTS} cannot be read"))?;
    let kept: Kept = toml::from_str(&text).with_context(|| format!("{FAULTS} is not valid"))?;
    Ok(kept.fault)
}

/// Plants each kept fault, or those that are named, in a copy and requires that a history finds it, and its seed finds it
/// again.
fn in_the_product(root: &Path, only: &[String]) -> Result<bool> {
    let mut faults = read(root)?;
    if let Some(unknown) = only.iter().find(|id| !faults.iter().any(|fault| fault.id == **id)) {
        bail!(Usage(format!("no fault has the id `{unknown}`")));
    }
    faults.retain(|fault| only.is_empty() || only.contains(&fault.id));
    let place = patches::copy(root)?;
    if let Some(found) = broken(&play(&place, &["--seeds", "100"])?) {
        bail!("with nothing planted: {found}");
    }
    let mut missed = 0_usize;
    for fault in &faults {
        let edited = patches::apply(&place.root, &fault.edits)?;
        let found = look_for(&place);
        patches::restore(&edited)?;
        match found? {
            Ok(found) => println!("found   {}: {found}, and again", fault.id),
            Err(why) => {
                missed += 1;
                println!("MISSED  {} ({}): {why}", fault.id, fault.text);
            }
        }
    }
    println!("\n{} faults in the product, {missed} missed", faults.len());
    Ok(missed == 0)
}

/// How a planted fault is found twice, or why it is not.
fn look_for(place: &Place) -> Result<std::result::Result<String, String>> {
    let text = play(place, &["--seeds", PATIENCE, "--first"])?;
    let Some(found) = broken(&text) else {
        return Ok(Err(format!("no history of {PATIENCE} finds it")));
    };
    let Some(seed) = seed(&found) else {
        return Ok(Err(format!("no seed in `{found}`")));
    };
    let again = broken(&play(place, &["--seed", &seed])?);
    Ok(if again.as_ref() == Some(&found) { Ok(found) } else { Err(format!("{found}, once")) })
}

/// Builds and runs the program in the copy; what it printed.
fn play(place: &Place, arguments: &[&str]) -> Result<String> {
    let mut command = process::cargo(&place.root);
    command.args(["build", "--quiet", "--locked", "--profile", "ci", "--package", PACKAGE]);
    if let Some(target) = &place.target {
        command.env("CARGO_TARGET_DIR", target);
    }
    if !process::show(&mut command)? {
        bail!("the simulation does not build");
    }
    let target = place.target.clone().unwrap_or_else(|| place.root.join("target"));
    let mut program = std::process::Command::new(target.join("ci").join(PACKAGE));
    Ok(process::show_and_keep(program.args(arguments))?.text)
}

/// The line that names the first broken history.
fn broken(text: &str) -> Option<String> {
    text.lines().find(|line| line.starts_with("BROKEN by seed ")).map(str::to_owned)
}

fn seed(line: &str) -> Option<String> {
    let rest = line.strip_prefix("BROKEN by seed ")?;
    Some(rest.split_once(':')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_history_is_read_from_the_output() {
        let text = "seeds 0 to 9: 1 broken\nBROKEN by seed 7: a rule\n  how\n";
        let line = broken(text).expect("a broken history");
        assert_eq!(seed(&line), Some("7".to_owned()));
        assert_eq!(broken("10 histories, seeds 0 to 9: 0 broken\n"), None);
    }

    #[test]
    fn each_kept_fault_stands_once_in_the_product() {
        let root = crate::workspace::root().expect("root");
        let faults = read(&root).expect("the list");
        assert!(faults.len() >= 5, "{}", faults.len());
        for fault in &faults {
            assert!(!fault.edits.is_empty(), "{}", fault.id);
            assert_eq!(patches::misplaced(&root, &fault.id, &fault.edits), Vec::<String>::new());
            assert!(fault.edits.iter().all(|edit| edit.find != edit.replace), "{}", fault.id);
        }
    }
}
