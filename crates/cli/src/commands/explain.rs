//! `portcullis explain`: why each step was decided as it was, from what is recorded.

mod decision;
mod told;

use std::io;

use portcullis_audit::keys::Keyring;
use portcullis_canon::{Limits, Value, parse};
use portcullis_domain::approval::Answer;
use portcullis_domain::event::{Body, Event};
use portcullis_domain::fold::RunState;
use portcullis_domain::id::{RunId, StepId};
use portcullis_domain::observation::{Observation, ObservationKind};
use portcullis_domain::ports::{EventPages, ReviewerKeys};
use portcullis_domain::question::Question;
use portcullis_domain::step::Step;
use portcullis_domain::time::Timestamp;

use crate::args::Globals;
use crate::exit::Exit;
use crate::failure::{Code, Failure};
use crate::lookup::{self, RunArg, Words, words};
use crate::output::{Out, screen};
use crate::reading::Reading;
use crate::waits::{Counts, Waits};
use crate::wire::{FactJson, SaidJson, StepFactsJson, WaitsJson};

use decision::Decision;

/// The largest refusal or error that is read to be explained.
const MAX_DETAIL_BYTES: u64 = 1 << 20;

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run: `run_…`, or at least 8 of its digits
    #[arg(value_name = "RUN", value_parser = lookup::run_arg)]
    run: RunArg,
    /// Only this step: its number, or `step_…`
    #[arg(value_name = "STEP", value_parser = step_arg)]
    step: Option<StepArg>,
}

/// A step as it was typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepArg {
    Index(u64),
    Id(StepId),
}

fn step_arg(text: &str) -> Result<StepArg, String> {
    let index = text.parse().map(StepArg::Index).ok();
    index.or_else(|| text.parse().map(StepArg::Id).ok()).ok_or_else(|| {
        "expected the step's number, or `step_` and 32 hexadecimal digits".to_owned()
    })
}

/// One recorded fact about a step.
struct Fact {
    at: Timestamp,
    seq: u64,
    body: Body,
    /// What an observation says of a refusal or an error.
    detail: Option<Value>,
    /// What the configured keys say of an answer's signature.
    signature: Option<&'static str>,
}

/// The facts of one step, in order.
struct StepFacts {
    id: StepId,
    index: Option<u64>,
    facts: Vec<Fact>,
    /// What they come to; nothing where the record does not hold.
    folded: Option<Folded>,
    /// What the step waits for now.
    waits: Option<Waits>,
}

/// A step as its run's fold has it.
struct Folded {
    step: Step,
    /// Its latest question.
    question: Option<Question>,
    /// The answers to it.
    said: Vec<(String, Answer)>,
    /// Whether they count, where that is still to be judged by the gate.
    counts: Option<Counts>,
}

impl Folded {
    fn of(state: &RunState, id: StepId) -> Option<Self> {
        let step = state.batch.iter().find(|step| step.id == id)?.clone();
        let question = state.question.clone().filter(|question| question.step == id);
        let mine = question.as_ref().map(|question| question.id);
        let answers = state.approvals.iter().filter(|answer| Some(answer.question) == mine);
        let said = answers.map(|answer| (answer.person.clone(), answer.statement.answer)).collect();
        Some(Self { step, question, said, counts: None })
    }
}

/// Runs the command.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<Exit, Failure> {
    let reading = Reading::open(globals)?;
    let run = lookup::run_id(reading.db(), &reading.scope, &args.run).await?;
    let keyring = reading.keys_of(run);
    let mut telling = Telling {
        out: Out::new(),
        json: globals.json,
        only: args.step,
        current: Vec::new(),
        state: None,
        told: 0,
        unreadable: 0,
    };
    telling.walk(&reading, run, keyring.as_ref()).await?;
    telling.end()
}

struct Telling {
    out: Out,
    json: bool,
    only: Option<StepArg>,
    /// The step whose facts come now; with a batch all of its steps, whose facts come between each other.
    current: Vec<StepFacts>,
    /// The fold of the run as far as its record holds.
    state: Option<RunState>,
    told: u64,
    unreadable: u64,
}

impl Telling {
    async fn walk(
        &mut self,
        reading: &Reading,
        run: RunId,
        keys: Option<&Keyring>,
    ) -> Result<(), Failure> {
        let mut pages = EventPages::all(Some(run.into()));
        while let Some(wanted) = pages.next_page() {
            let page = reading.db().events(&reading.scope, wanted).await?;
            for stored in &page {
                match stored.event(reading.db().instance()) {
                    Ok(event) => {
                        self.fold(&event);
                        if let Some(step) = event.link.step {
                            self.take(step, fact(reading, event, keys).await?)?;
                        }
                    }
                    Err(_) => {
                        self.unreadable = self.unreadable.saturating_add(1);
                        self.state = None;
                    }
                }
                self.refresh();
            }
            pages.read(&page);
        }
        for current in &mut self.current {
            let Some(state) = &self.state else { continue };
            if current.folded.as_ref().is_some_and(|folded| !folded.step.status.is_final()) {
                let question = state.question.as_ref();
                current.waits = Waits::of(reading, &state.run, question, &state.approvals).await?;
                if let (Some(Waits::Grant(_, counts)), Some(folded)) =
                    (&current.waits, &mut current.folded)
                {
                    folded.counts = Some(*counts);
                }
            }
        }
        self.tell()
    }

    /// Folds one more event. A record that does not hold comes to nothing from there on.
    fn fold(&mut self, event: &Event) {
        self.state = match self.state.take() {
            None if event.link.stream_seq == 1 => RunState::begin(event).ok(),
            None => None,
            Some(mut state) => state.apply(event).ok().map(|_| state),
        };
    }

    /// What the facts so far come to; the end of a run changes its step too.
    fn refresh(&mut self) {
        let state = self.state.as_ref();
        for current in &mut self.current {
            current.folded = state.and_then(|state| Folded::of(state, current.id));
        }
    }

    /// Adds a fact; a fact of another step ends the one before it.
    fn take(&mut self, step: StepId, fact: Fact) -> Result<(), Failure> {
        if self.current.iter().all(|current| current.id != step) {
            let joins = matches!(&fact.body, Body::StepOpened(opened) if opened.batch_index > 0);
            if !joins {
                self.tell()?;
            }
            let (facts, folded, waits) = (Vec::new(), None, None);
            self.current.push(StepFacts { id: step, index: None, facts, folded, waits });
        }
        if let Some(current) = self.current.iter_mut().find(|current| current.id == step) {
            if let Body::StepOpened(opened) = &fact.body {
                current.index = Some(opened.index);
            }
            current.facts.push(fact);
        }
        Ok(())
    }

    fn tell(&mut self) -> Result<(), Failure> {
        std::mem::take(&mut self.current).iter().try_for_each(|step| self.tell_one(step))
    }

    fn tell_one(&mut self, step: &StepFacts) -> Result<(), Failure> {
        let wanted = match self.only {
            None => true,
            Some(StepArg::Index(index)) => step.index == Some(index),
            Some(StepArg::Id(id)) => step.id == id,
        };
        if !wanted {
            return Ok(());
        }
        let first = self.told == 0;
        self.told = self.told.saturating_add(1);
        let written = if self.json { self.out.json(&wire(step)) } else { self.text(step, first) };
        written.map_err(|error| Failure::output(&error))
    }

    fn text(&mut self, step: &StepFacts, first: bool) -> io::Result<()> {
        if !first {
            self.out.line("")?;
        }
        for row in told::rows(step, screen::columns()) {
            self.out.line(&row)?;
        }
        Ok(())
    }

    fn end(mut self) -> Result<Exit, Failure> {
        self.out.flush().map_err(|error| Failure::output(&error))?;
        if self.unreadable > 0 {
            let count = self.unreadable;
            let sentence =
                format!("{count} events of this run cannot be read and are not explained");
            return Err(Failure::new(Code::Damaged, sentence).hint("run `portcullis verify`"));
        }
        if self.told == 0 && self.only.is_some() {
            return Err(Failure::new(Code::Unknown, "the run has no such step")
                .hint("`portcullis show RUN` lists its steps"));
        }
        Ok(Exit::Done)
    }
}

async fn fact(reading: &Reading, event: Event, keys: Option<&Keyring>) -> Result<Fact, Failure> {
    let Event { link, body, .. } = event;
    let observation = match &body {
        Body::StepFinished(finished) => finished.observation.as_ref(),
        Body::OutcomeLate(late) => Some(&late.observation),
        Body::ProbeFinished(probed) => probed.observation.as_ref(),
        _ => None,
    };
    let detail = match observation {
        Some(observation) => detail(reading, observation).await?,
        None => None,
    };
    let signature = match &body {
        Body::QuestionAnswered(answered) => Some(match keys {
            None => "not checked: no keys are configured",
            Some(keys) => match keys.verify(&answered.statement, &answered.signature) {
                Ok(reviewer) if reviewer.person == answered.person => "valid",
                Ok(_) => "valid, but of another person's key",
                Err(portcullis_domain::ports::KeyRefusal::UnknownKey) => {
                    "not checked: the key is not configured"
                }
                Err(portcullis_domain::ports::KeyRefusal::NotValid) => {
                    "of a key that is revoked or outside its term"
                }
                Err(portcullis_domain::ports::KeyRefusal::BadSignature) => "FORGED",
            },
        }),
        _ => None,
    };
    Ok(Fact { at: link.at, seq: link.journal_seq, body, detail, signature })
}

/// What an observation says of a refusal or an error; results are for `show`.
async fn detail(reading: &Reading, observation: &Observation) -> Result<Option<Value>, Failure> {
    if observation.kind == ObservationKind::ToolResult {
        return Ok(None);
    }
    let Some(content) = observation.content else { return Ok(None) };
    let bytes = words(reading.db(), &reading.scope, content, MAX_DETAIL_BYTES).await?;
    Ok(match bytes {
        Words::Here(bytes) => parse(&bytes, &Limits::ENVELOPE).ok(),
        Words::Long | Words::Gone | Words::Differs => None,
    })
}

fn wire(step: &StepFacts) -> StepFactsJson {
    let facts = step.facts.iter().map(|fact| {
        FactJson::of(fact.seq, fact.at, &fact.body, fact.detail.as_ref(), fact.signature)
    });
    let found = step.folded.as_ref().map(Decision::of);
    let said = step.folded.iter().flat_map(|folded| &folded.said);
    StepFactsJson {
        step: step.id,
        index: step.index,
        decision: found.as_ref().map(Decision::as_str),
        because: found.as_ref().and_then(Decision::because),
        people: said.map(|(person, answer)| SaidJson::of(person, answer.as_str())).collect(),
        waits_for: step.waits.as_ref().map(WaitsJson::of),
        facts: facts.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_a_number_or_an_id() {
        assert_eq!(step_arg("3"), Ok(StepArg::Index(3)));
        let id = StepId::from_bytes([7; 16]);
        assert_eq!(step_arg(&id.to_string()), Ok(StepArg::Id(id)));
        for bad in ["", "-1", "step_07", "run_07070707070707070707070707070707"] {
            assert!(step_arg(bad).is_err(), "{bad}");
        }
    }
}
