//! The parts of one run that can be compared, read back from its events and contents.

use std::collections::{BTreeMap, VecDeque};

use portcullis_canon::{Limits, Object, Value, parse, to_value};
use portcullis_domain::content::ContentRef;
use portcullis_domain::event::Body;
use portcullis_domain::id::RunId;
use portcullis_domain::ports::StoreError;
use portcullis_domain::proposal::{Ask, AskedCall, Proposal};
use portcullis_domain::run::FrozenTool;
use portcullis_domain::step::{Admitted, Step};

use super::Part;
use crate::retrace::{Broken, Fault, Obstacle, Recorded, Shelf, Source, Trace, obstacle};

/// The largest content that is parsed: a value takes many times the room of its text.
const MAX_PARSED_BYTES: usize = 1024 * 1024;

/// What a run has of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Value(Value),
    /// Too large to be parsed.
    Large(Vec<u8>),
}

impl Held {
    fn text(text: impl Into<Value>) -> Self {
        Self::Value(text.into())
    }

    fn of(bytes: Vec<u8>) -> Self {
        if bytes.len() > MAX_PARSED_BYTES {
            return Self::Large(bytes);
        }
        let value = parse(&bytes, &Limits::ENVELOPE);
        Self::Value(value.unwrap_or_else(|_| words(&bytes)))
    }

    /// As it is shown.
    pub(super) fn shown(&self) -> Value {
        match self {
            Self::Value(value) => value.clone(),
            Self::Large(bytes) => {
                let mut shown = Object::new();
                shown.insert("bytes", u64::try_from(bytes.len()).unwrap_or(u64::MAX));
                Value::Object(shown)
            }
        }
    }
}

fn words(bytes: &[u8]) -> Value {
    Value::from(String::from_utf8_lossy(bytes).into_owned())
}

/// What is there of each part, or why it cannot be had.
pub(super) type Parts = BTreeMap<Part, Result<Held, Obstacle>>;

/// One of the two runs.
pub(super) struct Story<'a> {
    trace: Trace<'a>,
    shelf: Shelf<'a>,
    /// The steps of the latest batch as they are now.
    batch: Vec<Step>,
    /// Steps that nothing changes any more.
    whole: VecDeque<Step>,
}

impl<'a> Story<'a> {
    pub(super) fn of(source: Source<'a>, run: RunId) -> Self {
        Self {
            trace: Trace::of(source, run),
            shelf: Shelf::of(source),
            batch: Vec::new(),
            whole: VecDeque::new(),
        }
    }

    pub(super) fn is_there(&self) -> bool {
        self.trace.state().is_some() || self.broken().is_some()
    }

    pub(super) const fn broken(&self) -> Option<Broken> {
        self.trace.broken()
    }

    /// What it was begun with.
    pub(super) async fn beginning(&mut self) -> Result<Parts, StoreError> {
        self.trace.next().await?;
        let mut parts = Parts::new();
        let Some(run) = self.trace.state().map(|state| state.run.clone()) else { return Ok(parts) };
        let mut agent = Object::new();
        agent.insert("agent", run.agent.as_str());
        agent.insert("unconfined", run.unconfined_agent);
        let tools: Object = run
            .tools
            .iter()
            .map(|tool| (tool.name.clone(), Value::from(tool.spec.to_string())))
            .collect();
        let mut put = |part, held| parts.insert(part, Ok(held));
        put(Part::Owner, Held::text(run.owner.as_str()));
        put(Part::Agent, Held::Value(Value::Object(agent)));
        put(Part::Limits, Held::Value(to_value(&run.limits).unwrap_or_default()));
        put(Part::Tools, Held::Value(Value::Object(tools)));
        put(Part::Policy, Held::text(run.policy.to_string()));
        parts.insert(Part::Goal, self.content(run.goal, Recorded::Goal, words_of).await?);
        Ok(parts)
    }

    /// How it ended, or where it stands. To be asked after its last step.
    pub(super) async fn end(&mut self) -> Result<Parts, StoreError> {
        let mut parts = Parts::new();
        let Some(run) = self.trace.state().map(|state| state.run.clone()) else { return Ok(parts) };
        let reason = run.reason.map(|reason| reason.as_str());
        let end = names([("status", Some(run.status.as_str())), ("reason", reason)]);
        parts.insert(Part::End, Ok(Held::Value(Value::Object(end))));
        if let Some(note) = run.note {
            parts.insert(Part::Note, self.content(note, Recorded::Note, words_of).await?);
        }
        if let Some(result) = run.result {
            parts.insert(Part::Result, self.content(result, Recorded::Result, Held::of).await?);
        }
        Ok(parts)
    }

    /// The next step, as nothing changes it any more; the last ones as they are where the record ends.
    pub(super) async fn step(&mut self) -> Result<Option<Step>, StoreError> {
        while self.whole.is_empty() {
            let Some(event) = self.trace.next().await? else {
                self.whole.extend(std::mem::take(&mut self.batch));
                break;
            };
            if matches!(&event.body, Body::StepOpened(opened) if opened.batch_index == 0) {
                self.whole.extend(std::mem::take(&mut self.batch));
            }
            if let Some(state) = self.trace.state() {
                self.batch.clone_from(&state.batch);
            }
        }
        Ok(self.whole.pop_front())
    }

    /// What can be compared of a step; nothing of none.
    pub(super) async fn parts_of(&mut self, step: Option<&Step>) -> Result<Parts, StoreError> {
        let mut parts = Parts::new();
        let Some(step) = step else { return Ok(parts) };
        let kind = names([
            ("kind", step.kind.map(|kind| kind.as_str())),
            ("origin", step.origin.map(|origin| origin.as_str())),
        ]);
        parts.insert(Part::Kind, Ok(Held::Value(Value::Object(kind))));
        parts.insert(Part::Outcome, Ok(Held::Value(outcome(step))));
        if let Some(verdict) = &step.verdict {
            let verdict = to_value(verdict).unwrap_or_default();
            parts.insert(Part::Verdict, Ok(Held::Value(verdict)));
        }
        // What a run was begun with is compared once; here stands only what is another by now.
        let began = self.trace.state().map(|state| state.run.policy);
        if let Some(policy) = step.policy.filter(|policy| Some(*policy) != began) {
            parts.insert(Part::Policy, Ok(Held::text(policy.to_string())));
        }
        self.asked_for(step, &mut parts).await?;
        let content = step.observation.as_ref().and_then(|observation| observation.content);
        if let Some(content) = content {
            parts.insert(Part::Result, self.content(content, Recorded::Result, Held::of).await?);
        }
        Ok(parts)
    }

    /// The call, made again; or the proposal, when it is none.
    async fn asked_for(&mut self, step: &Step, parts: &mut Parts) -> Result<(), StoreError> {
        let Some(admitted) = &step.admitted else {
            if step.proposal.is_some() {
                let raw = obstacle(self.shelf.proposal(step).await)?;
                parts.insert(Part::Proposal, raw.map(|raw| proposal(&raw, step.request())));
            }
            return Ok(());
        };
        parts.insert(Part::Tool, Ok(Held::text(admitted.tool.as_str())));
        if !self.is_frozen(admitted) {
            parts.insert(Part::Spec, Ok(Held::text(admitted.spec.to_string())));
        }
        let call = match self.trace.state() {
            Some(state) => self.shelf.call(state, step, admitted).await,
            None => Err(Fault::Obstacle(Obstacle::CallDiffers)),
        };
        let arguments = obstacle(call)?.map(|made| Value::Object(made.call.arguments));
        parts.insert(Part::Arguments, arguments.map(Held::Value));
        Ok(())
    }

    /// Whether the call was judged with the spec that its run was begun with.
    fn is_frozen(&self, admitted: &Admitted) -> bool {
        self.trace.state().is_some_and(|state| {
            let same = |tool: &FrozenTool| tool.name == admitted.tool && tool.spec == admitted.spec;
            state.run.tools.iter().any(same)
        })
    }

    async fn content(
        &self,
        reference: ContentRef,
        what: Recorded,
        read: impl FnOnce(Vec<u8>) -> Held,
    ) -> Result<Result<Held, Obstacle>, StoreError> {
        Ok(obstacle(self.shelf.content(reference, what).await)?.map(read))
    }
}

fn words_of(bytes: Vec<u8>) -> Held {
    if bytes.len() > MAX_PARSED_BYTES { Held::Large(bytes) } else { Held::Value(words(&bytes)) }
}

/// An object of the names that there are.
fn names<const N: usize>(all: [(&str, Option<&'static str>); N]) -> Object {
    all.into_iter().filter_map(|(key, name)| Some((key.to_owned(), Value::from(name?)))).collect()
}

fn outcome(step: &Step) -> Value {
    let observed = step.observation.as_ref();
    let mut outcome = names([
        ("status", Some(step.status.as_str())),
        ("kind", observed.map(|observation| observation.kind.as_str())),
        ("refusal", observed.and_then(|o| o.refusal).map(|refusal| refusal.as_str())),
        ("failure", observed.and_then(|o| o.failure).map(|failure| failure.as_str())),
    ]);
    outcome.insert("starts", u64::from(step.starts));
    if observed.is_some_and(|observation| observation.cut) {
        outcome.insert("cut", true);
    }
    Value::Object(outcome)
}

/// What a proposal asks for, without the request that it answers and the reason that it states; one that cannot be read
/// as its words.
fn proposal(raw: &[u8], request: u64) -> Held {
    let read = Proposal::read(raw, Some(request)).or_else(|_| Proposal::read(raw, None));
    let Ok(proposal) = read else { return words_of(raw.to_vec()) };
    let mut asked = Object::new();
    match proposal.ask {
        Ask::Complete { result } => asked.insert("result", result),
        Ask::Fail { message } => asked.insert("message", message),
        Ask::ToolCall { tool, arguments } => {
            asked.insert("arguments", Value::Object(arguments));
            asked.insert("tool", tool)
        }
        Ask::ToolCalls { calls } => {
            let call = |call: AskedCall| {
                let mut one = Object::new();
                one.insert("arguments", Value::Object(call.arguments));
                one.insert("tool", call.tool);
                Value::Object(one)
            };
            asked.insert("calls", calls.into_iter().map(call).collect::<Vec<_>>())
        }
    };
    Held::Value(Value::Object(asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_large_is_compared_by_its_bytes_and_shown_by_their_number() {
        let text = |last: char| format!("\"{}{last}\"", "x".repeat(MAX_PARSED_BYTES)).into_bytes();
        let (one, other) = (Held::of(text('a')), Held::of(text('b')));
        assert_eq!(one, Held::of(text('a')));
        assert_ne!(one, other);
        let bytes = MAX_PARSED_BYTES + 3;
        assert_eq!(one.shown().to_canonical_string(), format!("{{\"bytes\":{bytes}}}"));
        assert_eq!(words_of(text('a')), one);
    }

    #[test]
    fn what_is_no_json_is_compared_as_words() {
        assert_eq!(Held::of(b"{\"a\":1}".to_vec()).shown().get("a"), Some(&Value::from(1)));
        assert_eq!(Held::of(b"{\xff".to_vec()), Held::text("{\u{fffd}"));
    }
}
