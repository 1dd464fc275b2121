//! Admission: from a readable proposal to a canonical call, or to the reason why not.

use std::ops::Range;

use portcullis_canon::{Digest, Kind, Object, Value};
use portcullis_domain::id::StepId;
use portcullis_domain::proposal::{Ask, AskedCall, Proposal, ProposalOrigin};
use portcullis_domain::question::Card;
use portcullis_domain::recovery;
use portcullis_domain::refusal::Refusal;
use portcullis_domain::run::FrozenTool;
use portcullis_domain::step::Step;
use portcullis_domain::verdict::Verdict;

use crate::tools::{Described, Tools};

/// Why a proposal is not admitted: the rule and the place, never the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invalid {
    pub(crate) refusal: Refusal,
    /// JSON pointer into the arguments, and the rule that was broken there.
    pub(crate) place: Option<(String, String)>,
    /// The number of the call, from one, where several came together.
    pub(crate) call: Option<u32>,
}

impl From<Refusal> for Invalid {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, place: None, call: None }
    }
}

/// A call that was admitted: everything about it that does not depend on the policy.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) origin: ProposalOrigin,
    pub(crate) tool: String,
    /// Canonical: defaults filled in, fixed values and the idempotency key included.
    pub(crate) arguments: Object,
    /// Tool and arguments without the idempotency key, keyed by the run's salt.
    pub(crate) request: Digest,
}

/// What an admitted proposal is.
#[derive(Clone, Debug)]
pub(crate) enum Admission {
    Call {
        call: Call,
        /// The arguments as they were proposed, for the agent's own next view.
        proposed: Object,
    },
    /// Several calls at once, none of which is admitted yet.
    Calls {
        origin: ProposalOrigin,
        calls: Vec<AskedCall>,
    },
    Complete {
        origin: ProposalOrigin,
        result: Value,
    },
    Fail {
        origin: ProposalOrigin,
        message: String,
    },
}

/// The request id that a reply has to carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Echo {
    /// Exactly this one: the proposal came over a wire.
    Required(u64),
    /// None: a host called in this process.
    Absent,
    /// This one or none: the proposal was recorded by either, and is read again.
    Recorded(u64),
}

/// Reads and admits raw bytes.
pub(crate) fn admit(
    raw: &[u8],
    echo: Echo,
    tools: &Tools,
    frozen: &[FrozenTool],
    step: StepId,
    salt: &[u8],
) -> Result<Admission, Invalid> {
    let proposal = match echo {
        Echo::Required(request) => Proposal::read(raw, Some(request)),
        Echo::Absent => Proposal::read(raw, None),
        Echo::Recorded(request) => {
            Proposal::read(raw, Some(request)).or_else(|_| Proposal::read(raw, None))
        }
    }?;
    let origin = proposal.origin;
    match proposal.ask {
        Ask::Complete { result } => Ok(Admission::Complete { origin, result }),
        Ask::Fail { message } => Ok(Admission::Fail { origin, message }),
        Ask::ToolCall { tool, arguments } => {
            let proposed = arguments.clone();
            let call = admit_asked(origin, &tool, arguments, step, tools, frozen, salt)?;
            Ok(Admission::Call { call, proposed })
        }
        Ask::ToolCalls { calls } => Ok(Admission::Calls { origin, calls }),
    }
}

/// Admits a call of a tool of the run's frozen set.
pub(crate) fn admit_asked(
    origin: ProposalOrigin,
    tool: &str,
    arguments: Object,
    step: StepId,
    tools: &Tools,
    frozen: &[FrozenTool],
    salt: &[u8],
) -> Result<Call, Invalid> {
    let advertised = frozen.iter().any(|frozen| frozen.name == tool);
    let found = tools.get(tool).filter(|_| advertised).ok_or(Refusal::UnknownTool)?;
    admit_call(origin, arguments, step, &found.described, salt)
}

/// Admits a recorded call against the spec that it was judged with.
pub(crate) fn admit_recorded(
    raw: &[u8],
    step: StepId,
    request: u64,
    tool: &Described,
    salt: &[u8],
) -> Option<Call> {
    readmit(&Written::read(raw, request).ok()?, 0, step, tool, salt).ok()
}

/// The calls of a recorded proposal.
pub(crate) struct Written {
    origin: ProposalOrigin,
    calls: Vec<(String, Object)>,
}

impl Written {
    /// Reads the proposal that answered a request. One that is no call has none.
    pub(crate) fn read(raw: &[u8], request: u64) -> Result<Self, Refusal> {
        let proposal = Proposal::read(raw, Some(request)).or_else(|_| Proposal::read(raw, None))?;
        let calls = match proposal.ask {
            Ask::ToolCall { tool, arguments } => vec![(tool, arguments)],
            Ask::ToolCalls { calls } => {
                calls.into_iter().map(|call| (call.tool, call.arguments)).collect()
            }
            Ask::Complete { .. } | Ask::Fail { .. } => Vec::new(),
        };
        Ok(Self { origin: proposal.origin, calls })
    }

    /// The places at which the call of a step can stand: its own in its batch. A step that is alone has the only one, or
    /// one of several that were refused as a whole.
    pub(crate) fn places(&self, step: &Step) -> Range<usize> {
        let own = usize::try_from(step.batch_index).unwrap_or(usize::MAX);
        if step.batch > 1 { own..own.saturating_add(1) } else { 0..self.calls.len() }
    }
}

/// Admits the recorded call at a place of its proposal against a spec: the one that it was judged with, or another.
pub(crate) fn readmit(
    written: &Written,
    at: usize,
    step: StepId,
    tool: &Described,
    salt: &[u8],
) -> Result<Call, Refusal> {
    match written.calls.get(at) {
        Some((name, arguments)) if *name == tool.spec.name => {
            admit_call(written.origin, arguments.clone(), step, tool, salt)
                .map_err(|invalid| invalid.refusal)
        }
        _ => Err(Refusal::UnknownTool),
    }
}

/// Admits the call of a probe; `None` when the tool does not take what it would be handed.
pub(crate) fn admit_probe(
    origin: ProposalOrigin,
    arguments: Object,
    step: StepId,
    tool: &Described,
    salt: &[u8],
) -> Option<Call> {
    admit_call(origin, arguments, step, tool, salt).ok()
}

fn admit_call(
    origin: ProposalOrigin,
    arguments: Object,
    step: StepId,
    tool: &Described,
    salt: &[u8],
) -> Result<Call, Invalid> {
    let (arguments, request) = canonical_arguments(tool, arguments, step, salt)?;
    Ok(Call { origin, tool: tool.spec.name.clone(), arguments, request })
}

/// Fills defaults, fixed values and the idempotency key in, then checks the whole against the schema: what is checked
/// is what runs. The request digest is without the key, so that equal requests of two steps are equal.
fn canonical_arguments(
    tool: &Described,
    arguments: Object,
    step: StepId,
    salt: &[u8],
) -> Result<(Object, Digest), Invalid> {
    let key = tool.spec.idempotency_key.as_deref();
    if tool.spec.fixed.keys().chain(key).any(|name| arguments.contains_key(name)) {
        return Err(Refusal::FixedParameter.into());
    }
    let mut whole = arguments;
    for (key, value) in tool.spec.fixed.iter() {
        whole.insert(key, value.clone());
    }
    let Value::Object(mut whole) = tool.schema.fill_defaults(Value::Object(whole)) else {
        return Err(Refusal::WrongType.into());
    };
    if let Some(key) = key {
        whole.remove(key);
    }
    let request = request_digest(&tool.spec.name, &whole, salt);
    if let Some(key) = key {
        whole.insert(key, recovery::idempotency_key(salt, step, request));
    }
    let whole = Value::Object(whole);
    tool.schema.check(&whole).map_err(|violations| {
        let first = violations.listed().first();
        let number = first.is_some_and(|violation| violation.rule == "number");
        let refusal = if number { Refusal::NumberNotExact } else { Refusal::ArgumentsInvalid };
        Invalid {
            refusal,
            place: first.map(|violation| (violation.path.clone(), violation.rule.clone())),
            call: None,
        }
    })?;
    match whole {
        Value::Object(object) => Ok((object, request)),
        _ => Err(Refusal::WrongType.into()),
    }
}

/// The request digest of an admitted call under another salt.
pub(crate) fn request_under(call: &Call, tool: &Described, salt: &[u8]) -> Digest {
    let mut arguments = call.arguments.clone();
    if let Some(key) = &tool.spec.idempotency_key {
        arguments.remove(key);
    }
    request_digest(&call.tool, &arguments, salt)
}

fn request_digest(tool: &str, arguments: &Object, salt: &[u8]) -> Digest {
    let canonical = arguments.to_canonical();
    Digest::of_parts(Kind::Arguments, &[salt, tool.as_bytes(), &canonical])
}

/// The card for a call under a verdict: what a person would be shown, and what the call digest covers.
pub(crate) fn card(call: &Call, tool: &Described, verdict: &Verdict) -> Card {
    let reviewers = match verdict {
        Verdict::Ask { reviewers, .. } => Some(reviewers.clone()),
        Verdict::Allow { .. } | Verdict::Deny { .. } | Verdict::Abort { .. } => None,
    };
    Card {
        capability: call.tool.clone(),
        tool: call.tool.clone(),
        arguments: call.arguments.clone(),
        spec: tool.digest,
        effect: tool.spec.effect,
        source: tool.spec.source,
        sink: tool.spec.sink,
        authority: tool.spec.authority.clone(),
        target: tool.spec.target.clone(),
        sandbox: None,
        rules: verdict.rules().to_vec(),
        reviewers,
    }
}
