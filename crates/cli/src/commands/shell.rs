//! `portcullis completions` and `portcullis man`: texts that packagers install beside the command.

use std::io::Write as _;

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

/// Writes the manual page.
pub(crate) fn man() -> Result<Exit, Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command())
        .render(&mut page)
        .and_then(|()| std::io::stdout().write_all(&page))
        .map_err(|error| Failure::output(&error))?;
    Ok(Exit::Done)
}

fn write_out(bytes: &[u8]) -> Result<Exit, Failure> {
    std::io::stdout().write_all(bytes).map_err(|error| Failure::output(&error))?;
    Ok(Exit::Done)
}
