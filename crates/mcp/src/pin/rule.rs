//! What the operator says about one tool of a server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use portcullis_canon::Object;
use portcullis_domain::recovery::Probe;
use portcullis_domain::tool::EffectClass;

/// A rule for one tool. Without one, a tool stays out.
///
/// `deny`, `fix` and the keys of `rename` are parameters as the server names them; `authority`, `probe` and
/// `idempotency_key` speak of the tool as the agent sees it, under its new names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRule {
    /// What a call can change.
    pub effect: EffectClass,
    /// True when its results carry content from outside.
    pub source: bool,
    /// True when a call sends or changes something.
    pub sink: bool,
    /// JSON pointers of the arguments that carry authority.
    pub authority: Vec<String>,
    /// How long one call may take; what the server's calls may take where nothing is said.
    pub deadline: Option<Duration>,
    /// The largest result in bytes; that of the server's tools where nothing is said.
    pub max_result_bytes: Option<u64>,
    /// Parameters that no call may have.
    pub deny: BTreeSet<String>,
    /// Parameters that have one value in each call. The agent does not see them.
    pub fix: Object,
    /// Parameters with the name that the agent sees.
    pub rename: BTreeMap<String, String>,
    /// What the agent reads in place of the server's description.
    pub description: Option<String>,
    /// The tool's name in place of `server.tool`.
    pub name: Option<String>,
    /// True when a successful call completes the run with its result.
    pub terminal: bool,
    /// How to find out whether a call happened.
    pub probe: Option<Probe>,
    /// The parameter that takes the call's idempotency key.
    pub idempotency_key: Option<String>,
    /// True when the operator knows better than the server's hints.
    pub accept_hints: bool,
}

impl ToolRule {
    /// The closed rule of a class: source and sink, nothing else said.
    #[must_use]
    pub const fn new(effect: EffectClass) -> Self {
        Self {
            effect,
            source: true,
            sink: true,
            authority: Vec::new(),
            deadline: None,
            max_result_bytes: None,
            deny: BTreeSet::new(),
            fix: Object::new(),
            rename: BTreeMap::new(),
            description: None,
            name: None,
            terminal: false,
            probe: None,
            idempotency_key: None,
            accept_hints: false,
        }
    }

    /// The parameters that the rule names, as the server does; one that it names twice stands there twice.
    pub(super) fn touched(&self) -> impl Iterator<Item = &str> {
        let deny = self.deny.iter().map(String::as_str);
        deny.chain(self.fix.keys()).chain(self.rename.keys().map(String::as_str))
    }
}
