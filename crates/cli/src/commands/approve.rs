//! `portcullis approve`: a yes to the question that waits.

use portcullis_domain::approval::Answer;

use super::decide::{Consent, Decision, decide};
use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::lookup::{self, QuestionArg};

/// Arguments of `approve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The question `q_…`, or the run `run_…` that waits for it; at least 8 digits
    #[arg(value_name = "QUESTION|RUN", value_parser = lookup::question_arg)]
    on: QuestionArg,
    #[command(flatten)]
    consent: Consent,
    /// Give the same answer to every open question about this very call, one use each
    #[arg(long, conflicts_with = "digest")]
    alike: bool,
}

/// Runs the command.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<Exit, Failure> {
    let Args { on, consent, alike } = args;
    decide(Decision { on, answer: Answer::Approve, result: None, consent, alike }, globals).await
}
