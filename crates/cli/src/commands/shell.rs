//! `portcullis completions` and `portcullis man`: texts that packagers install beside the command.

use std::io::Write as _;
use std::path::PathBuf;

use clap::CommandFactory as _;

use crate::args::Cli;
use crate::exit::Exit;
use crate::failure::Failure;

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell
    shell: clap_complete::Shell,
}

/// Writes the completion script.
pub(crate) fn completions(args: &Completions) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "portcullis", &mut script);
    write_out(&script)
}

/// Arguments of `man`.
#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// The folder for the pages, made when it is missing, for instance ~/.local/share/man/man1
    #[arg(value_name = "DIR")]
    into: PathBuf,
}

/// Writes a page for the command and for each of its commands. Pages of the same names are replaced.
pub(crate) fn man(args: &Man) -> Result<Exit, Failure> {
    let into = &args.into;
    let fault = |error: std::io::Error| Failure::io("write the pages into", into, &error);
    std::fs::create_dir_all(into).map_err(fault)?;
    clap_mangen::generate_to(Cli::command(), into).map_err(fault)?;
    Ok(Exit::Done)
}

fn write_out(bytes: &[u8]) -> Result<Exit, Failure> {
    std::io::stdout().write_all(bytes).map_err(|error| Failure::output(&error))?;
    Ok(Exit::Done)
}
