//! `portcullis inbox`: what waits for a person.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use portcullis_domain::child::MAX_DEPTH;
use portcullis_domain::id::{QuestionId, RunId};
use portcullis_domain::ports::{DamagedRow, StoreError};
use portcullis_domain::question::{Question, QuestionKind, QuestionStatus};
use portcullis_domain::time::Timestamp;
use portcullis_domain::verdict::{OnRejection, Reviewers};

use crate::again;
use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::lookup::{self, Words, words};
use crate::output::table::Columns;
use crate::output::{Out, text};
use crate::reading::{PageArgs, Reading};
use crate::wire::{InboxJson, QuestionJson, RowJson};

/// The largest card that is read for a list.
const MAX_CARD_BYTES: u64 = 4 << 20;

/// Arguments of `inbox`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    page: PageArgs,
}

struct Line {
    question: Question,
    tool: Option<String>,
    card: Words,
    reason: Option<String>,
    again: Option<&'static str>,
    /// Its time is past: an answer would come too late, and the next run, resume or watch closes it.
    overdue: bool,
    /// It ends soon.
    soon: bool,
    /// Others of this page that ask for the same call.
    alike: Vec<QuestionId>,
    /// The runs from the top of the tree down to the one that asks.
    path: Vec<RunId>,
}

/// Runs the command.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<Exit, Failure> {
    let reading = Reading::open(globals)?;
    let (db, scope) = (reading.db(), &reading.scope);
    let open = Some(QuestionStatus::Open);
    let before = reading.remind_before();
    let rows = db.questions(scope, None, open, args.page.page()).await?;
    let mut lines = Vec::with_capacity(rows.rows.len());
    for row in rows.rows {
        lines.push(match row {
            Ok(question) => Ok(line(&reading, question, before).await?),
            Err(damaged) => Err(damaged),
        });
    }
    find_alike(&mut lines);
    let mut out = Out::new();
    let written = if globals.json {
        json(&mut out, &args, &lines, rows.total, reading.now())
    } else {
        table(&mut out, &args, &lines, rows.total)
    };
    written.and_then(|()| out.flush()).map_err(|error| Failure::output(&error))?;
    Ok(Exit::Done)
}

async fn line(
    reading: &Reading,
    question: Question,
    before: Option<Duration>,
) -> Result<Line, Failure> {
    let (db, scope) = (reading.db(), &reading.scope);
    let step = lookup::step_row(db, question.step).ok();
    let step = step.as_ref();
    let tool = step.and_then(|step| step.admitted.as_ref()).map(|admitted| admitted.tool.clone());
    let reason = match step {
        Some(step) => lookup::reason(db, scope, step).await?,
        None => None,
    };
    let card = words(db, scope, question.card, MAX_CARD_BYTES).await?;
    let now = reading.now();
    let overdue = question.is_over(now);
    let soon = before.is_some_and(|before| {
        !overdue && question.expires_at.is_some_and(|at| at <= now.after(before))
    });
    let again = again::earlier_yes(db, scope, &question).await?;
    let path = path(reading, question.run).await?;
    Ok(Line { question, tool, card, reason, again, overdue, soon, alike: Vec::new(), path })
}

/// The runs from the top of the tree down to this one; what cannot be read ends it.
async fn path(reading: &Reading, run: RunId) -> Result<Vec<RunId>, Failure> {
    let (mut path, mut next) = (Vec::new(), Some(run));
    while let Some(run) = next.filter(|_| path.len() <= MAX_DEPTH) {
        path.push(run);
        next = match reading.db().run(&reading.scope, run).await {
            Ok(state) => state.and_then(|state| state.run.parent),
            Err(StoreError::Damaged { .. }) => None,
            Err(error) => return Err(error.into()),
        };
    }
    path.reverse();
    Ok(path)
}

/// Names with each question the others that have the same card and ask the same people.
fn find_alike(lines: &mut [Result<Line, DamagedRow>]) {
    let mut groups: HashMap<_, Vec<QuestionId>> = HashMap::new();
    for line in lines.iter().flatten() {
        if let Some(same) = same(line) {
            groups.entry(same).or_default().push(line.question.id);
        }
    }
    for line in lines.iter_mut().flatten() {
        let group = same(line).and_then(|same| groups.get(&same)).into_iter().flatten();
        line.alike = group.copied().filter(|other| *other != line.question.id).collect();
    }
}

/// What questions have in common that one answer can be given to.
fn same(line: &Line) -> Option<(Vec<u8>, Reviewers, OnRejection)> {
    let Line { question, card: Words::Here(card), .. } = line else { return None };
    let approval = question.kind == QuestionKind::Approval;
    approval.then(|| (card.clone(), question.reviewers.clone(), question.on_rejection))
}

fn json(
    out: &mut Out,
    args: &Args,
    lines: &[Result<Line, DamagedRow>],
    total: u64,
    now: Timestamp,
) -> io::Result<()> {
    let questions = lines
        .iter()
        .map(|line| match line {
            Ok(Line { question, card, reason, again, alike, soon, path, .. }) => {
                let question = QuestionJson::of(question, now, card, reason.as_deref(), *again);
                let question = question.with_alike(alike.clone()).on_path(path.clone());
                RowJson::Whole(question.ending_soon(*soon))
            }
            Err(damaged) => RowJson::damaged(damaged),
        })
        .collect();
    let PageArgs { limit, offset } = args.page;
    let truncated = args.page.truncates(lines.len(), total);
    out.json(&InboxJson { questions, total, limit, offset, truncated })
}

fn table(
    out: &mut Out,
    args: &Args,
    lines: &[Result<Line, DamagedRow>],
    total: u64,
) -> io::Result<()> {
    if lines.is_empty() {
        let none = if total == 0 { "nothing waits" } else { "nothing waits from there on" };
        return out.line(none);
    }
    let mut table =
        Columns::new(&["QUESTION", "RUN", "TOOL", "KIND", "ASKED", "EXPIRES", "NEEDS", "ALIKE"]);
    for line in lines {
        table.row(cells(line));
    }
    for row in table.lines() {
        out.line(&row)?;
    }
    if let Some(more) = args.page.more(lines.len(), total) {
        out.line(&more)?;
    }
    out.line("")?;
    for row in how_to_decide(lines) {
        out.line(row)?;
    }
    Ok(())
}

fn how_to_decide(lines: &[Result<Line, DamagedRow>]) -> Vec<&'static str> {
    let any = |kind| lines.iter().flatten().any(|line| line.question.kind == kind);
    let mut rows = Vec::new();
    if any(QuestionKind::Approval) {
        rows.push("see and decide: portcullis approve QUESTION, or portcullis reject QUESTION");
    }
    if lines.iter().flatten().any(|line| !line.alike.is_empty()) {
        rows.push("decide on all that ask for the same call: portcullis approve QUESTION --alike");
    }
    if lines.iter().flatten().any(|line| line.path.len() > 1) {
        rows.push("a run below another one is shown with the top of its tree: `resume` of either goes on with both");
    }
    if any(QuestionKind::UnknownOutcome) {
        rows.push("settle an unknown_outcome: portcullis answer QUESTION happened|did-not-happen|run-again");
    }
    rows
}

fn cells(line: &Result<Line, DamagedRow>) -> [String; 8] {
    let dash = || "-".to_owned();
    match line {
        Ok(line @ Line { question, tool, .. }) => {
            let reviewers = &question.reviewers;
            [
                question.id.to_string(),
                match line.path.first().filter(|top| **top != question.run) {
                    None => question.run.to_string(),
                    Some(top) => format!("{} of {top}", question.run),
                },
                tool.as_deref().map_or_else(dash, |tool| text::one_line(tool, 60)),
                question.kind.as_str().to_owned(),
                question.asked_at.to_string(),
                match question.expires_at {
                    None => "never".to_owned(),
                    Some(at) if line.overdue => format!("{at} overdue"),
                    Some(at) if line.soon => format!("{at} soon"),
                    Some(at) => at.to_string(),
                },
                format!(
                    "{} of {} {}",
                    question.yes,
                    reviewers.count,
                    text::one_line(&reviewers.role, 60)
                ),
                match line.alike.len() {
                    0 => dash(),
                    others => format!("{others} more"),
                },
            ]
        }
        Err(damaged) => [
            damaged.key.clone(),
            dash(),
            dash(),
            "damaged".to_owned(),
            format!("column {}", damaged.column),
            dash(),
            dash(),
            dash(),
        ],
    }
}
