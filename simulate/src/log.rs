//! What happened in a simulated world, in order: commits, effects, answers that people gave, and what was done to the
//! processes. The oracle reads nothing else, and the trace is made of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use portcullis_canon::Digest;
use portcullis_domain::approval::{Answer, Signature};
use portcullis_domain::event::{Body, Event};
use portcullis_domain::id::{QuestionId, RunId, StepId};
use portcullis_domain::lease::Epoch;
use portcullis_domain::ports::Durability;
use portcullis_domain::recovery::Found;
use portcullis_domain::stream::StreamKind;
use portcullis_domain::time::Timestamp;

use crate::executor::Pid;

/// What became of an answer that a person gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It counts.
    Taken,
    /// It does not.
    Refused,
    /// Nobody knows, not even the one who gave it.
    Doubt,
}

/// What a tool did.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    pub(crate) run: RunId,
    pub(crate) step: StepId,
    /// How often the step was started, this time included.
    pub(crate) start: u32,
    pub(crate) call: Digest,
    pub(crate) tool: String,
    /// Whether it changed something, or only looked.
    pub(crate) changes: bool,
    /// The key by which the receiver knows the call.
    pub(crate) key: Option<String>,
    /// The receiver knew the key, and did nothing more.
    pub(crate) known: bool,
}

impl Effect {
    /// Whether anything is different now.
    pub(crate) const fn is_a_change(&self) -> bool {
        self.changes && !self.known
    }
}

/// What a person said.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) question: QuestionId,
    pub(crate) person: &'static str,
    pub(crate) answer: Answer,
    pub(crate) signature: Signature,
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// The store committed an append of the process that is current.
    Committed { durability: Durability, events: Vec<Event> },
    /// A lease was taken or prolonged.
    Term { run: RunId, epoch: Epoch, until: Timestamp },
    /// A tool did something outside.
    Effect(Effect),
    /// A tool that may change something told the gate that it failed and did nothing.
    SaidNothing { step: StepId, start: u32 },
    /// A probe, or the host, told what became of the call of a step.
    Told { step: StepId, found: Found },
    /// A person gave an answer.
    Said(Said),
    /// A person heard what became of it.
    Heard { signature: Signature, heard: Heard },
    /// Something else, in words.
    Note(String),
}

/// One entry.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Microseconds of the monotonic clock.
    pub(crate) at: u64,
    /// The wall clock.
    pub(crate) wall: Timestamp,
    /// Whose; zero is the world itself.
    pub(crate) pid: Pid,
    pub(crate) what: What,
}

/// Short names for ids, by the order in which they come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    names: BTreeMap<[u8; 16], String>,
    counts: BTreeMap<char, u32>,
}

impl Names {
    pub(crate) fn of(&mut self, letter: char, id: &[u8; 16]) -> String {
        if let Some(name) = self.names.get(id) {
            return name.clone();
        }
        let count = self.counts.entry(letter).or_insert(0);
        *count += 1;
        let name = format!("{letter}{count}");
        self.names.insert(*id, name.clone());
        name
    }
}

/// The trace: one line for each entry, one more for each event of a commit.
pub(crate) fn trace(entries: &[Entry], names: &Names) -> String {
    let mut names = names.clone();
    let mut text = String::new();
    for entry in entries {
        let seconds = entry.at / 1_000_000;
        let micros = entry.at % 1_000_000;
        let head = format!("{seconds:>6}.{micros:06} p{:<3}", entry.pid);
        for line in lines(&entry.what, &mut names) {
            let _ = writeln!(text, "{head} {line}");
        }
    }
    text
}

fn lines(what: &What, names: &mut Names) -> Vec<String> {
    match what {
        What::Committed { durability, events } => {
            let word = match durability {
                Durability::Synced => "committed",
                Durability::Written => "written",
            };
            let told = events.iter().map(|event| event_line(event, names));
            std::iter::once(format!("{word} {} events", events.len())).chain(told).collect()
        }
        What::Term { run, epoch, until } => {
            let run = names.of('r', run.as_bytes());
            vec![format!("lease of {run}, epoch {}, runs until {until}", epoch.0)]
        }
        What::Effect(effect) => {
            let (run, step) =
                (names.of('r', effect.run.as_bytes()), names.of('s', effect.step.as_bytes()));
            let word = match (effect.changes, effect.known) {
                (true, false) => "EFFECT",
                (true, true) => "known by its key:",
                (false, _) => "look",
            };
            vec![format!("{word} {} for {run} {step}, start {}", effect.tool, effect.start)]
        }
        What::SaidNothing { step, start } => {
            vec![format!(
                "a tool did nothing for {}, start {start}",
                names.of('s', step.as_bytes())
            )]
        }
        What::Told { step, found } => {
            let name = names.of('s', step.as_bytes());
            vec![format!("who was asked about {name} says: {}", found.as_str())]
        }
        What::Said(said) => {
            let question = names.of('q', said.question.as_bytes());
            vec![format!("{} says {} to {question}", said.person, said.answer.as_str())]
        }
        What::Heard { heard, .. } => vec![format!("the answer: {heard:?}")],
        What::Note(text) => vec![text.clone()],
    }
}

fn event_line(event: &Event, names: &mut Names) -> String {
    let letter = match event.link.stream.kind {
        StreamKind::Run => 'r',
        StreamKind::Thread => 't',
        _ => 'i',
    };
    let stream = names.of(letter, &event.link.stream.id);
    let step = event.link.step.map(|step| format!(" {}", names.of('s', step.as_bytes())));
    let more = match &event.body {
        Body::LeaseAcquired(body) => {
            format!(" epoch {} ({:?}) for p{}", body.epoch.0, body.cause, body.holder.process.pid)
        }
        Body::StepJudged(body) => {
            format!(" {} of {}", body.verdict.outcome(), body.admitted.tool)
        }
        Body::StepStarted(body) => format!(" start {} epoch {}", body.start, body.epoch.0),
        Body::StepRestarted(body) => {
            format!(" start {} epoch {} ({:?})", body.start, body.epoch.0, body.cause)
        }
        Body::ProbeStarted(body) => {
            let who = if body.call.is_some() { "its probe" } else { "the host" };
            format!(" {who} epoch {} ({:?})", body.epoch.0, body.cause)
        }
        Body::ProbeFinished(body) => format!(" {}", body.found.as_str()),
        Body::StepFinished(body) => {
            let kind = body.observation.as_ref().map(|seen| seen.kind.as_str());
            format!(" {} {}", body.status.as_str(), kind.unwrap_or("without observation"))
        }
        Body::OutcomeLate(body) => format!(" {}", body.observation.kind.as_str()),
        Body::QuestionAsked(body) => {
            let question = names.of('q', body.question.as_bytes());
            let people = body.reviewers.count;
            format!(" {question} {} of {people}", body.kind.as_str())
        }
        Body::QuestionAnswered(body) => {
            let question = names.of('q', body.question.as_bytes());
            format!(" {question} {} by {}", body.statement.answer.as_str(), body.person)
        }
        Body::QuestionClosed(body) => {
            format!(" {} {}", names.of('q', body.question.as_bytes()), body.status.as_str())
        }
        Body::ApprovalUsed(body) => format!(" {}", names.of('q', body.question.as_bytes())),
        Body::RunFinished(body) => format!(" {}", body.reason.as_str()),
        _ => String::new(),
    };
    format!("    {} {stream}{}{more}", event.body.name(), step.unwrap_or_default())
}
