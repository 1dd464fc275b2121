//! What MCP servers offer beside tools, by the names under which a host knows it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portcullis_canon::{Object, Value};
use portcullis_mcp::{Asks, McpOffers, OfferKind, ServedKinds};

use super::{ProxyError, host_name};

/// What all servers offer.
pub(super) struct Offers {
    servers: Vec<Arc<McpOffers>>,
    /// The prompts by the names that a host knows: whose they are, and what they are called there.
    prompts: BTreeMap<String, (Arc<McpOffers>, String)>,
    tools: BTreeSet<String>,
}

/// A call by which a host has what it asks for.
pub(super) struct Found {
    pub(super) tool: String,
    pub(super) params: Object,
}

impl Offers {
    /// Each name has to mean one thing.
    pub(super) fn new(servers: Vec<Arc<McpOffers>>) -> Result<Self, ProxyError> {
        for (at, one) in servers.iter().enumerate() {
            for other in servers.iter().take(at) {
                let mut uris = one.rules().uris();
                if uris.any(|rule| other.rules().uris().any(|theirs| theirs.meets(rule))) {
                    let names = [other, one].map(|server| server.server().to_string());
                    let [first, second] = names;
                    return Err(ProxyError::Both(first, second));
                }
            }
        }
        let mut prompts = BTreeMap::new();
        for server in &servers {
            for prompt in server.shown(OfferKind::Prompt) {
                let name = server.rules().prompt_name(server.server(), prompt.name());
                let name = host_name(&name);
                let of = (Arc::clone(server), prompt.name().to_owned());
                if prompts.insert(name.clone(), of).is_some() {
                    return Err(ProxyError::Repeated(name));
                }
            }
        }
        let tools = servers.iter().flat_map(|server| Asks::ALL.map(|asks| server.tool(asks)));
        let tools = tools.flatten().collect();
        Ok(Self { servers, prompts, tools })
    }

    /// Whether a tool is one by which these are had, which no host calls by its name.
    pub(super) fn has_tool(&self, name: &str) -> bool {
        self.tools.contains(name)
    }

    /// What a host is told that there is: what some rule names.
    pub(super) fn kinds(&self) -> ServedKinds {
        let any = |asks| self.servers.iter().any(|server| server.tool(asks).is_some());
        ServedKinds {
            resources: any(Asks::Read),
            prompts: any(Asks::Prompt),
            completions: any(Asks::Complete),
        }
    }

    /// The entries of a listing.
    pub(super) fn shown(&self, kind: OfferKind) -> Vec<Object> {
        match kind {
            OfferKind::Prompt => self.prompts.iter().filter_map(named).collect(),
            OfferKind::Resource | OfferKind::Template => {
                let all = self.servers.iter().flat_map(|server| server.shown(kind));
                all.map(|offer| offer.shown().clone()).collect()
            }
        }
    }

    pub(super) fn read(&self, uri: &str) -> Option<Found> {
        let mut params = Object::new();
        params.insert("uri", uri);
        self.servers.iter().find_map(|server| found(server, Asks::Read, &params))
    }

    pub(super) fn prompt(&self, name: &str, arguments: Object) -> Option<Found> {
        let (server, own) = self.prompts.get(name)?;
        let mut params = Object::new();
        params.insert("name", own.as_str());
        if !arguments.is_empty() {
            params.insert("arguments", arguments);
        }
        found(server, Asks::Prompt, &params)
    }

    /// A completion for a prompt that a host knows by its own name, or for a form of URIs.
    pub(super) fn complete(&self, mut params: Object) -> Option<Found> {
        let Some(Value::Object(of)) = params.get_mut("ref") else { return None };
        if of.get("type").and_then(Value::as_str) != Some("ref/prompt") {
            return self.servers.iter().find_map(|server| found(server, Asks::Complete, &params));
        }
        let (server, own) = self.prompts.get(of.get("name")?.as_str()?)?;
        of.insert("name", own.as_str());
        of.remove("title");
        found(server, Asks::Complete, &params)
    }
}

/// The call, where the server has something of that name.
fn found(server: &McpOffers, asks: Asks, params: &Object) -> Option<Found> {
    let tool = server.tool(asks).filter(|_| server.admits(asks, params))?;
    Some(Found { tool, params: params.clone() })
}

/// A prompt under the name that a host knows.
fn named((name, (server, own)): (&String, &(Arc<McpOffers>, String))) -> Option<Object> {
    let offer = server.shown(OfferKind::Prompt).find(|offer| offer.name() == own)?;
    let mut shown = offer.shown().clone();
    shown.insert("name", name.as_str());
    Some(shown)
}
