//! Providers of models by name: those that everybody knows, with what the operator says of them, and the operator's own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use portcullis_canon::Object;
use portcullis_domain::ports::{ModelName, Price};
use portcullis_egress::{Deadlines, EgressRules, HostRule, Reach, RulesFault, Target};
use portcullis_models::{Dialect, PriceList};

use crate::config::models::{Models, Stated};
use crate::failure::{Code, Failure};

/// The cap on a reply, in tokens, unless something else is said: what can be charged for a call that is lost.
const OUTPUT_TOKENS: u64 = 8_192;

/// How long one attempt may take unless something else is said.
const TIMEOUT: Duration = Duration::from_secs(120);

/// How long a provider may pause within a reply, at most.
const IDLE: Duration = Duration::from_secs(60);

/// Providers that need no table, with their address and the variable that holds their key.
const BUILT_IN: [(&str, Dialect, &str, Option<&str>); 7] = [
    ("anthropic", Dialect::Anthropic, "https://api.anthropic.com/v1", Some("ANTHROPIC_API_KEY")),
    ("llamacpp", Dialect::OpenAi, "http://127.0.0.1:8080/v1", None),
    ("lmstudio", Dialect::OpenAi, "http://127.0.0.1:1234/v1", None),
    ("ollama", Dialect::Ollama, "http://127.0.0.1:11434/api", None),
    ("openai", Dialect::OpenAi, "https://api.openai.com/v1", Some("OPENAI_API_KEY")),
    ("openrouter", Dialect::OpenAi, "https://openrouter.ai/api/v1", Some("OPENROUTER_API_KEY")),
    ("vllm", Dialect::OpenAi, "http://127.0.0.1:8000/v1", None),
];

/// A provider with everything that is known of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// Its name.
    pub(crate) name: String,
    /// What it speaks.
    pub(crate) dialect: Dialect,
    /// Where it is, without a slash at the end.
    pub(crate) base: String,
    /// The same, read.
    pub(crate) target: Target,
    /// The name of its key in the configuration, where that says one.
    pub(crate) credential: Option<String>,
    /// The variable that holds its key unless something else is said.
    pub(crate) variable: Option<&'static str>,
    /// The confidentiality tags that it may see.
    pub(crate) may_see: BTreeSet<String>,
    /// It is free on purpose.
    pub(crate) local: bool,
    /// Its address may be one of a private network.
    pub(crate) private_network: bool,
    /// The cap on each reply.
    pub(crate) max_output_tokens: u64,
    /// How long one attempt may take.
    pub(crate) timeout: Duration,
    /// Further members of each request.
    pub(crate) extra: Object,
    /// What the operator says of prices.
    prices: BTreeMap<String, Price>,
}

/// The provider of that name.
pub(crate) fn find(name: &str, models: &Models) -> Result<Entry, Failure> {
    let stated = models.providers.get(name).cloned();
    let built_in = BUILT_IN.iter().find(|(known, ..)| *known == name);
    if stated.is_none() && built_in.is_none() {
        let known: Vec<&str> = names(models).collect();
        let sentence = format!("there is no provider `{name}`; known are {}", known.join(", "));
        return Err(Failure::new(Code::Model, sentence).hint(
            "write a table [models.NAME] with `dialect` and `address` into portcullis.toml",
        ));
    }
    entry(name, stated.unwrap_or_default(), built_in)
}

/// All that can be named, in order.
pub(crate) fn names(models: &Models) -> impl Iterator<Item = &str> {
    let built_in = BUILT_IN.iter().map(|(name, ..)| *name);
    let all: BTreeSet<&str> = built_in.chain(models.providers.keys().map(String::as_str)).collect();
    all.into_iter()
}

fn entry(
    name: &str,
    stated: Stated,
    built_in: Option<&(&str, Dialect, &str, Option<&'static str>)>,
) -> Result<Entry, Failure> {
    let unusable = |what: &str| Failure::new(Code::Model, format!("the provider `{name}` {what}"));
    let dialect = stated.dialect.or(built_in.map(|(_, dialect, ..)| *dialect));
    let dialect = dialect.ok_or_else(|| {
        unusable("has no dialect").hint("write `dialect = \"openai\"` into its table, for instance")
    })?;
    let base = stated.address.or(built_in.map(|(_, _, base, _)| (*base).to_owned()));
    let base = base.ok_or_else(|| {
        unusable("has no address").hint("write `address = \"https://…/v1\"` into its table")
    })?;
    let base = base.trim_end_matches('/').to_owned();
    let target = Target::parse(&format!("{base}/")).map_err(|fault| {
        unusable(&format!("has an address that cannot be used: {fault}"))
            .hint("correct `address` in its table")
    })?;
    let variable = built_in.and_then(|(.., variable)| *variable);
    let mut extra = stated.extra;
    let own_tokens = name == "openai" && !extra.contains_key("max_completion_tokens");
    if own_tokens {
        // Their models that think take the cap under this name only; the number is the adapter's.
        extra.insert("max_completion_tokens", 0_u64);
    }
    let timeout = stated.timeout.unwrap_or(TIMEOUT);
    Ok(Entry {
        name: name.to_owned(),
        dialect,
        base,
        target,
        credential: stated.credential,
        variable,
        may_see: stated.may_see,
        local: stated.local.unwrap_or(built_in.is_some() && variable.is_none()),
        private_network: stated.private_network,
        max_output_tokens: stated.max_output_tokens.unwrap_or(OUTPUT_TOKENS),
        timeout,
        extra,
        prices: stated.prices,
    })
}

impl Entry {
    /// What a model of it costs: by its table, free where it is local, else by the list.
    pub(crate) fn price(&self, model: &ModelName, list: &PriceList) -> Price {
        match self.prices.get(model.name()) {
            Some(price) => *price,
            None if self.local => Price::Free,
            None => list.price(model),
        }
    }

    /// Rules under which this provider can be reached, and nothing else.
    pub(crate) fn rules(&self, timeout: Duration) -> Result<EgressRules, Failure> {
        let unusable = |fault: RulesFault| {
            Failure::from(fault)
                .of(&format!("the provider `{}` cannot be reached", self.name))
                .hint("correct `address` in its table")
        };
        let (host, port) = (self.target.host(), self.target.port());
        let rules = EgressRules::closed();
        let rules = if self.target.is_this_machine() {
            rules.loopback_port(port)
        } else {
            let reach = if self.private_network { Reach::Private } else { Reach::Public };
            let rule = HostRule::new(host, reach).map_err(unusable)?;
            rules.host(rule.ports([port])).map_err(unusable)?
        };
        let (idle, connect) = (IDLE.min(timeout), Duration::from_secs(10).min(timeout));
        let deadlines = Deadlines { header: timeout, idle, total: timeout };
        rules.deadlines(connect, deadlines).map_err(unusable)
    }
}
