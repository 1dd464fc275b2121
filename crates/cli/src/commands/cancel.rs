//! `portcullis cancel`: ends a run that has not ended.

use portcullis_domain::label::Name;
use portcullis_domain::run::EndReason;
use portcullis_domain::scope::Scope;
use portcullis_engine::operator;

use crate::args::Globals;
use crate::assemble;
use crate::config;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::launch::{self, Launch};
use crate::lookup::{self, RunArg};
use crate::output::Out;
use crate::reading::Reading;
use crate::wire::CancelledJson;

/// The longest note in bytes.
const MAX_NOTE_BYTES: usize = 16 << 10;

/// Arguments of `cancel`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run: `run_…`, or at least 8 of its digits
    #[arg(value_name = "RUN", value_parser = lookup::run_arg)]
    run: RunArg,
    /// Who ends it, as a label that nobody checks [default: your user name]
    #[arg(long, value_name = "NAME", value_parser = label)]
    by: Option<String>,
    /// Say why
    #[arg(long, value_name = "TEXT", value_parser = note)]
    note: Option<String>,
}

fn label(text: &str) -> Result<String, String> {
    Name::new(text)
        .map(|name| name.as_str().to_owned())
        .map_err(|_| "expected 1 to 128 bytes without control characters or parentheses".to_owned())
}

fn note(text: &str) -> Result<String, String> {
    if (1..=MAX_NOTE_BYTES).contains(&text.len()) {
        Ok(text.to_owned())
    } else {
        Err("a note has 1 byte to 16 KiB".to_owned())
    }
}

/// Runs the command.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<Exit, Failure> {
    let run = {
        let reading = Reading::open(globals)?;
        lookup::run_id(reading.db(), &reading.scope, &args.run).await?
    };
    let by = args.by.unwrap_or_else(|| globals.user.clone());
    // What a run was begun with is of no matter to its end, so a memory that is damaged does not hinder it.
    let launch = Launch::recall(&globals.place.launches(), run).ok().flatten();
    let config =
        launch::configuration(globals, launch.as_ref()).or_else(|_| config::load(globals))?;
    let parts = assemble::operator_parts(globals, &config)?;
    let scope = Scope::of_file_owner();
    operator::cancel(&parts, &scope, run, &by, args.note.as_deref()).await?;
    let reason = EndReason::OperatorCancelled;
    let (status, reason) = (reason.status().as_str(), reason.as_str());
    let mut out = Out::new();
    let written = if globals.json {
        out.json(&CancelledJson { run, status, reason, by })
    } else {
        out.line(&format!(
            "{status}; a call that is running is not recalled, and its outcome is recorded as late"
        ))
    };
    written.and_then(|()| out.flush()).map_err(|error| Failure::output(&error))?;
    Ok(Exit::Done)
}
