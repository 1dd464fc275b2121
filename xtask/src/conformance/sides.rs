//! The two sides that the suite is run against: the peer alone, and the gate in front of it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::listening::Listening;
use crate::process;

/// The rules of the gate, with places for both addresses.
const RULES: &str = "gate.toml";

/// Copies the files beside the packages.
pub(super) fn lay_out(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// The Node that is one of the packages.
pub(super) fn node(packages: &Path) -> Result<PathBuf> {
    let of = |kind: &str| packages.join(format!("node_modules/node-linux-{kind}/bin/node"));
    let node = [of("x64"), of("arm64")].into_iter().find(|path| path.is_file());
    node.context("none of the packages is a Node for this machine")
}

/// The peer; with `quiet` it does not do what the gate lets no server do.
pub(super) fn peer(node: &Path, place: &Path, words: &[&str]) -> Result<Listening> {
    let mut command = Command::new(node);
    command.arg(place.join("peer.mjs")).args(words);
    Listening::start(command)
}

/// The gate in front of the peer, pinned, with a home of its own, and what adds its token.
pub(super) struct Gate(Listening);

impl Gate {
    pub(super) fn start(node: &Path, place: &Path, portcullis: &Path, peer: u16) -> Result<Self> {
        let home = place.join("home");
        if home.exists() {
            fs::remove_dir_all(&home)?;
        }
        fs::create_dir_all(&home)?;
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700))?;
        let rules = fs::read_to_string(place.join(RULES))?;
        let config = home.join(RULES);
        fs::write(&config, rules.replace("PEER", &format!("127.0.0.1:{peer}")))?;
        fs::set_permissions(&config, fs::Permissions::from_mode(0o600))?;
        for word in ["pin", "check"] {
            let mut command = at_home(Command::new(portcullis), &home);
            command.arg("-c").arg(&config).arg(word);
            command.args((word == "pin").then_some("peer"));
            if !process::show(&mut command)? {
                bail!("`{word}` refuses the peer");
            }
        }
        let mut front = at_home(Command::new(node), &home);
        front.arg(place.join("front.mjs")).arg(&config).arg(portcullis);
        front.args(["proxy", "--json", "--listen", "127.0.0.1:0", "-c"]).arg(&config);
        front.arg("--token-file").arg(home.join("token"));
        Ok(Self(Listening::start(front)?))
    }

    /// Where the suite reaches it.
    pub(super) const fn port(&self) -> u16 {
        self.0.port
    }
}

/// A program that knows nothing of the surroundings but this home.
fn at_home(mut command: Command, home: &Path) -> Command {
    command.env_clear().env("HOME", home).current_dir(home);
    command.env("XDG_STATE_HOME", home.join("state")).env("XDG_CONFIG_HOME", home.join("config"));
    command
}
