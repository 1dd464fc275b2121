//! `portcullis runs`: the runs, newest first.

use portcullis_domain::ports::DamagedRow;
use portcullis_domain::run::{Run, RunStatus};

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::lookup::{Words, words};
use crate::output::table::Columns;
use crate::output::{Out, text};
use crate::reading::{PageArgs, Reading};
use crate::wire::{RowJson, RunJson, RunsJson};

/// The most bytes of a goal in the table.
const GOAL_BYTES: usize = 60;

/// The largest goal that is read for a list.
const MAX_GOAL_BYTES: u64 = 1 << 20;

/// Arguments of `runs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only runs that stand here: running, waiting, completed, failed or cancelled
    #[arg(long, value_name = "STATUS", value_parser = status)]
    status: Option<RunStatus>,
    #[command(flatten)]
    page: PageArgs,
}

fn status(text: &str) -> Result<RunStatus, String> {
    RunStatus::ALL
        .into_iter()
        .find(|status| status.as_str() == text)
        .ok_or_else(|| "expected running, waiting, completed, failed or cancelled".to_owned())
}

struct Line {
    run: Run,
    standing: &'static str,
    goal: Words,
}

/// Runs the command.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<Exit, Failure> {
    let reading = Reading::open(globals)?;
    let rows = reading.db().runs(&reading.scope, args.status, args.page.page()).await?;
    let mut lines = Vec::with_capacity(rows.rows.len());
    for row in rows.rows {
        lines.push(match row {
            Ok(run) => Ok(line(&reading, run).await?),
            Err(damaged) => Err(damaged),
        });
    }
    let mut out = Out::new();
    let written = if globals.json {
        json(&mut out, &args, &lines, rows.total)
    } else {
        table(&mut out, &args, &lines, rows.total)
    };
    written.and_then(|()| out.flush()).map_err(|error| Failure::output(&error))?;
    Ok(Exit::Done)
}

async fn line(reading: &Reading, run: Run) -> Result<Line, Failure> {
    let standing = reading.standing(&run).await?;
    let goal = words(reading.db(), &reading.scope, run.goal, MAX_GOAL_BYTES).await?;
    Ok(Line { run, standing, goal })
}

fn json(
    out: &mut Out,
    args: &Args,
    lines: &[Result<Line, DamagedRow>],
    total: u64,
) -> std::io::Result<()> {
    let runs = lines
        .iter()
        .map(|line| match line {
            Ok(line) => RowJson::Whole(RunJson::of(&line.run, line.standing, &line.goal)),
            Err(damaged) => RowJson::damaged(damaged),
        })
        .collect();
    let PageArgs { limit, offset } = args.page;
    let truncated = args.page.truncates(lines.len(), total);
    out.json(&RunsJson { runs, total, limit, offset, truncated })
}

fn table(
    out: &mut Out,
    args: &Args,
    lines: &[Result<Line, DamagedRow>],
    total: u64,
) -> std::io::Result<()> {
    if lines.is_empty() {
        let none = if total == 0 { "no runs" } else { "no runs from there on" };
        return out.line(none);
    }
    let mut table = Columns::new(&["RUN", "STATUS", "REASON", "STEPS", "CREATED", "WAITS", "GOAL"]);
    for line in lines {
        table.row(cells(line));
    }
    for row in table.lines() {
        out.line(&row)?;
    }
    args.page.more(lines.len(), total).map_or(Ok(()), |more| out.line(&more))
}

fn cells(line: &Result<Line, DamagedRow>) -> [String; 7] {
    let dash = || "-".to_owned();
    match line {
        Ok(Line { run, standing, goal }) => [
            run.id.to_string(),
            (*standing).to_owned(),
            run.reason.map_or_else(dash, |reason| reason.as_str().to_owned()),
            run.step_count.to_string(),
            run.created_at.to_string(),
            run.question.map_or_else(dash, |question| question.to_string()),
            match goal.text() {
                Ok(goal) => text::one_line(&goal, GOAL_BYTES),
                Err(why) => format!("({why})"),
            },
        ],
        Err(damaged) => [
            damaged.key.clone(),
            "damaged".to_owned(),
            format!("column {}", damaged.column),
            dash(),
            dash(),
            dash(),
            "run `portcullis verify`".to_owned(),
        ],
    }
}
