//! Resources, prompts and completions of a server, for the gate: three tools that only read, of which a host knows nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use portcullis_canon::{Limits, Object, Value, parse, sanitize};
use portcullis_domain::label::{Labels, Origin};
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{BoxFuture, Clock, ToolFailure, ToolOutput, ToolSource};
use portcullis_domain::tool::{EffectClass, ToolSpec};
use tokio::sync::Mutex;

use super::advertised::{Offer, OfferKind};
use super::given;
use super::load::{OfferLine, load};
use super::rules::{OfferRules, UriRule};
use crate::pin::{Manifest, OtherServer, ServerName, words};
use crate::progress::Board;
use crate::session::{Asks, MAX_URI_BYTES, Session, SessionError};
use crate::source::{OpenError, failure, nothing, steady};

/// How much of the rules stands in a spec in words.
const MAX_RULES_BYTES: usize = 2_000;

/// What hosts may have of a server, and how it is asked.
#[derive(Clone, Copy, Debug)]
pub struct OfferTerms<'a> {
    /// What was pinned.
    pub manifest: &'a Manifest,
    /// The operator's rules.
    pub rules: &'a OfferRules,
    /// What the server is, in the operator's configuration: shown to a person and bound by their answer. One short line.
    pub place: &'a str,
    /// How long one request may take.
    pub deadline: Duration,
    /// The largest result in bytes.
    pub max_result_bytes: u64,
}

/// What one server offers to the hosts of a proxy beside its tools.
pub struct McpOffers {
    server: ServerName,
    session: Arc<dyn Session>,
    clock: Arc<dyn Clock>,
    rules: OfferRules,
    /// What hosts are shown, by kind and name.
    shown: Shown,
    specs: Vec<ToolSpec>,
    held: Mutex<Held>,
    board: Arc<Board>,
}

/// Offers by kind and name.
type Shown = BTreeMap<(OfferKind, String), Offer>;

/// What was found when the server's offers were last held against the pin.
struct Held {
    /// What [`Session::changes`] said then.
    changes: u64,
    /// Those that are still what hosts are shown.
    shown: Shown,
}

impl McpOffers {
    /// Lists what the rules speak of, holds it against the pin, and gives what hosts may have, with a line for each.
    ///
    /// # Errors
    /// [`OpenError`] when the server cannot be asked, or the manifest is another's.
    pub async fn open(
        server: &ServerName,
        session: Arc<dyn Session>,
        terms: &OfferTerms<'_>,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, Vec<OfferLine>), OpenError> {
        let specs = Self::specs_of(server, terms)?;
        let kinds: Vec<OfferKind> = terms.rules.kinds().collect();
        let (changes, live) = offered(session.as_ref(), &kinds).await?;
        let pinned: Vec<Offer> = terms.manifest.offers().cloned().collect();
        let (shown, lines) = load(terms.rules, &pinned, &live);
        let lines = lines.into_iter().filter(|line| terms.rules.names(line.kind)).collect();
        let shown = by_name(shown);
        let held = Mutex::new(Held { changes, shown: shown.clone() });
        let (server, rules) = (server.clone(), terms.rules.clone());
        let board = Arc::default();
        Ok((Self { server, session, clock, rules, shown, specs, held, board }, lines))
    }

    /// The same, whose requests say there how far they are.
    #[must_use]
    pub fn telling(mut self, board: Arc<Board>) -> Self {
        self.board = board;
        self
    }

    /// The specs of the tools by which these are had, which say nothing of what is pinned.
    ///
    /// # Errors
    /// [`OtherServer`] when the manifest is another's.
    pub fn specs_of(
        server: &ServerName,
        terms: &OfferTerms<'_>,
    ) -> Result<Vec<ToolSpec>, OtherServer> {
        if terms.manifest.server() != server {
            return Err(OtherServer(terms.manifest.server().clone(), server.clone()));
        }
        let asked = Asks::ALL.into_iter().filter(|asks| rules_of(terms.rules, *asks).is_some());
        Ok(asked.map(|asks| spec(server, terms, asks)).collect())
    }

    /// The server's name in the operator's configuration.
    #[must_use]
    pub const fn server(&self) -> &ServerName {
        &self.server
    }

    /// What hosts may have.
    #[must_use]
    pub const fn rules(&self) -> &OfferRules {
        &self.rules
    }

    /// What hosts are shown of a kind, by name.
    pub fn shown(&self, kind: OfferKind) -> impl Iterator<Item = &Offer> {
        self.shown.values().filter(move |offer| offer.kind() == kind)
    }

    /// The tool by which these are had; none where no rule lets any through.
    #[must_use]
    pub fn tool(&self, asks: Asks) -> Option<String> {
        rules_of(&self.rules, asks).map(|_| tool_name(&self.server, asks))
    }

    /// Whether the tool may be called with this. Said again by the call itself.
    #[must_use]
    pub fn admits(&self, asks: Asks, params: &Object) -> bool {
        match asks {
            Asks::Read => self.rules.reads(text(params, "uri")),
            Asks::Prompt => self.shows(asks, params),
            Asks::Complete => self.rules.completions && self.shows(asks, params),
        }
    }

    fn shows(&self, asks: Asks, params: &Object) -> bool {
        shown_for(asks, params).is_some_and(|key| self.shown.contains_key(&key))
    }

    async fn perform(&self, permit: &Permit) -> Result<ToolOutput, ToolFailure> {
        let begun = self.clock.monotonic();
        let asks =
            Asks::ALL.into_iter().find(|asks| self.tool(*asks).as_deref() == Some(permit.tool()));
        let asks = asks.ok_or_else(|| nothing("the server has no such tool"))?;
        let spec = self.specs.iter().find(|spec| spec.name == permit.tool());
        let spec = spec.ok_or_else(|| nothing("the server has no such tool"))?;
        let params = permit.arguments();
        if !self.admits(asks, params) {
            return Err(nothing("no rule allows this: the server was not asked"));
        }
        let deadline = spec.deadline();
        // Half of the time is for the answer.
        let looked = select(Box::pin(self.verified(asks, params)), self.clock.sleep(deadline / 2));
        match looked.await {
            Either::Left((verified, _)) => verified?,
            Either::Right(_) => {
                return Err(nothing(
                    "the server changed what it offers and did not list it in time: it was not asked",
                ));
            }
        }
        let passed = Duration::from_micros(self.clock.monotonic().micros_since(begun));
        let left = deadline.saturating_sub(passed);
        let told = |progress| self.board.tell(permit.run(), progress);
        let given = self.session.ask(asks, params.clone(), left, &told).await.map_err(failure)?;
        let content = self.kept(asks, params, &given, spec.max_result_bytes)?;
        Ok(ToolOutput { content: content.to_canonical(), labels: Some(self.labels(asks, params)) })
    }

    /// What is kept of what was given.
    fn kept(
        &self,
        asks: Asks,
        params: &Object,
        given: &Value,
        most: u64,
    ) -> Result<Object, ToolFailure> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let kept = match asks {
            Asks::Read => given::contents(given, text(params, "uri"), &self.rules, most),
            Asks::Prompt => given::messages(given, most),
            Asks::Complete => given::completion(given, most),
        };
        kept.map_err(|unfit| ToolFailure::Failed { message: unfit.to_owned() })
    }

    /// From this server, and from this part of it.
    fn labels(&self, asks: Asks, params: &Object) -> Labels {
        let part = match asks {
            Asks::Read => text(params, "uri").to_owned(),
            Asks::Prompt => format!("prompts/{}", text(params, "name")),
            Asks::Complete => "completion".to_owned(),
        };
        Labels::of(Origin::external(&format!("{}/{part}", self.server)))
    }

    /// Whether what is asked for is still what hosts are shown, where they are shown it. When the server said that something
    /// changed, it is asked for what it offers first, once for all that wait.
    async fn verified(&self, asks: Asks, params: &Object) -> Result<(), ToolFailure> {
        let mut held = self.held.lock().await;
        if held.changes != self.session.changes() {
            let kinds: Vec<OfferKind> = self.rules.kinds().collect();
            let (changes, live) =
                offered(self.session.as_ref(), &kinds).await.map_err(|error| {
                    // The server's own words, and places on this machine, are for the operator.
                    tracing::warn!(server = %self.server, "did not list again what it offers: it {error}");
                    nothing("the server had to list again what it offers and could not: it was not asked; the operator sees why")
                })?;
            let pinned: Vec<Offer> = self.shown.values().cloned().collect();
            *held = Held { changes, shown: by_name(load(&self.rules, &pinned, &live).0) };
        }
        match shown_for(asks, params) {
            Some(key) if !held.shown.contains_key(&key) => Err(nothing(&format!(
                "the server changed this {} after it was pinned: it was not asked; the operator sees what changed with \
                 `portcullis pin --diff {}`",
                key.0.words(),
                self.server
            ))),
            _ => Ok(()),
        }
    }
}

impl ToolSource for McpOffers {
    fn specs(&self) -> Vec<ToolSpec> {
        self.specs.clone()
    }

    /// The session is asynchronous.
    fn blocks(&self) -> bool {
        false
    }

    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move { self.perform(&permit).await })
    }
}

impl fmt::Debug for McpOffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpOffers").field("server", &self.server).finish_non_exhaustive()
    }
}

fn by_name(offers: Vec<Offer>) -> Shown {
    offers.into_iter().map(|offer| ((offer.kind(), offer.name().to_owned()), offer)).collect()
}

fn text<'a>(params: &'a Object, name: &str) -> &'a str {
    params.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// What a host has to have been shown to ask this; nothing for a resource, of which it may have the name from elsewhere.
fn shown_for(asks: Asks, params: &Object) -> Option<(OfferKind, String)> {
    match asks {
        Asks::Read => None,
        Asks::Prompt => Some((OfferKind::Prompt, text(params, "name").to_owned())),
        Asks::Complete => {
            let of = params.get("ref").and_then(Value::as_object)?;
            Some(match text(of, "type") {
                "ref/prompt" => (OfferKind::Prompt, text(of, "name").to_owned()),
                _ => (OfferKind::Template, text(of, "uri").to_owned()),
            })
        }
    }
}

/// Listings of these kinds during which the server did not say that anything changed, and the count at that time.
///
/// # Errors
/// [`SessionError`], also when they changed each of three times.
pub async fn offered(
    session: &dyn Session,
    kinds: &[OfferKind],
) -> Result<(u64, Vec<Offer>), SessionError> {
    steady(session, "offers", || async move {
        let mut all = Vec::new();
        for kind in kinds {
            all.extend(session.offers(*kind).await?);
        }
        Ok(all)
    })
    .await
}

/// A name that no tool of a server can have: theirs have no stroke.
fn tool_name(server: &ServerName, asks: Asks) -> String {
    format!("{server}/{}", asks.method())
}

/// What the rules say of it, for a person and for the digest that they sign; nothing where they let nothing through.
fn rules_of(rules: &OfferRules, asks: Asks) -> Option<String> {
    let prompts = || rules.prompts.iter().flatten().cloned();
    let uris = || rules.uris().map(UriRule::to_string);
    let named: Vec<String> = match asks {
        Asks::Read => uris().collect(),
        Asks::Prompt => prompts().collect(),
        Asks::Complete if rules.completions => prompts().chain(uris()).collect(),
        Asks::Complete => Vec::new(),
    };
    (!named.is_empty()).then(|| words::signed(&named, MAX_RULES_BYTES))
}

fn spec(server: &ServerName, terms: &OfferTerms<'_>, asks: Asks) -> ToolSpec {
    let (description, schema, authority) = match asks {
        Asks::Read => ("Reads a resource.", read_schema(), "/uri"),
        Asks::Prompt => ("Gets the messages of a prompt.", prompt_schema(terms.rules), "/name"),
        Asks::Complete => ("Asks how a value may go on.", complete_schema(), "/ref"),
    };
    let named = rules_of(terms.rules, asks).unwrap_or_default();
    let place = sanitize::line(terms.place);
    ToolSpec {
        name: tool_name(server, asks),
        description: description.to_owned(),
        input_schema: schema,
        effect: EffectClass::ReadOnly,
        source: true,
        // What is asked for goes to the server.
        sink: true,
        authority: vec![authority.to_owned()],
        deadline_ms: u64::try_from(terms.deadline.as_millis()).unwrap_or(u64::MAX),
        terminal: false,
        fixed: Object::new(),
        max_result_bytes: terms.max_result_bytes,
        target: Some(format!("{named} of the MCP server `{server}`, {place}")),
        probe: None,
        idempotency_key: None,
    }
}

/// A schema that is written here; an empty one takes nothing.
fn schema(text: &str) -> Value {
    parse(text.as_bytes(), &Limits::BARE).unwrap_or(Value::Bool(false))
}

fn read_schema() -> Value {
    schema(&format!(
        r#"{{"type":"object","additionalProperties":false,"required":["uri"],"properties":{{"uri":{{"type":"string","minLength":1,"maxLength":{MAX_URI_BYTES}}}}}}}"#
    ))
}

fn prompt_schema(rules: &OfferRules) -> Value {
    let names = rules.prompts.iter().flatten().map(|name| Value::from(name.as_str()));
    let names = Value::from(names.collect::<Vec<_>>()).to_canonical_string();
    schema(&format!(
        r#"{{"type":"object","additionalProperties":false,"required":["name"],"properties":{{"name":{{"enum":{names}}},"arguments":{{"type":"object","additionalProperties":{{"type":"string"}}}}}}}}"#
    ))
}

fn complete_schema() -> Value {
    let text = r#"{"type":"string","maxLength":4096}"#;
    schema(&format!(
        r#"{{"type":"object","additionalProperties":false,"required":["ref","argument"],"properties":{{"ref":{{"type":"object","required":["type"],"additionalProperties":false,"properties":{{"type":{{"enum":["ref/prompt","ref/resource"]}},"name":{text},"uri":{text}}}}},"argument":{{"type":"object","required":["name","value"],"additionalProperties":false,"properties":{{"name":{text},"value":{text}}}}},"context":{{"type":"object","additionalProperties":false,"properties":{{"arguments":{{"type":"object","additionalProperties":{text}}}}}}}}}}}"#
    ))
}

#[cfg(test)]
mod tests;
