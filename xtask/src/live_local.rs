//! `cargo xtask test --live-local`: a real model server on this machine, asked by the product through its own adapter.
//!
//! llama.cpp comes prebuilt with a package for Node, in exactly the versions of `xtask/live-local/package-lock.json`; npm
//! checks their digests and runs none of their scripts. The model is made on the spot. What cannot be had is a skip with
//! its reason, which counts.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::listening::Listening;
use crate::npm::Packages;
use crate::runners::{self, Counts};
use crate::{process, skips};

/// The server and what it needs.
const PACKAGES: Packages = Packages {
    sources: "xtask/live-local",
    files: &["package.json", "package-lock.json", "grammar.mjs", "model.mjs", "server.mjs"],
    place: "target/live-local",
    node: 20,
    // Not `ci`, which refuses a lock without the packages of other platforms; the lock's versions and digests hold all the same.
    words: &["install", "--omit=optional", "--no-save"],
    what: "llama.cpp",
};

/// Names the server to the test.
const VARIABLE: &str = "PORTCULLIS_LIVE_LOCAL";

/// Installs and starts the server, runs the test against it, and stops it; true when it holds, or was skipped.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let started = Instant::now();
    let counts = match PACKAGES.install(root)? {
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

/// Runs the test against a server of its own.
fn ask(root: &Path, place: &Path) -> Result<Counts> {
    let mut build = test(root);
    if !process::show(build.arg("--no-run"))? {
        bail!("the test does not build");
    }
    let mut node = Command::new("node");
    node.arg("server.mjs").arg(place.join("tiny.gguf")).current_dir(place);
    let server = Listening::start(node)?;
    let base = format!("http://127.0.0.1:{}", server.port);
    println!("a model server listens on {base}");
    let file = skips::start(root)?;
    let mut command = test(root);
    command.env(VARIABLE, &base).env(skips::VARIABLE, &file);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::npm;

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
        npm::assert_pinned(&PACKAGES, 50);
    }
}
