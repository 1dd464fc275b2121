//! `portcullis hosts`: puts the gate before the MCP servers of a host, and takes that back.

use std::path::PathBuf;

use portcullis_canon::Value;

use crate::args::{Globals, variable};
use crate::exit::Exit;
use crate::failure::{Code, Failure};
use crate::hosts::{Host, Installation, Plan};
use crate::place;

/// Arguments of `hosts`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The host
    #[arg(value_enum)]
    host: Host,
    /// Its file [default: the one of the user]
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Write both files; a copy of the host's is kept beside it
    #[arg(long, conflicts_with = "undo")]
    write: bool,
    /// Put back what was there before
    #[arg(long)]
    undo: bool,
}

/// Shows what would be written, writes it, or takes it back.
pub(crate) fn run(args: &Args, globals: &Globals) -> Result<Exit, Failure> {
    if globals.json {
        return Err(Failure::usage("`hosts` speaks to people only").hint("leave --json away"));
    }
    let installation = open(args, globals)?;
    if args.undo {
        installation.undo()?;
        crate::say(&[
            "the host's file is as it was; the servers stay in the gate's configuration".to_owned(),
        ])?;
        return Ok(Exit::Done);
    }
    let plan = if args.write {
        if globals.config_path.is_none() {
            place::make_private(&globals.place.config)?;
        }
        installation.write()?
    } else {
        installation.plan()?
    };
    crate::say(&told(&plan, &installation, args.write, globals))?;
    Ok(Exit::Done)
}

fn open(args: &Args, globals: &Globals) -> Result<Installation, Failure> {
    let absolute = |path: &PathBuf| {
        std::path::absolute(path).map_err(|error| Failure::io("find", path, &error))
    };
    let file = match &args.file {
        Some(file) => absolute(file)?,
        None => {
            let home = variable("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
            let home = home.ok_or_else(|| {
                Failure::new(Code::NoPlace, "HOME is not set to an absolute path")
                    .hint("name the host's file with --file")
            })?;
            args.host.file(&home)
        }
    };
    let rules = match &globals.config_path {
        Some(path) => absolute(path)?,
        None => globals.place.config.join("portcullis.toml"),
    };
    let gate = std::env::current_exe().map_err(|error| {
        Failure::new(Code::Io, format!("this program cannot be found: {}", error.kind()))
    })?;
    Installation::of(args.host, &file, &gate, &rules)
}

fn told(plan: &Plan, installation: &Installation, written: bool, globals: &Globals) -> Vec<String> {
    let mut lines = Vec::new();
    let rules =
        globals.config_path.clone().unwrap_or_else(|| globals.place.config.join("portcullis.toml"));
    match (&plan.text, written) {
        (None, _) => lines.push(format!("nothing to do: `{}` names the gate", plan.file.display())),
        (Some(_), true) => {
            lines.push(format!("written: {}", plan.file.display()));
            lines.push(format!("before:  {}", installation.backup().display()));
        }
        (Some(_), false) => {
            // The rest of the file is none of this command's business, and may hold secrets.
            let entry = Value::Object(plan.entry.clone()).to_canonical_string();
            lines.push(format!("{} would get the server `portcullis`:", plan.file.display()));
            lines.push(format!("  {entry}"));
        }
    }
    if !plan.shown.is_empty() {
        let how = if written { "added to" } else { "would be added to" };
        lines.push(format!("{how} {} (values of variables are not shown):", rules.display()));
        lines.extend(plan.shown.lines().map(|line| format!("  {line}")));
    }
    lines.extend(plan.moved.iter().map(|name| format!("behind the gate: {name}")));
    for (name, why) in &plan.stays {
        lines.push(format!("NOT behind the gate: {name}: {why}"));
    }
    lines
}
