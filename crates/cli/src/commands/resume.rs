//! `portcullis resume`.

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;

/// Arguments of `resume`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Runs the command.
pub(crate) async fn run(_args: Args, _globals: &Globals) -> Result<Exit, Failure> {
    Ok(Exit::Refused)
}
