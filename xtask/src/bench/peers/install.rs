//! Getting the peers: Python packages in an environment of their own, Salvor's driver with cargo, both below the build
//! folder. Their versions stand in `bench/peers` and nowhere else. A peer that cannot be had is a skip with its reason.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::bench::peers::drivers::{Driver, Setting};
use crate::{process, provision};

/// The drivers and the pinned versions, below the root.
const SOURCES: &str = "bench/peers";

/// The peers that are to be had here, and why the others are not.
pub(super) struct Installed {
    pub(super) drivers: Vec<Driver>,
    pub(super) skips: Vec<String>,
}

/// A peer whose driver is a Python program.
struct Python {
    name: &'static str,
    file: &'static str,
    packages: &'static [&'static str],
    settings: fn() -> Vec<Setting>,
}

const PYTHON: &[Python] = &[
    Python {
        name: "LangGraph",
        file: "langgraph_loop.py",
        packages: &["langgraph", "langgraph-checkpoint-sqlite"],
        settings: langgraph,
    },
    Python { name: "DBOS", file: "dbos_loop.py", packages: &["dbos"], settings: both },
];

/// The name of what keeps no record.
const CONTROL: &str = "no record (control)";

const DEFAULT: Setting = Setting { name: "default", words: &["--sync", "default"], looped: true };
const FULL: Setting = Setting { name: "full sync", words: &["--sync", "full"], looped: true };

fn both() -> Vec<Setting> {
    vec![DEFAULT, FULL]
}

fn langgraph() -> Vec<Setting> {
    let delta = Setting {
        name: "full sync, DeltaChannel (beta)",
        words: &["--sync", "full", "--record", "delta"],
        looped: true,
    };
    // Its default writes behind the next step, so what a kill takes depends on how long a step thinks.
    let thinking = Setting {
        name: "default, 20 ms of thinking",
        words: &["--sync", "default", "--think", "20"],
        looped: false,
    };
    vec![DEFAULT, thinking, FULL, delta]
}

/// Installs what can be had into `place`.
pub(super) fn all(root: &Path, place: &Path) -> Result<Installed> {
    fs::create_dir_all(place)?;
    let mut installed = Installed { drivers: Vec::new(), skips: Vec::new() };
    let sources = root.join(SOURCES);
    let python = environment(place);
    for peer in PYTHON {
        let driver = match &python {
            Ok(python) => peer.install(python, &sources),
            Err(error) => Err(anyhow::anyhow!("{error:#}")),
        };
        installed.add(peer.name, driver);
    }
    installed.add("Salvor", salvor(root, place, &sources));
    installed.add(CONTROL, python.map(|python| control(python, &sources)));
    Ok(installed)
}

/// The loop that nobody records.
fn control(python: PathBuf, sources: &Path) -> Driver {
    let first = vec![sources.join("naive_loop.py").to_string_lossy().into_owned()];
    let mut naive = Driver::new(CONTROL, python, first, vec![DEFAULT]);
    naive.records = false;
    naive
}

impl Installed {
    fn add(&mut self, name: &str, driver: Result<Driver>) {
        match driver {
            Ok(driver) => self.drivers.push(driver),
            Err(error) => self.skips.push(format!("{name}: {error:#}")),
        }
    }
}

impl Python {
    fn install(&self, python: &Path, sources: &Path) -> Result<Driver> {
        let pins = fs::read_to_string(sources.join("requirements.txt"))?;
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        for package in self.packages {
            pip.arg(pin(&pins, package)?);
        }
        if !process::show(&mut pip)? {
            bail!("pip cannot install {}", self.packages.join(" and "));
        }
        let first = vec![sources.join(self.file).to_string_lossy().into_owned()];
        Ok(Driver::new(self.name, python.to_path_buf(), first, (self.settings)()))
    }
}

/// The line of `requirements.txt` that names a package with exactly one version.
fn pin<'a>(pins: &'a str, package: &str) -> Result<&'a str> {
    let mut lines = pins.lines().map(str::trim);
    let found = lines.find(|line| line.split_once("==").is_some_and(|(name, _)| name == package));
    found.with_context(|| format!("{SOURCES}/requirements.txt pins no {package}"))
}

/// A Python of the bench's own; its interpreter.
fn environment(place: &Path) -> Result<PathBuf> {
    let folder = place.join("python");
    let python = folder.join("bin/python");
    let works = || process::works(Command::new(&python).args(["-m", "pip", "--version"]));
    if works() {
        return Ok(python);
    }
    if !provision::python()? {
        bail!("there is no python3");
    }
    let mut make = Command::new("python3");
    if !process::show(make.args(["-m", "venv", "--clear"]).arg(&folder))? || !works() {
        bail!("python3 makes no environment: its module venv is missing, or has no pip");
    }
    Ok(python)
}

/// Builds the driver of Salvor with the versions of its own lock file.
fn salvor(root: &Path, place: &Path, sources: &Path) -> Result<Driver> {
    let mut install = process::cargo(root);
    install.args(["install", "--locked", "--quiet", "--path"]).arg(sources.join("salvor"));
    install.arg("--root").arg(place).arg("--target-dir").arg(place.join("build"));
    if !process::show(&mut install)? {
        bail!("cargo cannot install its driver");
    }
    let only = Setting { name: "only", words: &["--sync", "full"], looped: true };
    Ok(Driver::new("Salvor", place.join("bin/peer-salvor"), Vec::new(), vec![only]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_python_peer_is_pinned_to_one_version() {
        let root = crate::workspace::root().expect("root");
        let pins = fs::read_to_string(root.join(SOURCES).join("requirements.txt")).expect("pins");
        for peer in PYTHON {
            assert!(root.join(SOURCES).join(peer.file).is_file(), "{}", peer.file);
            for package in peer.packages {
                pin(&pins, package).expect("a pin");
            }
        }
        assert!(pin("a>=1\nab==2\n", "a").is_err(), "a range is no pin");
        assert_eq!(pin("a>=1\nab==2\n", "ab").expect("a pin"), "ab==2");
    }

    #[test]
    fn a_peer_that_cannot_be_had_is_a_skip_with_its_reason() {
        let mut installed = Installed { drivers: Vec::new(), skips: Vec::new() };
        let root = crate::workspace::root().expect("root");
        let sources = root.join(SOURCES);
        for peer in PYTHON {
            // An interpreter that installs nothing.
            installed.add(peer.name, peer.install(Path::new("/bin/false"), &sources));
        }
        assert!(installed.drivers.is_empty());
        assert_eq!(installed.skips.len(), PYTHON.len());
        assert_eq!(installed.skips[1], "DBOS: pip cannot install dbos");
    }
}
