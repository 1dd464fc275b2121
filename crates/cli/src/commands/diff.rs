//! `portcullis diff`: two runs beside each other, and where they part.

use std::io;

use portcullis_canon::Value;
use portcullis_domain::id::RunId;
use portcullis_engine::diff::{Broken, Diff, Difference, Section, Side, Totals, Where};

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::{Code, Failure};
use crate::lookup::{self, RunArg, Typed};
use crate::output::{Out, screen, text};
use crate::reading::Reading;
use crate::wire::{ComparedJson, SectionJson};

/// The most bytes of a name or a place in a row.
const NAME_BYTES: usize = 120;

/// Where values begin.
const LABEL_COLUMNS: usize = 10;

/// Arguments of `diff`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A run: `run_…`, or at least 8 of its digits
    #[arg(value_name = "ONE", value_parser = lookup::run_arg)]
    one: RunArg,
    /// Another run
    #[arg(value_name = "OTHER", value_parser = lookup::run_arg)]
    other: RunArg,
}

/// Runs the command.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<Exit, Failure> {
    let reading = Reading::open(globals)?;
    let (one, other) = (named(&reading, &args.one).await?, named(&reading, &args.other).await?);
    let mut diff = Diff::of(reading.db(), &reading.scope, one, other);
    let mut telling = Telling {
        out: Out::new(),
        json: globals.json,
        columns: screen::columns(),
        same: None,
        parted: false,
    };
    while let Some(section) = diff.next().await? {
        if section.place == Where::Beginning {
            if let Some(absent) = diff.absent() {
                return Err(no_such_run(if absent == Side::One { one } else { other }));
            }
            telling.begin(one, other)?;
        }
        telling.section(&section)?;
    }
    let totals = *diff.totals();
    telling.end(&totals)?;
    Ok(if totals.is_same() { Exit::Done } else { Exit::Refused })
}

/// The run that was typed. Whether it has a row is nothing to go by.
async fn named(reading: &Reading, typed: &RunArg) -> Result<RunId, Failure> {
    match typed {
        Typed::Whole(id) => Ok(*id),
        begins => lookup::run_id(reading.db(), &reading.scope, begins).await,
    }
}

fn no_such_run(run: RunId) -> Failure {
    Failure::new(Code::Unknown, format!("there is no run {run}"))
        .hint("list what there is with `portcullis runs`")
}

struct Telling {
    out: Out,
    json: bool,
    columns: usize,
    /// The first and the last of the steps that are alike and not told yet.
    same: Option<(u64, u64)>,
    /// Whether a step was told that is not alike.
    parted: bool,
}

impl Telling {
    fn begin(&mut self, one: RunId, other: RunId) -> Result<(), Failure> {
        if self.json {
            return Ok(());
        }
        self.lines([label("one", &one.to_string()), label("other", &other.to_string())])
    }

    fn section(&mut self, section: &Section) -> Result<(), Failure> {
        if self.json {
            return self.written(|out| out.json(&SectionJson::of(section)));
        }
        if let (true, Where::Step(index)) = (section.is_same(), section.place) {
            let first = self.same.map_or(index, |(first, _)| first);
            self.same = Some((first, index));
            return Ok(());
        }
        let mut rows: Vec<String> = self.same.take().map(alike).into_iter().collect();
        if !section.is_same() {
            rows.push(self.heading(section));
            section.differences.iter().for_each(|found| difference(&mut rows, found, self.columns));
            rows.extend(section.unknown.iter().map(|found| {
                let (part, side) = (found.part.as_str(), found.side.as_str());
                let (name, why) = (found.why.as_str(), found.why);
                format!("  {part} cannot be compared: in `{side}` {why} ({name})")
            }));
        }
        self.lines(rows)
    }

    fn heading(&mut self, section: &Section) -> String {
        let what = match (section.place, section.one, section.other) {
            (Where::Beginning, ..) => return "BEGINNING".to_owned(),
            (Where::End, ..) => return "END".to_owned(),
            (Where::Step(_), Some(_), None) => "only in `one`",
            (Where::Step(_), None, Some(_)) => "only in `other`",
            (Where::Step(_), ..) if section.differences.is_empty() => "not all can be compared",
            (Where::Step(_), ..) => "differs",
        };
        let first = !self.parted && !section.differences.is_empty();
        self.parted |= first;
        let here = if first { ": here they part" } else { "" };
        let Where::Step(index) = section.place else { return what.to_owned() };
        let tool = section.tool.as_deref().map(|tool| text::one_line(tool, NAME_BYTES));
        let tool = tool.map(|tool| format!("  | {tool}")).unwrap_or_default();
        format!("STEP {index}  {what}{here}{tool}")
    }

    fn end(mut self, totals: &Totals) -> Result<(), Failure> {
        if self.json {
            self.written(|out| out.json(&ComparedJson::of(totals)))?;
            return self.written(Out::flush);
        }
        let mut rows = Vec::new();
        let broken = |side: &str, broken: Broken| format!("BROKEN in `{side}`: {broken}");
        rows.extend(totals.broken_one.map(|found| broken("one", found)));
        rows.extend(totals.broken_other.map(|found| broken("other", found)));
        rows.push(counted(totals));
        if totals.broken_one.or(totals.broken_other).is_some() {
            rows.push("look at the record with `portcullis verify`".to_owned());
        }
        self.lines(rows)?;
        self.written(Out::flush)
    }

    fn lines(&mut self, rows: impl IntoIterator<Item = String>) -> Result<(), Failure> {
        self.written(|out| rows.into_iter().try_for_each(|row| out.line(&row)))
    }

    fn written(&mut self, write: impl FnOnce(&mut Out) -> io::Result<()>) -> Result<(), Failure> {
        write(&mut self.out).map_err(|error| Failure::output(&error))
    }
}

fn label(label: &str, value: &str) -> String {
    format!("{label:<LABEL_COLUMNS$}{value}")
}

fn alike((first, last): (u64, u64)) -> String {
    if first == last {
        format!("STEP {first}  the same")
    } else {
        format!("STEPS {first} to {last}  the same")
    }
}

fn counted(totals: &Totals) -> String {
    let Totals { same, different, uncompared, only_one, only_other, unknown, .. } = totals;
    let what = if totals.is_same() { "the same" } else { "NOT THE SAME" };
    let steps =
        format!("steps: {same} alike, {different} not alike, {uncompared} not all compared");
    let only = format!("{only_one} only in `one`, {only_other} only in `other`");
    format!("{what}; {steps}, {only}; things not compared: {unknown}")
}

/// One difference. The place and the values are foreign text: each stands behind a bar.
fn difference(rows: &mut Vec<String>, found: &Difference, columns: usize) {
    let part = found.part.as_str();
    let at = text::one_line(&found.at, NAME_BYTES);
    rows.push(if at.is_empty() { format!("  {part}") } else { format!("  {part}  | {at}") });
    let sides = [found.one.as_ref(), found.other.as_ref()];
    // A text beside a number has its quotes, so that the two cannot look alike.
    let plain = sides.iter().flatten().all(|value| value.as_str().is_some());
    for (label, side) in ["one", "other"].into_iter().zip(sides) {
        value(rows, label, side, plain, columns);
    }
}

fn value(rows: &mut Vec<String>, label: &str, value: Option<&Value>, plain: bool, columns: usize) {
    let Some(value) = value else {
        rows.push(format!("    {label:<LABEL_COLUMNS$}nothing"));
        return;
    };
    let words = match value {
        Value::String(words) if plain => words.clone(),
        other => other.to_canonical_string(),
    };
    let room = columns.saturating_sub(LABEL_COLUMNS.saturating_add(6));
    for (at, row) in text::quote(&words, room).0.iter().enumerate() {
        let label = if at == 0 { label } else { "" };
        rows.push(format!("    {label:<LABEL_COLUMNS$}| {row}"));
    }
}
