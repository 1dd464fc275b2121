//! What the operator says of one server that is behind a URL.

use portcullis_egress::{
    CredentialRef, Deadlines, EgressRules, HostRule, Reach, RulesFault, Target,
};

use super::post::MAX_STREAM_BYTES;

/// How long a connection may take: name, connection and TLS.
const CONNECT: std::time::Duration = std::time::Duration::from_secs(10);

/// One server: where it is, and which credential it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpServer {
    /// Its one address, to which everything is sent. Nothing else is ever asked, whatever it answers.
    pub target: Target,
    /// The credential, by its name in the client's store.
    pub credential: Option<CredentialRef>,
    /// What may be behind its name.
    pub reach: Reach,
    /// What a person runs to get a token that it takes; named where it takes none.
    pub login: Option<String>,
}

impl HttpServer {
    /// A server at a public address, or on this machine, without a credential.
    #[must_use]
    pub const fn new(target: Target) -> Self {
        Self { target, credential: None, reach: Reach::Public, login: None }
    }

    /// The rules of a client that reaches this server and nothing else. Its deadlines are the longest that there are:
    /// listings and calls have their own, which are shorter.
    ///
    /// # Errors
    /// A place that no rule can open.
    pub fn rules(&self) -> Result<EgressRules, RulesFault> {
        let longest = portcullis_egress::MAX_DEADLINE;
        let deadlines = Deadlines { header: longest, idle: longest, total: longest };
        let rules =
            EgressRules::closed().deadlines(CONNECT, deadlines)?.max_body(MAX_STREAM_BYTES)?;
        if self.target.is_this_machine() {
            return Ok(rules.loopback_port(self.target.port()));
        }
        rules.host(HostRule::new(self.target.host(), self.reach)?.ports([self.target.port()]))
    }
}
