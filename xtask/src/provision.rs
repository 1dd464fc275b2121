//! What the tests need from the machine: a new enough toolchain, a C compiler, python3, cargo's own components.
//!
//! What is missing is installed where that is possible without asking (root on a Debian-like system, rustup);
//! otherwise one sentence says what to do.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::process;
use crate::workspace;

/// Checks the toolchain against the workspace's `rust-version`.
pub(crate) fn toolchain(root: &Path) -> Result<()> {
    let wanted = workspace::rust_version(root)?;
    let program = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let line = process::keep(Command::new(program).current_dir(root).arg("--version"))?;
    println!("{} (rust-version {wanted})", line.trim());
    if is_older(&line, &wanted)? {
        bail!(
            "this workspace needs Rust {wanted} or newer, and here is {}: run `rustup update stable`",
            line.trim()
        );
    }
    Ok(())
}

/// Makes sure of a C compiler (SQLite is compiled from source).
pub(crate) fn c_compiler() -> Result<()> {
    let named = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    if process::works(Command::new(&named).arg("--version")) {
        return Ok(());
    }
    apt_install(&["gcc", "libc6-dev"])?;
    if process::works(Command::new("cc").arg("--version")) {
        return Ok(());
    }
    bail!(
        "no C compiler `{named}`, and SQLite is compiled from source: install gcc or clang, or set CC"
    );
}

/// Makes sure of python3, in which the example agents are written; false when there is none to be had.
pub(crate) fn python() -> Result<bool> {
    let works = || process::works(Command::new("python3").arg("--version"));
    if works() {
        return Ok(true);
    }
    apt_install(&["python3"])?;
    Ok(works())
}

/// Makes sure of node of at least this major version and of npm; false when there is none to be had.
pub(crate) fn node(least: u32) -> Result<bool> {
    let works = || {
        let version = process::keep(Command::new("node").arg("--version")).unwrap_or_default();
        is_node(&version, least) && process::works(Command::new("npm").arg("--version"))
    };
    if works() {
        return Ok(true);
    }
    apt_install(&["nodejs", "npm"])?;
    Ok(works())
}

/// Whether `v20.1.2` is at least this major version.
fn is_node(version: &str, least: u32) -> bool {
    let major = version.trim().strip_prefix('v').and_then(|rest| rest.split('.').next());
    major.and_then(|major| major.parse().ok()).is_some_and(|major: u32| major >= least)
}

/// Makes sure of a component of the toolchain (`fmt`, `clippy`); false when there is none to be had.
pub(crate) fn component(root: &Path, subcommand: &str, component: &str) -> bool {
    let works = || process::works(process::cargo(root).args([subcommand, "--version"]));
    if works() {
        return true;
    }
    println!("{component} is missing: asking rustup for it");
    process::works(Command::new("rustup").args(["component", "add", component])) && works()
}

/// Whether a cargo subcommand that is not part of the toolchain is installed.
pub(crate) fn subcommand(root: &Path, name: &str) -> bool {
    process::works(process::cargo(root).args([name, "--version"]))
}

/// Installs Debian packages when this is root on a Debian-like system; otherwise does nothing.
fn apt_install(packages: &[&str]) -> Result<()> {
    if !is_root() || !process::works(Command::new("apt-get").arg("--version")) {
        return Ok(());
    }
    println!("{} missing: installing", packages.join(", "));
    // An index that cannot be refreshed may still know the packages: the install decides.
    let _stale = process::show(Command::new("apt-get").args(["-q", "update"]))?;
    let mut install = Command::new("apt-get");
    install.env("DEBIAN_FRONTEND", "noninteractive");
    install.args(["-q", "install", "--yes", "--no-install-recommends"]).args(packages);
    let _tried = process::show(&mut install)?;
    Ok(())
}

/// Reads the effective user id from the kernel, since the standard library has no call for it.
fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    ids.and_then(|ids| ids.split_whitespace().nth(1)).is_some_and(|effective| effective == "0")
}

fn is_older(version_line: &str, wanted: &str) -> Result<bool> {
    let have = version_line.split_whitespace().nth(1).context("rustc tells no version")?;
    Ok(numbers(have)? < numbers(wanted)?)
}

/// `1.95.0-nightly` gives `(1, 95, 0)`.
fn numbers(version: &str) -> Result<(u32, u32, u32)> {
    let plain = version.split(['-', '+']).next().unwrap_or(version);
    let mut parts = plain.split('.').map(str::parse);
    let mut next = || parts.next().unwrap_or(Ok(0));
    let read = (|| Ok::<_, std::num::ParseIntError>((next()?, next()?, next()?)))();
    read.with_context(|| format!("`{version}` is no version"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        let older = |line: &str| is_older(line, "1.95").expect("a version");
        assert!(older("rustc 1.94.1 (abc 2026-01-01)"));
        assert!(older("rustc 1.9.0"));
        assert!(!older("rustc 1.95.0 (abc 2026-03-21)"));
        assert!(!older("rustc 1.100.0-nightly (abc 2026-09-01)"));
        assert!(!older("rustc 2.0.0"));
        assert!(is_older("rustc", "1.95").is_err());
        assert!(is_older("rustc next", "1.95").is_err());
    }

    #[test]
    fn node_is_new_enough_by_its_major_version() {
        assert!(is_node("v20.20.2\n", 20) && is_node("v24.0.0", 20));
        for old in ["v18.19.0", "v9.1.0", "20.1.0", "", "vx"] {
            assert!(!is_node(old, 20), "{old}");
        }
    }

    #[test]
    fn patch_versions_count() {
        assert!(is_older("rustc 1.95.0", "1.95.1").expect("a version"));
    }
}
