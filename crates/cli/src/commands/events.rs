//! `portcullis events`: what was recorded, one event a line.

use std::io;

use portcullis_domain::ports::{EventPages, StoredEvent};
use portcullis_domain::stream::Stream;
use portcullis_domain::time::Timestamp;

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::lookup::{self, RunArg};
use crate::output::{Out, text};
use crate::reading::Reading;
use crate::wire::{EventJson, stream};

/// The most bytes of a payload in a line.
const MAX_PAYLOAD_TEXT: usize = 8_000;

/// Arguments of `events`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run: `run_…`, or at least 8 of its digits
    #[arg(value_name = "RUN", value_parser = lookup::run_arg, required_unless_present = "all")]
    run: Option<RunArg>,
    /// Every stream, not only one run's
    #[arg(long, conflicts_with = "run")]
    all: bool,
    /// Only events after this sequence number of the journal
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    after: u64,
    /// Lines to write at most; 0 writes all
    #[arg(long, value_name = "N", default_value_t = 500)]
    limit: u64,
}

/// Runs the command.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<Exit, Failure> {
    let reading = Reading::open(globals)?;
    let only = match &args.run {
        None => None,
        Some(typed) => {
            let id = lookup::run_id(reading.db(), &reading.scope, typed).await?;
            Some(Stream::from(id))
        }
    };
    let mut out = Out::new();
    let most = if args.limit == 0 { u64::MAX } else { args.limit };
    let mut pages = EventPages::after(only, args.after, most);
    while let Some(wanted) = pages.next_page() {
        let page = reading.db().events(&reading.scope, wanted).await?;
        for event in &page {
            write(&mut out, event, globals.json).map_err(|error| Failure::output(&error))?;
        }
        pages.read(&page);
    }
    out.flush().map_err(|error| Failure::output(&error))?;
    Ok(Exit::Done)
}

fn write(out: &mut Out, event: &StoredEvent, json: bool) -> io::Result<()> {
    if json { out.json(&EventJson::of(event)) } else { out.line(&line(event)) }
}

fn line(event: &StoredEvent) -> String {
    let at = Timestamp::from_micros(event.at);
    let at = if at.micros() == event.at { at.to_string() } else { format!("({})", event.at) };
    format!(
        "{} {at} {} {:<18} {}",
        event.journal_seq,
        stream(event),
        text::one_line(&event.kind, 64),
        text::one_line_bytes(&event.payload, MAX_PAYLOAD_TEXT),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_safe_line_whatever_the_row_holds() {
        let event = StoredEvent {
            journal: vec![1; 16],
            journal_seq: 3,
            tenant: "local".to_owned(),
            stream_kind: "run\u{1b}[2J".to_owned(),
            stream_id: vec![0xab; 16],
            stream_seq: 2,
            step: None,
            at: i64::MAX,
            kind: "step.opened\n\u{202e}".to_owned(),
            version: 1,
            payload: vec![b'\n', 0x1b, 0xff, b'a'],
            journal_prev: vec![],
            stream_prev: vec![],
            hash: vec![],
        };
        let line = line(&event);
        assert!(!line.chars().any(|c| c.is_control() || c == '\u{202e}'), "{line:?}");
        assert!(line.starts_with("3 (9223372036854775807) run\\x1B[2J_abab"), "{line}");
    }
}
