//! `portcullis init`: makes what a first run needs, and says what it made.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use portcullis::system::OsEntropy;
use portcullis_audit::keys::SigningKey;

use crate::args::Globals;
use crate::assemble;
use crate::config;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::place;
use crate::wire::{InitJson, PlaceJson};

/// The configuration that is written: every key with what it means.
const TEMPLATE: &str = include_str!("../../../../examples/portcullis.toml");

/// Arguments of `init`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Do not write a portcullis.toml into the current folder
    #[arg(long)]
    no_config: bool,
}

/// Makes folders, key, database and configuration. Nothing that is there is changed.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<Exit, Failure> {
    let mut places = Vec::new();
    let mut tell = |made: bool, what: &'static str, path: &Path| {
        places.push(PlaceJson { what, path: path.display().to_string(), made });
    };
    for (what, folder) in
        [("state", &globals.place.state), ("configuration", &globals.place.config)]
    {
        let made = folder.symlink_metadata().is_err();
        place::make_private(folder)?;
        tell(made, what, folder);
    }
    let name = globals.key.as_deref().unwrap_or(&globals.user);
    let key = globals.place.keys.join(format!("{name}.key"));
    let made = key.symlink_metadata().is_err();
    // Whoever drew it may have died before its public half was there, without which nobody could approve.
    SigningKey::open_or_create(&globals.place.keys, name, &OsEntropy)?;
    tell(made, "key", &key);
    let made = globals.db.symlink_metadata().is_err();
    assemble::create(globals)?;
    tell(made, "database", &globals.db);
    let mut kept = None;
    if !args.no_config {
        let file = std::path::absolute("portcullis.toml")
            .map_err(|error| Failure::io("find", Path::new("portcullis.toml"), &error))?;
        let made = write_new(&file)?;
        tell(made, "rules", &file);
        kept = (!made).then_some(file);
    }
    let rules = globals.config_path.iter().chain(&kept);
    let notes = rules.filter_map(|rules| note(rules, globals).err()).collect();
    let told = InitJson { places, notes };
    if globals.json { crate::say_json(&told) } else { crate::say(&text(&told)) }?;
    Ok(Exit::Done)
}

/// What would keep a run under these rules from beginning.
fn note(rules: &Path, globals: &Globals) -> Result<(), String> {
    let checked = config::read(rules).and_then(|config| {
        assemble::enough_people(globals, &config, &assemble::own_person(globals, &config))
    });
    checked.map_err(|failure| match failure.advice() {
        Some(advice) => format!("{}; {advice}", failure.sentence()),
        None => failure.sentence(),
    })
}

fn text(told: &InitJson) -> Vec<String> {
    let mut lines = Vec::new();
    for PlaceJson { what, path, made } in &told.places {
        let how = if *made { "made" } else { "kept" };
        lines.push(format!("{how}  {what:<14} {path}"));
        if *what == "rules" {
            lines.push(format!("the rules count when they are named: portcullis -c {path} run …"));
        }
    }
    lines.extend(told.notes.iter().map(|note| format!("note  {note}")));
    lines
}

/// Writes the file unless there is one.
fn write_new(file: &Path) -> Result<bool, Failure> {
    let fault = |error: std::io::Error| Failure::io("write", file, &error);
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(file) {
        Ok(mut out) => {
            out.write_all(TEMPLATE.as_bytes()).and_then(|()| out.sync_all()).map_err(fault)?;
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(fault(error)),
    }
}
