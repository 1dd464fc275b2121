//! Admission: from a readable proposal to a canonical call, or to the reason why not.

use portcullis_canon::{Digest, Kind, Object, Value};
use portcullis_domain::proposal::{Ask, Proposal, ProposalOrigin};
use portcullis_domain::question::Card;
use portcullis_domain::refusal::Refusal;
use portcullis_domain::run::FrozenTool;
use portcullis_domain::verdict::Verdict;

use crate::tools::{Described, Tools};

/// Why a proposal is not admitted: the rule and the place, never the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invalid {
    pub(crate) refusal: Refusal,
    /// JSON pointer into the arguments, and the rule that was broken there.
    pub(crate) place: Option<(String, String)>,
}

impl From<Refusal> for Invalid {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, place: None }
    }
}

/// A call that was admitted: everything about it that does not depend on the policy.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) origin: ProposalOrigin,
    pub(crate) tool: String,
    /// Canonical: defaults filled in, fixed values included.
    pub(crate) arguments: Object,
    /// Tool and arguments, keyed by the run's salt.
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
            let advertised = frozen.iter().any(|frozen| frozen.name == tool);
            let found = tools.get(&tool).filter(|_| advertised).ok_or(Refusal::UnknownTool)?;
            let proposed = arguments.clone();
            let call = admit_call(origin, arguments, &found.described, salt)?;
            Ok(Admission::Call { call, proposed })
        }
    }
}

/// Admits a recorded call against the spec that it was judged with.
pub(crate) fn admit_recorded(
    raw: &[u8],
    request: u64,
    tool: &Described,
    salt: &[u8],
) -> Option<Call> {
    readmit(raw, request, tool, salt).ok()
}

/// Admits a recorded call against a spec: the one that it was judged with, or another.
pub(crate) fn readmit(
    raw: &[u8],
    request: u64,
    tool: &Described,
    salt: &[u8],
) -> Result<Call, Refusal> {
    let proposal = Proposal::read(raw, Some(request)).or_else(|_| Proposal::read(raw, None))?;
    match proposal.ask {
        Ask::ToolCall { tool: name, arguments } if name == tool.spec.name => {
            admit_call(proposal.origin, arguments, tool, salt).map_err(|invalid| invalid.refusal)
        }
        _ => Err(Refusal::UnknownTool),
    }
}

fn admit_call(
    origin: ProposalOrigin,
    arguments: Object,
    tool: &Described,
    salt: &[u8],
) -> Result<Call, Invalid> {
    let arguments = canonical_arguments(tool, arguments)?;
    let request = request_digest(&tool.spec.name, &arguments, salt);
    Ok(Call { origin, tool: tool.spec.name.clone(), arguments, request })
}

/// Fills defaults and fixed values in, then checks the whole against the schema: what is checked is what runs.
fn canonical_arguments(tool: &Described, arguments: Object) -> Result<Object, Invalid> {
    if tool.spec.fixed.keys().any(|key| arguments.contains_key(key)) {
        return Err(Refusal::FixedParameter.into());
    }
    let mut whole = arguments;
    for (key, value) in tool.spec.fixed.iter() {
        whole.insert(key, value.clone());
    }
    let whole = tool.schema.fill_defaults(Value::Object(whole));
    tool.schema.check(&whole).map_err(|violations| {
        let first = violations.listed().first();
        let number = first.is_some_and(|violation| violation.rule == "number");
        let refusal = if number { Refusal::NumberNotExact } else { Refusal::ArgumentsInvalid };
        Invalid {
            refusal,
            place: first.map(|violation| (violation.path.clone(), violation.rule.clone())),
        }
    })?;
    match whole {
        Value::Object(object) => Ok(object),
        _ => Err(Refusal::WrongType.into()),
    }
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
