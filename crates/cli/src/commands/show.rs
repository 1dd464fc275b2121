//! `portcullis show`: one run with its question and its steps.

use std::io;

use portcullis_domain::id::QuestionId;
use portcullis_domain::observation::ObservationKind;
use portcullis_domain::ports::{DamagedRow, Page, Rows};
use portcullis_domain::question::{Question, QuestionStatus};
use portcullis_domain::run::Run;
use portcullis_domain::step::Step;
use portcullis_domain::time::Timestamp;

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::lookup::{self, Asked, RunArg, Words, words};
use crate::output::table::Columns;
use crate::output::{Out, card, invalid, screen, text};
use crate::reading::{PageArgs, Reading};
use crate::waits::{Counts, Waits};
use crate::wire::{ChildJson, QuestionJson, RowJson, RunJson, ShowJson, StepJson, Text};

/// The largest observation that is read for a row.
const MAX_OBSERVATION_BYTES: u64 = 1 << 20;

/// What came back of a proposal that was not admitted.
const INVALID: ObservationKind = ObservationKind::InvalidProposal;

/// The most bytes of an observation in a row.
const SUMMARY_BYTES: usize = 80;

/// How many of the runs that it started are shown.
const CHILDREN: u32 = 100;

/// Arguments of `show`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run: `run_…`, or at least 8 of its digits
    #[arg(value_name = "RUN", value_parser = lookup::run_arg)]
    run: RunArg,
    /// Print the card of the question that waits, whole, as one line of JSON
    #[arg(long)]
    card: bool,
    #[command(flatten)]
    page: PageArgs,
}

/// Runs the command.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<Exit, Failure> {
    let reading = Reading::open(globals)?;
    let run = lookup::run(reading.db(), &reading.scope, &args.run).await?;
    let mut out = Out::new();
    let written = if args.card {
        let asked = waiting(&reading, run).await?;
        whole_card(&mut out, asked)
    } else {
        let page = Shown::read(&reading, run, args.page).await?;
        if globals.json { page.json(&mut out) } else { page.text(&mut out) }
    };
    written.and_then(|()| out.flush()).map_err(|error| Failure::output(&error))?;
    Ok(Exit::Done)
}

async fn waiting(reading: &Reading, run: Run) -> Result<Asked, Failure> {
    let (db, scope) = (reading.db(), &reading.scope);
    let Some(id) = run.question else { return Err(lookup::asks_nobody(db, scope, &run).await?) };
    lookup::asked(db, scope, run, lookup::question_row(db, id)?).await
}

fn whole_card(out: &mut Out, asked: Asked) -> io::Result<()> {
    let card = String::from_utf8(asked.card_bytes).map_err(io::Error::other)?;
    out.line(&text::json(&card))
}

/// The question as far as it can be shown.
enum Shows {
    Nothing,
    /// It was answered, and the run is to be resumed.
    Granted,
    Asked(Box<Asked>),
    /// It cannot be trusted; the sentence says why.
    Refused(QuestionId, Option<Box<Question>>, String),
}

struct Shown {
    now: Timestamp,
    run: Run,
    standing: &'static str,
    goal: Words,
    note: Option<Words>,
    result: Option<Words>,
    shows: Shows,
    waits: Option<Waits>,
    children: Rows<Run>,
    steps: Rows<Step>,
    observations: Vec<Option<Words>>,
    page: PageArgs,
}

impl Shows {
    async fn read(reading: &Reading, run: &Run) -> Self {
        let (db, scope) = (reading.db(), &reading.scope);
        let Some(id) = run.question else { return Self::Nothing };
        let question = match lookup::question_row(db, id) {
            Ok(question) if question.status == QuestionStatus::Granted => return Self::Granted,
            Ok(question) => question,
            Err(failure) => return Self::Refused(id, None, failure.to_string()),
        };
        match lookup::asked(db, scope, run.clone(), question.clone()).await {
            Ok(asked) => Self::Asked(Box::new(asked)),
            Err(failure) => Self::Refused(id, Some(Box::new(question)), failure.to_string()),
        }
    }
}

impl Shown {
    async fn read(reading: &Reading, run: Run, page: PageArgs) -> Result<Self, Failure> {
        let (db, scope) = (reading.db(), &reading.scope);
        let shows = Shows::read(reading, &run).await;
        let mut texts = [None, None];
        for (text, reference) in texts.iter_mut().zip([run.note, run.result]) {
            if let Some(reference) = reference {
                *text = Some(words(db, scope, reference, u64::MAX).await?);
            }
        }
        let [note, result] = texts;
        let steps = db.steps(scope, run.id, page.page()).await?;
        let first = Page { offset: 0, limit: CHILDREN };
        let children = db.children(scope, run.id, first).await?;
        let mut observations = Vec::with_capacity(steps.rows.len());
        for step in &steps.rows {
            let content = step.as_ref().ok().and_then(|step| step.observation.as_ref()?.content);
            observations.push(match content {
                Some(reference) => Some(words(db, scope, reference, MAX_OBSERVATION_BYTES).await?),
                None => None,
            });
        }
        Ok(Self {
            now: reading.now(),
            standing: reading.standing(&run).await?,
            goal: words(db, scope, run.goal, u64::MAX).await?,
            note,
            result,
            waits: Waits::stored(reading, &run).await?,
            run,
            shows,
            children,
            steps,
            observations,
            page,
        })
    }

    fn json(&self, out: &mut Out) -> io::Result<()> {
        let question = match &self.shows {
            Shows::Nothing | Shows::Granted => None,
            Shows::Asked(asked) => {
                let card = Words::Here(asked.card_bytes.clone());
                let reason = asked.reason.as_deref();
                Some(QuestionJson::of(&asked.question, self.now, &card, reason, asked.again))
            }
            Shows::Refused(_, question, _) => question
                .as_ref()
                .map(|question| QuestionJson::of(question, self.now, &Words::Differs, None, None)),
        };
        let steps = self.steps.rows.iter().zip(&self.observations).map(|(step, seen)| match step {
            Ok(step) => RowJson::Whole(StepJson::of(step, seen.as_ref())),
            Err(damaged) => RowJson::damaged(damaged),
        });
        let children = self.children.rows.iter().map(|child| match child {
            Ok(child) => RowJson::Whole(ChildJson {
                run: child.id,
                status: child.status.as_str(),
                reason: child.reason.map(|reason| reason.as_str()),
            }),
            Err(damaged) => RowJson::damaged(damaged),
        });
        let text = |reference, words: &Option<Words>| {
            Option::zip(reference, words.as_ref()).map(|(at, words)| Text::of(at, words))
        };
        out.json(&ShowJson {
            run: RunJson::of(&self.run, self.standing, &self.goal).waiting_for(self.waits.as_ref()),
            note: text(self.run.note, &self.note),
            result: text(self.run.result, &self.result),
            question,
            children: children.collect(),
            children_total: self.children.total,
            steps: steps.collect(),
            steps_total: self.steps.total,
            limit: self.page.limit,
            offset: self.page.offset,
            truncated: self.page.truncates(self.steps.rows.len(), self.steps.total),
        })
    }

    fn text(&self, out: &mut Out) -> io::Result<()> {
        let columns = screen::columns();
        for row in self.header(columns) {
            out.line(&row)?;
        }
        out.line("")?;
        self.table(out)?;
        // The question comes last: nothing foreign follows its closing block.
        match &self.shows {
            Shows::Granted if matches!(self.waits, Some(Waits::Grant(_, Counts::Yes))) => {
                out.line("")?;
                out.line(&format!("approved; resume with `portcullis resume {}`", self.run.id))
            }
            Shows::Nothing | Shows::Granted => Ok(()),
            Shows::Asked(asked) => {
                out.line("")?;
                card::render(&asked.sheet(), columns).iter().try_for_each(|row| out.line(row))
            }
            Shows::Refused(id, _, why) => {
                out.line("")?;
                out.line(&format!("QUESTION {id} cannot be shown: {why}"))
            }
        }
    }

    fn header(&self, columns: usize) -> Vec<String> {
        let run = &self.run;
        let mut rows = vec![format!("RUN {}", run.id)];
        let mut own = |label: &str, value: &str| rows.push(format!("  {label:<12}{value}"));
        own("status", self.standing);
        if let Some(reason) = run.reason {
            own("reason", reason.as_str());
        }
        if let Some(waits) = &self.waits {
            own("waits for", &waits.words());
        }
        own("created", &run.created_at.to_string());
        if let Some(at) = run.finished_at {
            own("finished", &at.to_string());
        }
        if run.unconfined_agent {
            own("warning", "the agent runs without confinement");
        }
        let seconds = run.active_us / 1_000_000;
        let millis = run.active_us / 1_000 % 1_000;
        own("active", &format!("{seconds}.{millis:03} s"));
        own("steps", &run.step_count.to_string());
        own("failures", &format!("{} in a row", run.failures));
        own("denials", &run.denials.to_string());
        own("policy", &run.policy.to_string());
        own("thread", &run.thread.to_string());
        if let Some(parent) = run.parent {
            own("parent", &parent.to_string());
        }
        if run.root != run.id && Some(run.root) != run.parent {
            own("top", &run.root.to_string());
        }
        for child in &self.children.rows {
            let shown = match child {
                Ok(child) => {
                    let how = child.reason.map_or_else(|| child.status.as_str(), |r| r.as_str());
                    format!("{} {how}", child.id)
                }
                Err(damaged) => format!("{} damaged", damaged.key),
            };
            own("started", &shown);
        }
        self.foreign(&mut rows, columns);
        rows
    }

    fn foreign(&self, rows: &mut Vec<String>, columns: usize) {
        let room = columns.saturating_sub(14);
        let mut quoted = |label: &str, text: &str| {
            for (at, row) in text::quote(text, room).0.iter().enumerate() {
                rows.push(format!("  {:<10}| {row}", if at == 0 { label } else { "" }));
            }
        };
        quoted("owner", &self.run.owner);
        quoted("agent", &self.run.agent);
        let texts = [
            ("goal", Some(&self.goal)),
            ("note", self.note.as_ref()),
            ("result", self.result.as_ref()),
        ];
        for (label, words) in texts {
            match words.map(Words::text) {
                None => {}
                Some(Ok(text)) => quoted(label, &text),
                Some(Err(why)) => quoted(label, &format!("({why})")),
            }
        }
    }

    fn table(&self, out: &mut Out) -> io::Result<()> {
        if self.steps.rows.is_empty() {
            return out.line("no steps");
        }
        let mut table =
            Columns::new(&["STEP", "TOOL", "VERDICT", "STATUS", "OBSERVATION", "SUMMARY"]);
        for (step, seen) in self.steps.rows.iter().zip(&self.observations) {
            table.row(cells(step, seen.as_ref()));
        }
        for row in table.lines() {
            out.line(&row)?;
        }
        let more = self.page.more(self.steps.rows.len(), self.steps.total);
        more.map_or(Ok(()), |more| out.line(&more))
    }
}

fn cells(step: &Result<Step, DamagedRow>, seen: Option<&Words>) -> [String; 6] {
    let dash = || "-".to_owned();
    let step = match step {
        Ok(step) => step,
        Err(damaged) => {
            let column = format!("column {}", damaged.column);
            return [damaged.key.clone(), dash(), dash(), "damaged".to_owned(), column, dash()];
        }
    };
    let kind = step.kind.map_or_else(dash, |kind| kind.as_str().to_owned());
    let observed = step.observation.as_ref();
    [
        step.index.to_string(),
        step.admitted.as_ref().map_or(kind, |admitted| text::one_line(&admitted.tool, 60)),
        step.verdict.as_ref().map_or_else(dash, |verdict| match verdict.reason() {
            Some(reason) => format!("{}: {}", verdict.outcome(), reason.as_str()),
            None => verdict.outcome().to_owned(),
        }),
        step.status.as_str().to_owned(),
        observed.map_or_else(dash, |observed| {
            let kind = observed.kind.as_str();
            let refusal = observed.refusal.filter(|_| observed.kind == INVALID);
            let why = refusal.map(|refusal| refusal.as_str());
            match why.or(observed.failure.map(|failure| failure.as_str())) {
                Some(why) => format!("{kind}: {why}"),
                None => kind.to_owned(),
            }
        }),
        match seen.map(Words::text) {
            None => dash(),
            Some(Ok(text)) => {
                let invalid = observed.is_some_and(|observed| observed.kind == INVALID);
                let place = if invalid { invalid::place(text.as_bytes()) } else { None };
                place.unwrap_or_else(|| text::one_line(&text, SUMMARY_BYTES))
            }
            Some(Err(why)) => format!("({why})"),
        },
    ]
}
