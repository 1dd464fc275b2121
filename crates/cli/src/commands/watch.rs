//! `portcullis watch`: says what happens to questions as it happens, reminds of what ends soon, and ends what is past its time.

use std::io;
use std::time::Duration;

use portcullis_domain::event::{Body, Event};
use portcullis_domain::id::{QuestionId, RunId};
use portcullis_domain::ports::EventPages;
use portcullis_domain::question::{Question, QuestionStatus};
use portcullis_domain::scope::Scope;
use portcullis_domain::time::Timestamp;
use portcullis_engine::sweep;

use crate::args::Globals;
use crate::assemble::{self, Database};
use crate::config;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::lookup;
use crate::output::{Out, text};
use crate::signals::Signals;
use crate::wire::WatchJson;

/// The most bytes of a name in a line.
const NAME_BYTES: usize = 60;

/// Arguments of `watch`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    every: u64,
    /// Look once: end what is past its time, remind of what ends soon, and leave
    #[arg(long)]
    once: bool,
}

/// Runs the command.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<Exit, Failure> {
    let mut signals = Signals::catch()?;
    let config = config::load(globals)?;
    let parts = assemble::operator_parts(globals, &config)?;
    let reading = assemble::reader(globals)?;
    let (db, scope) = (reading.as_ref(), Scope::of_file_owner());
    let mut out = Out::new();
    let mut place = end_of(db)?;
    loop {
        let swept = sweep::pass(&parts, &scope, config.remind_before).await?;
        let mut told = Vec::new();
        place = news(db, &scope, place, &mut told).await?;
        told.extend(swept.reminded.iter().map(|question| reminder(db, question)));
        let written = told.iter().try_for_each(|line| tell(&mut out, line, globals.json));
        written.and_then(|()| out.flush()).map_err(|error| Failure::output(&error))?;
        if args.once {
            return Ok(Exit::Done);
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(args.every)) => {}
            () = signals.next() => return Ok(Exit::Stopped),
        }
    }
}

/// Where the journal ends now: what is older is for `inbox` and `events`.
fn end_of(db: &dyn Database) -> Result<u64, Failure> {
    Ok(db.begin()?.count("events")?)
}

/// Adds what was recorded since `place`; the new place.
async fn news(
    db: &dyn Database,
    scope: &Scope,
    place: u64,
    told: &mut Vec<Told>,
) -> Result<u64, Failure> {
    let mut pages = EventPages::after(None, place, u64::MAX);
    while let Some(wanted) = pages.next_page() {
        let page = db.events(scope, wanted).await?;
        // One that cannot be read is for `verify` to name.
        told.extend(page.iter().filter_map(|stored| {
            let event = stored.event(db.instance()).ok()?;
            of_event(db, &event)
        }));
        pages.read(&page);
    }
    Ok(pages.place())
}

/// One thing that is told.
struct Told {
    at: Timestamp,
    what: &'static str,
    run: RunId,
    question: Option<QuestionId>,
    /// The tool whose call it is about.
    tool: Option<String>,
    /// The role that is asked, or the person who answered.
    who: Option<String>,
    /// The answer, or why a run ended.
    how: Option<&'static str>,
    until: Option<Timestamp>,
}

fn of_event(db: &dyn Database, event: &Event) -> Option<Told> {
    let run = RunId::from_bytes(event.link.stream.id);
    let at = event.link.at;
    let bare =
        Told { at, what: "", run, question: None, tool: None, who: None, how: None, until: None };
    let step = event.link.step;
    let tool = || step.and_then(|step| tool_of(db, step));
    Some(match &event.body {
        Body::QuestionAsked(body) => Told {
            what: "asked",
            question: Some(body.question),
            tool: tool(),
            who: Some(body.reviewers.role.clone()),
            how: Some(body.kind.as_str()),
            until: body.expires_at,
            ..bare
        },
        Body::QuestionAnswered(body) => Told {
            what: "answered",
            question: Some(body.question),
            tool: tool(),
            who: Some(body.person.clone()),
            how: Some(body.statement.answer.as_str()),
            ..bare
        },
        Body::QuestionClosed(body) => Told {
            what: "closed",
            question: Some(body.question),
            tool: tool(),
            how: Some(body.status.as_str()),
            ..bare
        },
        Body::RunFinished(body) => Told { what: "ended", how: Some(body.reason.as_str()), ..bare },
        _ => return None,
    })
}

fn reminder(db: &dyn Database, question: &Question) -> Told {
    Told {
        at: question.asked_at,
        what: match question.status {
            QuestionStatus::Granted => "grant_ends",
            _ => "question_ends",
        },
        run: question.run,
        question: Some(question.id),
        tool: tool_of(db, question.step),
        who: Some(question.reviewers.role.clone()),
        how: Some(question.kind.as_str()),
        until: question.ends_at(),
    }
}

fn tool_of(db: &dyn Database, step: portcullis_domain::id::StepId) -> Option<String> {
    let step = lookup::step_row(db, step).ok()?;
    step.admitted.map(|admitted| admitted.tool)
}

fn tell(out: &mut Out, told: &Told, json: bool) -> io::Result<()> {
    if !json {
        return out.line(&told.line());
    }
    let clip = |text: &Option<String>| text.as_deref().map(|text| text::one_line(text, NAME_BYTES));
    out.json(&WatchJson {
        what: told.what,
        at: told.at,
        run: told.run,
        question: told.question,
        tool: clip(&told.tool),
        who: clip(&told.who),
        how: told.how,
        until: told.until,
    })
}

impl Told {
    /// As one safe line.
    fn line(&self) -> String {
        let clipped = |text: &Option<String>| {
            text.as_deref().map_or_else(|| "-".to_owned(), |text| text::one_line(text, NAME_BYTES))
        };
        let (tool, who) = (clipped(&self.tool), clipped(&self.who));
        let question = self.question.map(|id| id.to_string()).unwrap_or_default();
        let how = self.how.unwrap_or_default();
        let until = self.until.map(|until| format!(", until {until}")).unwrap_or_default();
        let run = self.run;
        match self.what {
            "asked" => format!(
                "{} asked: `{who}` about {tool} ({how}), {question} of {run}{until}",
                self.at
            ),
            "answered" => {
                format!("{} answered: {who} says {how} about {tool}, {question} of {run}", self.at)
            }
            "closed" => format!("{} closed: {question} about {tool} is {how}, of {run}", self.at),
            "ended" => format!("{} ended: {run} ({how})", self.at),
            "grant_ends" => format!(
                "REMINDER: the yes to {tool}, {question} of {run}, ends soon{until}: portcullis resume {run}"
            ),
            _ => format!(
                "REMINDER: `{who}` has not answered about {tool}, {question} of {run}, and it ends soon{until}: portcullis inbox"
            ),
        }
    }
}
