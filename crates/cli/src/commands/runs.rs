//! `portcullis runs`: the runs, newest first.

use portcullis_domain::ports::{DamagedRow, Page, Rows};
use portcullis_domain::run::{Run, RunStatus};

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::lookup::{Words, words};
use crate::output::table::Columns;
use crate::output::{Out, text};
use crate::reading::{PageArgs, Reading};
use crate::waits::Waits;
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
    /// Only runs that have not ended, with what each waits for: the running ones, then the waiting ones
    #[arg(long, conflicts_with = "status")]
    stuck: bool,
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
    /// Nothing once it ended.
    waits: Option<Waits>,
}

/// Runs the command.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<Exit, Failure> {
    let reading = Reading::open(globals)?;
    let rows = if args.stuck {
        unended(&reading, args.page).await?
    } else {
        reading.db().runs(&reading.scope, args.status, args.page.page()).await?
    };
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

/// A page of two lists, one after the other.
async fn unended(reading: &Reading, page: PageArgs) -> Result<Rows<Run>, Failure> {
    let list = |status, page| reading.db().runs(&reading.scope, Some(status), page);
    let mut rows = list(RunStatus::Running, page.page()).await?;
    let shown = u32::try_from(rows.rows.len()).unwrap_or(page.limit);
    let left = page.limit.saturating_sub(shown);
    // Where nothing is left the list is asked for its length alone.
    let offset = page.offset.saturating_sub(rows.total);
    let waiting = list(RunStatus::Waiting, Page { offset, limit: left.max(1) }).await?;
    let kept = usize::try_from(left).unwrap_or(0);
    rows.rows.extend(waiting.rows.into_iter().take(kept));
    rows.total = rows.total.saturating_add(waiting.total);
    Ok(rows)
}

async fn line(reading: &Reading, run: Run) -> Result<Line, Failure> {
    let standing = reading.standing(&run).await?;
    let goal = words(reading.db(), &reading.scope, run.goal, MAX_GOAL_BYTES).await?;
    let waits = Waits::stored(reading, &run).await?;
    Ok(Line { run, standing, goal, waits })
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
            Ok(line) => {
                let run = RunJson::of(&line.run, line.standing, &line.goal);
                RowJson::Whole(run.waiting_for(line.waits.as_ref()))
            }
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
        let none = match (total, args.stuck) {
            (0, false) => "no runs",
            (0, true) => "no run that has not ended",
            _ => "no runs from there on",
        };
        return out.line(none);
    }
    let table = if args.stuck { stuck(lines) } else { listed(lines) };
    for row in table.lines() {
        out.line(&row)?;
    }
    args.page.more(lines.len(), total).map_or(Ok(()), |more| out.line(&more))
}

fn listed(lines: &[Result<Line, DamagedRow>]) -> Columns {
    let mut table =
        Columns::new(&["RUN", "STATUS", "REASON", "STEPS", "CREATED", "WAITS FOR", "GOAL"]);
    lines.iter().for_each(|line| table.row(cells(line)));
    table
}

/// What each waits for stands last, since it is what gives way on a narrow terminal and is read to its end.
fn stuck(lines: &[Result<Line, DamagedRow>]) -> Columns {
    let mut table = Columns::new(&["RUN", "STATUS", "STEPS", "GOAL", "WAITS FOR"]);
    for line in lines {
        let waits = line.as_ref().ok().and_then(|line| line.waits.as_ref());
        let [run, status, reason, steps, _, _, goal] = cells(line);
        let waits = waits.map_or(reason, Waits::words);
        table.row([run, status, steps, goal, waits]);
    }
    table
}

fn cells(line: &Result<Line, DamagedRow>) -> [String; 7] {
    let dash = || "-".to_owned();
    match line {
        Ok(Line { run, standing, goal, waits }) => [
            run.id.to_string(),
            (*standing).to_owned(),
            run.reason.map_or_else(dash, |reason| reason.as_str().to_owned()),
            run.step_count.to_string(),
            run.created_at.to_string(),
            waits.as_ref().map_or_else(dash, Waits::brief),
            match goal.text() {
                Ok(goal) if run.parent.is_some() => {
                    format!("below {}: {}", run.root, text::one_line(&goal, GOAL_BYTES))
                }
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
