//! `portcullis answer`: what became of a call whose outcome is unknown.

use clap::ValueEnum;
use portcullis_domain::approval::Answer;

use super::decide::{Consent, Decision, decide};
use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::lookup::{self, QuestionArg};

/// What a person found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Found {
    /// It happened; state what came back with `--result`
    Happened,
    /// It did not happen; the agent is told
    DidNotHappen,
    /// Run exactly this call again, once, when the run is resumed; if it did happen, it then happens twice
    RunAgain,
}

/// Arguments of `answer`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The question `q_…`, or the run `run_…` that waits for it; at least 8 digits
    #[arg(value_name = "QUESTION|RUN", value_parser = lookup::question_arg)]
    on: QuestionArg,
    /// What became of the call
    #[arg(value_name = "happened|did-not-happen|run-again")]
    found: Found,
    /// What came back, as one JSON value [default: null]
    #[arg(long, value_name = "JSON")]
    result: Option<String>,
    #[command(flatten)]
    consent: Consent,
}

/// Runs the command.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<Exit, Failure> {
    let Args { on, found, result, consent } = args;
    let answer = match found {
        Found::Happened => Answer::Happened,
        Found::DidNotHappen => Answer::DidNotHappen,
        Found::RunAgain => Answer::RunAgain,
    };
    if result.is_some() && answer != Answer::Happened {
        return Err(Failure::usage("only a call that happened has a result"));
    }
    let alike = false;
    decide(Decision { on, answer, result, consent, alike }, globals).await
}
