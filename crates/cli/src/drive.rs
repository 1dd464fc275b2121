//! Driving a run until it rests, and telling how it came to rest.

use std::io::Write as _;

use portcullis_canon::sanitize;
use portcullis_domain::id::RunId;
use portcullis_domain::ports::Store;
use portcullis_domain::question::{Question, QuestionKind};
use portcullis_domain::run::{EndReason, RunStatus};
use portcullis_domain::scope::Scope;
use portcullis_engine::{Driven, Driving, HeldRun};

use crate::agent::Started;
use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::heads::Heads;
use crate::progress::Progress;
use crate::signals::Signals;
use crate::wire::RestJson;
use crate::words::quote;

/// The longest result or note that is shown, in bytes.
const MAX_SHOWN: usize = 2_000;

/// Drives a held run with its agent. The first signal stops it at the next record, the second one at once.
pub(crate) async fn to_rest(
    held: HeldRun,
    started: Started,
    signals: &mut Signals,
    progress: Option<&Progress>,
) -> Result<Driven, Failure> {
    let (agent, engaged, leaving) = started.split();
    let mut driving = Driving::start_with(held, agent, engaged).await?;
    let mut told = false;
    let driven = loop {
        tokio::select! {
            driven = driving.finished() => break driven?,
            () = signals.next() => {
                if told {
                    return Ok(Driven::Stopped);
                }
                told = true;
                driving.stop();
                if let Some(progress) = progress {
                    progress.say("stopping at the next record; once more to stop at once");
                }
            }
        }
    };
    leaving.end().await;
    Ok(driven)
}

/// Where a run came to rest, as it is told.
pub(crate) struct Rest {
    /// The run.
    pub(crate) run: RunId,
    /// How.
    pub(crate) driven: Driven,
}

impl Rest {
    /// What a script learns of it.
    pub(crate) const fn exit(&self) -> Exit {
        match self.driven {
            Driven::Waiting(_) | Driven::Child(_) => Exit::Waiting,
            Driven::Stopped => Exit::Stopped,
            Driven::Ended(reason) => match reason.status() {
                RunStatus::Completed => Exit::Done,
                _ => Exit::Refused,
            },
        }
    }

    /// Writes it to standard output.
    pub(crate) async fn tell(&self, store: &dyn Store, globals: &Globals) -> Result<(), Failure> {
        let words = self.last_words(store).await?;
        if globals.json {
            return crate::say_json(&self.json(words, globals));
        }
        let text = self.text(&words, globals);
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .map_err(|error| Failure::output(&error))
    }

    async fn last_words(&self, store: &dyn Store) -> Result<LastWords, Failure> {
        let scope = Scope::of_file_owner();
        let Some(state) = store.run(&scope, self.run).await? else {
            return Ok(LastWords::default());
        };
        let asks = |question: &Question| question.kind == QuestionKind::UnknownOutcome;
        let outcome = state.question.as_ref().is_some_and(asks);
        let top = Some(state.run.root).filter(|root| *root != self.run);
        let asked = state.run.agent.strip_prefix("model:");
        let live = asked.is_some_and(|model| !model.starts_with("replay:"));
        let mut words = LastWords { outcome, top, live, ..LastWords::default() };
        for (content, kept) in
            [(state.run.result, &mut words.result), (state.run.note, &mut words.note)]
        {
            let Some(content) = content else { continue };
            let found = store.content(&scope, content.digest).await?;
            *kept = found.map(|content| String::from_utf8_lossy(content.bytes()).into_owned());
        }
        Ok(words)
    }

    /// The commands that go on from here, ready to be typed.
    fn next(&self, words: &LastWords, globals: &Globals) -> Vec<String> {
        let run = self.run;
        match self.driven {
            Driven::Waiting(question) => vec![
                command(globals, "inbox"),
                command(
                    globals,
                    &match words.outcome {
                        true => format!("answer {question} happened|did-not-happen|run-again"),
                        false => format!("approve {question}"),
                    },
                ),
                command(globals, &format!("resume {run}")),
            ],
            Driven::Stopped | Driven::Child(_) => {
                vec![command(globals, &format!("resume {run}"))]
            }
            Driven::Ended(reason) => {
                let mut next = vec![command(globals, &format!("show {run}"))];
                if words.live && reason == EndReason::ModelUnavailable {
                    next.push(command(globals, "models"));
                }
                next
            }
        }
    }

    fn text(&self, words: &LastWords, globals: &Globals) -> String {
        let mut lines = vec![format!("run     {}", self.run), format!("status  {}", self.status())];
        let clip = |text: &str| sanitize::clip(&sanitize::line(text), MAX_SHOWN);
        lines.extend(words.top.map(|top| format!("part of {top}")));
        lines.extend(words.result.as_deref().map(|text| format!("result  {}", clip(text))));
        lines.extend(words.note.as_deref().map(|text| format!("note    {}", clip(text))));
        for (index, next) in self.next(words, globals).iter().enumerate() {
            let label = if index == 0 { "next" } else { "" };
            lines.push(format!("{label:<8}{next}"));
        }
        lines.push(String::new());
        lines.join("\n")
    }

    fn status(&self) -> String {
        match self.driven {
            Driven::Waiting(question) => format!("waiting: a person has to answer {question}"),
            Driven::Child(child) => format!("waiting: for {child}, which it started"),
            Driven::Stopped => "stopped: it can be taken up again".to_owned(),
            Driven::Ended(reason) => {
                let status = format!("{} ({})", reason.status().as_str(), reason.as_str());
                match reason {
                    EndReason::RepeatedFailures | EndReason::LimitDenials => {
                        format!("{status}; `show` tells why each call came to nothing")
                    }
                    _ => status,
                }
            }
        }
    }

    fn json(&self, words: LastWords, globals: &Globals) -> RestJson {
        let (status, reason, question) = match self.driven {
            Driven::Waiting(question) => (RunStatus::Waiting.as_str(), None, Some(question)),
            Driven::Child(_) => (RunStatus::Waiting.as_str(), None, None),
            Driven::Stopped => ("stopped", None, None),
            Driven::Ended(reason) => (reason.status().as_str(), Some(reason.as_str()), None),
        };
        let next = self.next(&words, globals);
        let LastWords { result, note, top, .. } = words;
        let top = top.unwrap_or(self.run);
        RestJson { run: self.run, top, status, reason, question, result, note, next }
    }
}

#[derive(Default)]
struct LastWords {
    /// The top of the tree, where the run is not that itself.
    top: Option<RunId>,
    result: Option<String>,
    note: Option<String>,
    /// The run waits for a word on what became of a call.
    outcome: bool,
    /// Its agent asks a model that is there, and not a recording.
    live: bool,
}

/// A command that reaches the same database and reviewers.
pub(crate) fn command(globals: &Globals, rest: &str) -> String {
    let mut words = vec!["portcullis".to_owned()];
    let mut option = |name: &str, path: &std::path::Path| {
        words.push(format!("{name} {}", quote(&path.to_string_lossy())));
    };
    if globals.db != globals.place.database() {
        option("--db", &globals.db);
    }
    if let Some(config) = &globals.config_path {
        option("-c", config);
    }
    words.push(rest.to_owned());
    words.join(" ")
}

/// Keeps the head, then tells how the run came to rest. A head that cannot be kept is told after it.
pub(crate) async fn conclude(
    rest: Rest,
    heads: Option<&Heads>,
    database: &dyn crate::assemble::Database,
    globals: &Globals,
    progress: Option<&Progress>,
) -> Result<Exit, Failure> {
    let kept = heads.map_or(Ok(()), |heads| heads.keep(database));
    if let Some(progress) = progress {
        progress.settle();
    }
    rest.tell(database, globals).await?;
    kept.map(|()| rest.exit())
}
