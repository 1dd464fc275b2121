//! `portcullis.toml`: the operator's rules, read in two steps: what stands there, and what it means.

mod conversation;
mod credentials;
mod decide;
mod egress;
mod http;
mod login;
mod mcp;
pub(crate) mod models;
mod numbers;
mod oauth;
mod proxy;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portcullis_audit::keys::{KeyEntry, PublicKey};
use portcullis_domain::label::Name;
use portcullis_domain::limits::Limits;
use portcullis_domain::tally::ThreadLimits;
use portcullis_domain::time::Timestamp;
use portcullis_domain::tool::EffectClass;
use portcullis_policy::{ClassTable, MAX_REVIEWERS, Outcome};
use serde::Deserialize;
use toml::Spanned;
use toml::value::{Datetime, Offset};

use crate::agent::AgentChoice;
use crate::args::Globals;
use crate::failure::{Code, Failure};
use crate::model::providers;
use crate::trusted::Trusted;

use credentials::RawCredentials;
pub(crate) use credentials::{CredentialSource, Credentials, SecretSource};
pub(crate) use egress::EgressChoice;
use egress::RawEgress;
use http::RawHttp;
pub(crate) use http::{ChosenCredential, HttpChoice};
pub(crate) use login::LoginChoice;
use mcp::RawMcp;
pub(crate) use mcp::{Program, RemoteServer, ServerChoice, Way};
use numbers::{Given, Number, RawLimits};
pub(crate) use proxy::ProxyChoice;
use proxy::RawProxy;

/// How a configuration is read.
const FILE: Trusted = Trusted { what: "configuration", code: Code::Config, most: 1024 * 1024 };

/// How long before a question or a grant ends people are reminded of it, unless something else is said.
const REMIND_BEFORE: Duration = Duration::from_secs(15 * 60);

/// What the operator configured; the defaults where they said nothing.
#[derive(Debug)]
pub(crate) struct Config {
    /// The file, absolute; nothing when there is none.
    pub(crate) path: Option<PathBuf>,
    /// What happens to the calls of each effect class.
    pub(crate) classes: ClassTable,
    /// Each role that they said is asked, with the most people.
    pub(crate) asks: BTreeMap<String, u32>,
    /// The bounds of a run.
    pub(crate) limits: Limits,
    /// How long a lease holds without being renewed; the gate's own default where nothing is said.
    pub(crate) lease: Option<Duration>,
    /// How long before a question or a grant ends people are reminded of it; nothing when they are not.
    pub(crate) remind_before: Option<Duration>,
    /// The folder for the file tools, absolute.
    pub(crate) files: Option<PathBuf>,
    /// Where the HTTP tools may go; nothing when there are none.
    pub(crate) http: Option<HttpChoice>,
    /// The MCP servers whose tools a run has, sorted by name.
    pub(crate) mcp: Vec<ServerChoice>,
    /// The agent, and what it is given.
    pub(crate) agent: Option<AgentChoice>,
    /// Where secrets lie, by name.
    pub(crate) credentials: Credentials,
    /// How requests leave, for everything that speaks HTTP.
    pub(crate) egress: EgressChoice,
    /// Providers of models, and what may be spent in a day.
    pub(crate) models: models::Models,
    /// Who may answer; when empty, the public keys in the key folder.
    pub(crate) reviewers: Vec<KeyEntry>,
    /// Where signed heads are kept, absolute.
    pub(crate) head: Option<PathBuf>,
    /// Whether a run may start others.
    pub(crate) children: bool,
    /// How calls of MCP hosts are held, repeated and counted.
    pub(crate) proxy: ProxyChoice,
    /// The bounds of a host's whole conversation.
    pub(crate) conversation: ThreadLimits,
    /// What the tools of a host can change, by the names that it gives them; for its hooks.
    pub(crate) decide: BTreeMap<String, EffectClass>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            path: None,
            classes: ClassTable::default(),
            asks: BTreeMap::new(),
            limits: Limits::default(),
            lease: None,
            remind_before: Some(REMIND_BEFORE),
            files: None,
            http: None,
            mcp: Vec::new(),
            agent: None,
            credentials: Credentials::default(),
            egress: EgressChoice::default(),
            models: models::Models::default(),
            reviewers: Vec::new(),
            head: None,
            children: false,
            proxy: ProxyChoice::default(),
            conversation: conversation::USUAL,
            decide: BTreeMap::new(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Raw {
    classes: RawClasses,
    limits: RawLimits,
    lease: RawLease,
    approvals: RawApprovals,
    files: RawFiles,
    http: RawHttp,
    mcp: RawMcp,
    agent: RawAgent,
    models: BTreeMap<Spanned<String>, models::RawProvider>,
    credentials: RawCredentials,
    egress: RawEgress,
    day: models::RawDay,
    reviewers: Vec<RawReviewer>,
    head: RawHead,
    children: RawChildren,
    proxy: RawProxy,
    conversation: conversation::RawConversation,
    decide: decide::RawDecide,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawChildren {
    spawn: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawClasses {
    read_only: Option<Spanned<toml::Value>>,
    local_mutation: Option<Spanned<toml::Value>>,
    remote_mutation: Option<Spanned<toml::Value>>,
    destructive: Option<Spanned<toml::Value>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawLease {
    term_ms: Given,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawApprovals {
    remind_before_ms: Given,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawFiles {
    root: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawAgent {
    command: Option<Spanned<String>>,
    unconfined: bool,
    network: bool,
    env: Vec<Spanned<String>>,
    reads: Vec<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawHead {
    file: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawReviewer {
    person: Spanned<String>,
    roles: Spanned<Vec<String>>,
    key: Spanned<String>,
    not_before: Option<Spanned<toml::Value>>,
    not_after: Option<Spanned<toml::Value>>,
    #[serde(default)]
    revoked: bool,
}

/// What does not fit, and where.
#[derive(Debug, PartialEq, Eq)]
struct Misfit {
    at: Option<Range<usize>>,
    message: String,
}

impl Misfit {
    fn at(span: &Range<usize>, message: impl Into<String>) -> Self {
        Self { at: Some(span.clone()), message: message.into() }
    }

    /// `line 3, column 7: …`, both counted from one, columns in characters.
    fn sentence(&self, text: &str) -> String {
        let Some(before) = self.at.as_ref().and_then(|at| text.get(..at.start)) else {
            return self.message.clone();
        };
        let line = before.matches('\n').count().saturating_add(1);
        let column = before.rsplit('\n').next().unwrap_or("").chars().count().saturating_add(1);
        format!("line {line}, column {column}: {}", self.message)
    }
}

/// The operator's configuration: the file that they named, else the one in their configuration folder, else
/// the defaults. A file in the current folder counts only when it is named.
pub(crate) fn load(globals: &Globals) -> Result<Config, Failure> {
    match &globals.config_path {
        Some(path) => read(path),
        None => {
            let usual = globals.place.config.join("portcullis.toml");
            if usual.symlink_metadata().is_ok() { read(&usual) } else { Ok(Config::default()) }
        }
    }
}

/// Reads one file.
pub(crate) fn read(path: &Path) -> Result<Config, Failure> {
    let text = FILE.read(path)?;
    let path = std::path::absolute(path).map_err(|error| Failure::io("find", path, &error))?;
    let base = path.parent().unwrap_or(Path::new("/"));
    let config = parse(&text, base).map_err(|misfit| {
        let sentence = misfit.sentence(&text);
        Failure::new(
            Code::Config,
            format!("the configuration `{}` cannot be used: {sentence}", path.display()),
        )
    })?;
    Ok(Config { path: Some(path), ..config })
}

/// Whether this text would be read as the configuration at this absolute path; else why not.
pub(crate) fn check(text: &str, path: &Path) -> Result<(), String> {
    if text.len() > FILE.most {
        return Err(format!("it is larger than {} bytes", FILE.most));
    }
    let base = path.parent().unwrap_or(Path::new("/"));
    parse(text, base).map(drop).map_err(|misfit| misfit.sentence(text))
}

/// The term of a lease. A shorter one ends while a busy machine is on its way to renew it; a longer one keeps a run from
/// being taken up when its holder is gone without proof.
const LEASE_TERM: Number =
    Number { key: "term_ms", unit: "milliseconds", least: 1_000, most: Some(3_600_000) };

/// How long before an end people are reminded of it: thirty days at most, so that a reminder is of something near.
const REMINDER: Number = Number {
    key: "remind_before_ms",
    unit: "milliseconds (0 reminds nobody)",
    least: 0,
    most: Some(30 * 24 * 3_600_000),
};

fn remind_before(given: &Given) -> Result<Option<Duration>, Misfit> {
    Ok(match REMINDER.read(given)? {
        None => Some(REMIND_BEFORE),
        Some(0) => None,
        Some(ms) => Some(Duration::from_millis(ms)),
    })
}

/// Both steps. Relative paths start at `base`.
fn parse(text: &str, base: &Path) -> Result<Config, Misfit> {
    let raw: Raw = toml::from_str(text)
        .map_err(|error| Misfit { at: error.span(), message: without_values(error.message()) })?;
    let absolute = |path: PathBuf| base.join(path);
    let said = classes(ClassTable::empty(), &raw.classes)?;
    let credentials = credentials::read(&raw.credentials, base)?;
    let http = http::read(raw.http, &credentials)?;
    let models = models::read(raw.models, &credentials, &raw.day)?;
    let mcp = mcp::read(raw.mcp, &credentials, base)?;
    credentials::check_used(&raw.credentials, &used(http.as_ref(), &models, &mcp))?;
    Ok(Config {
        path: None,
        classes: classes(ClassTable::default(), &raw.classes)?,
        asks: said.roles().into_iter().map(|(role, count)| (role.to_owned(), count)).collect(),
        limits: raw.limits.read()?,
        lease: LEASE_TERM.read(&raw.lease.term_ms)?.map(Duration::from_millis),
        remind_before: remind_before(&raw.approvals.remind_before_ms)?,
        files: raw.files.root.map(absolute),
        http,
        mcp,
        agent: agent(raw.agent, base)?,
        credentials,
        egress: egress::read(raw.egress, base)?,
        models,
        reviewers: raw.reviewers.into_iter().map(reviewer).collect::<Result<_, _>>()?,
        head: raw.head.file.map(absolute),
        children: raw.children.spawn,
        proxy: proxy::read(raw.proxy, base)?,
        conversation: raw.conversation.read()?,
        decide: decide::read(raw.decide)?,
    })
}

/// The names of the credentials that go somewhere: a provider's own name is one, if nothing else is said.
fn used<'a>(
    http: Option<&'a HttpChoice>,
    models: &'a models::Models,
    mcp: &'a [ServerChoice],
) -> BTreeSet<&'a str> {
    let of_servers = mcp.iter().flat_map(ServerChoice::credentials);
    let of_places = http.iter().flat_map(|http| &http.credentials).map(|chosen| &*chosen.name);
    let of_tables = models.providers.values().filter_map(|stated| stated.credential.as_deref());
    of_places.chain(of_servers).chain(of_tables).chain(providers::names(models)).collect()
}

/// What the reader says, without a text that stands in the file: it may be a key in the wrong place.
fn without_values(message: &str) -> String {
    let Some((before, rest)) = message.split_once(" string \"") else { return message.to_owned() };
    let after = rest.rsplit_once("\", ").map_or("", |(_, after)| after);
    format!("{before} text, {after}")
}

/// The table with what stands in the file.
fn classes(mut table: ClassTable, raw: &RawClasses) -> Result<ClassTable, Misfit> {
    let named = [
        (EffectClass::ReadOnly, &raw.read_only),
        (EffectClass::LocalMutation, &raw.local_mutation),
        (EffectClass::RemoteMutation, &raw.remote_mutation),
        (EffectClass::Destructive, &raw.destructive),
    ];
    for (class, value) in named {
        if let Some(value) = value {
            table = table.with(class, outcome(value)?);
        }
    }
    Ok(table)
}

const OUTCOMES: &str = "expected \"allow\", \"deny\", \"abort\", \"ask\", or a table such as { ask = \"operator\", count = 1 }";

fn outcome(value: &Spanned<toml::Value>) -> Result<Outcome, Misfit> {
    let misfit = |message: &str| Misfit::at(&value.span(), message);
    let table = match value.get_ref() {
        toml::Value::String(word) => {
            return match word.as_str() {
                "allow" => Ok(Outcome::Allow),
                "deny" => Ok(Outcome::Deny),
                "abort" => Ok(Outcome::Abort),
                "ask" => Outcome::ask("operator", 1).map_err(|error| misfit(&error.to_string())),
                _ => Err(misfit(OUTCOMES)),
            };
        }
        toml::Value::Table(table) => table,
        _ => return Err(misfit(OUTCOMES)),
    };
    if let Some(unknown) =
        table.keys().find(|key| !["ask", "count", "on_rejection"].contains(&key.as_str()))
    {
        return Err(misfit(&format!(
            "unknown key `{unknown}`; known are ask, count, on_rejection"
        )));
    }
    let role = table.get("ask").and_then(toml::Value::as_str).ok_or_else(|| misfit(OUTCOMES))?;
    let count = match table.get("count") {
        None => 1,
        Some(count) => count
            .as_integer()
            .and_then(|count| u32::try_from(count).ok())
            .filter(|count| (1..=MAX_REVIEWERS).contains(count))
            .ok_or_else(|| {
                misfit(&format!("`count` is a whole number of people, 1 to {MAX_REVIEWERS}"))
            })?,
    };
    let ask = Outcome::ask(role, count).map_err(|error| misfit(&error.to_string()))?;
    match table.get("on_rejection").map(toml::Value::as_str) {
        None | Some(Some("end_run")) => Ok(ask),
        Some(Some("observe")) => Ok(ask.observing_rejection()),
        Some(_) => Err(misfit("on_rejection is \"end_run\" or \"observe\"")),
    }
}

fn agent(raw: RawAgent, base: &Path) -> Result<Option<AgentChoice>, Misfit> {
    let Some(command) = raw.command else { return Ok(None) };
    let env = raw.env.into_iter().map(|name| {
        let span = name.span();
        let name = name.into_inner();
        let fits = !name.is_empty() && !name.contains(['=', '\0']);
        if fits { Ok(name) } else { Err(Misfit::at(&span, "not the name of a variable")) }
    });
    let mut choice = AgentChoice::new(command.get_ref(), base)
        .map_err(|error| Misfit::at(&command.span(), error.to_string()))?;
    choice.unconfined = raw.unconfined;
    choice.network = raw.network;
    choice.env = env.collect::<Result<_, _>>()?;
    choice.reads = raw.reads.into_iter().map(|path| base.join(path)).collect();
    Ok(Some(choice))
}

fn reviewer(raw: RawReviewer) -> Result<KeyEntry, Misfit> {
    let key: PublicKey = raw
        .key
        .get_ref()
        .parse()
        .map_err(|error| Misfit::at(&raw.key.span(), format!("{error}")))?;
    let named = |name: &str| Name::new(name).is_ok();
    if !named(raw.person.get_ref()) {
        return Err(Misfit::at(&raw.person.span(), "a person is 1 to 128 plain bytes"));
    }
    if raw.roles.get_ref().is_empty() || !raw.roles.get_ref().iter().all(|role| named(role)) {
        return Err(Misfit::at(
            &raw.roles.span(),
            "roles are one or more names of 1 to 128 plain bytes",
        ));
    }
    let (not_before, not_after) =
        (instant(raw.not_before.as_ref())?, instant(raw.not_after.as_ref())?);
    if let (Some(start), Some(end)) = (not_before, not_after)
        && end < start
    {
        return Err(Misfit::at(&raw.person.span(), "the term of this key ends before it begins"));
    }
    Ok(KeyEntry {
        key,
        person: raw.person.into_inner(),
        roles: raw.roles.into_inner(),
        not_before,
        not_after,
        revoked: raw.revoked,
    })
}

/// A date and time in UTC, quoted or not.
fn instant(value: Option<&Spanned<toml::Value>>) -> Result<Option<Timestamp>, Misfit> {
    let Some(value) = value else { return Ok(None) };
    let stated = match value.get_ref() {
        toml::Value::Datetime(stated) => Some(*stated),
        toml::Value::String(text) => text.parse::<Datetime>().ok(),
        _ => None,
    };
    stated.and_then(in_utc).map(Some).ok_or_else(|| {
        Misfit::at(&value.span(), "expected an instant in UTC, such as 2026-01-31T12:00:00Z")
    })
}

fn in_utc(stated: Datetime) -> Option<Timestamp> {
    let (date, time) = (stated.date?, stated.time?);
    if !matches!(stated.offset, Some(Offset::Z | Offset::Custom { minutes: 0 })) {
        return None;
    }
    let (second, nanos) = (time.second.unwrap_or(0), time.nanosecond.unwrap_or(0));
    let micros = nanos / 1_000;
    let (year, month, day) = (date.year, date.month, date.day);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{second:02}.{micros:06}Z",
        time.hour, time.minute
    )
    .parse()
    .ok()
}

#[cfg(test)]
mod tests {
    use portcullis_domain::ports::Policy as _;

    use super::*;

    const KEY: &str = "ed25519:d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

    fn good(text: &str) -> Config {
        parse(text, Path::new("/etc/base")).unwrap_or_else(|m| panic!("{}", m.sentence(text)))
    }

    #[track_caller]
    fn bad(text: &str, sentence: &str) {
        let found = parse(text, Path::new("/")).unwrap_err().sentence(text);
        assert!(found.starts_with(sentence), "{found:?} does not begin with {sentence:?}");
        assert!(!found.contains('\n'), "{found:?}");
    }

    #[test]
    fn an_empty_file_means_the_defaults() {
        let config = good("# nothing\n");
        assert_eq!(config.classes.id(), ClassTable::default().id());
        assert_eq!((config.limits, config.lease), (Limits::default(), None));
        assert_eq!(config.remind_before, Some(REMIND_BEFORE));
        assert_eq!(good("[approvals]\nremind_before_ms = 0\n").remind_before, None);
        assert!(config.files.is_none() && config.agent.is_none() && config.reviewers.is_empty());
    }

    #[test]
    fn everything_that_can_be_said() {
        let config = good(&format!(
            "[classes]\nread_only = 'allow'\nlocal_mutation = 'ask'\n\
             destructive = {{ ask = 'owner', count = 2, on_rejection = 'observe' }}\n\
             [limits]\nmax_steps = 7\nquestion_ttl_ms = 1000\n[lease]\nterm_ms = 5000\n\
             [approvals]\nremind_before_ms = 60000\n[files]\nroot = 'data'\n\
             [agent]\ncommand = 'exec:python3 a.py'\nnetwork = true\nenv = ['TOKEN']\n\
             [head]\nfile = '/mnt/heads'\n\
             [[reviewers]]\nperson = 'ann'\nroles = ['operator', 'owner']\nkey = '{KEY}'\n\
             not_before = 2026-01-31T12:00:00Z\nnot_after = '2027-01-31T12:00:00.5Z'\nrevoked = true\n"
        ));
        let ask = |role, count| Outcome::ask(role, count).unwrap();
        let table = ClassTable::default()
            .with(EffectClass::LocalMutation, ask("operator", 1))
            .with(EffectClass::Destructive, ask("owner", 2).observing_rejection());
        assert_eq!(config.classes.id(), table.id());
        assert_eq!((config.limits.max_steps, config.limits.max_denials), (7, 20));
        assert_eq!(config.lease, Some(Duration::from_secs(5)));
        assert_eq!(config.remind_before, Some(Duration::from_secs(60)));
        assert_eq!(config.files.unwrap(), Path::new("/etc/base/data"));
        assert_eq!(config.head.unwrap(), Path::new("/mnt/heads"));
        let agent = config.agent.unwrap();
        assert!(agent.network && !agent.unconfined && agent.env == ["TOKEN"]);
        let [ann] = config.reviewers.as_slice() else { panic!() };
        assert_eq!(ann.not_before.unwrap().to_string(), "2026-01-31T12:00:00.000000Z");
        assert_eq!(ann.not_after.unwrap().to_string(), "2027-01-31T12:00:00.500000Z");
        assert!(ann.revoked && ann.roles == ["operator", "owner"]);
    }

    #[test]
    fn the_tools_of_a_host_have_exact_names_and_known_classes() {
        let config = good(
            "[decide.tools]\nBash = 'destructive'\n'mcp__mail__send' = 'remote_mutation'\n'MCP:look' = 'read_only'\n",
        );
        let found: Vec<_> = config.decide.iter().map(|(name, class)| (&**name, *class)).collect();
        let expected = [
            ("Bash", EffectClass::Destructive),
            ("MCP:look", EffectClass::ReadOnly),
            ("mcp__mail__send", EffectClass::RemoteMutation),
        ];
        assert_eq!(found, expected);
        assert!(good("").decide.is_empty());
        bad("[decide.tools]\nBash = 'harmless'\n", "line 2, column 8: an effect class is");
        bad(
            "[decide.tools]\n'mcp__*' = 'read_only'\n",
            "line 2, column 1: a tool is named exactly",
        );
        bad("[decide.tools]\n'a(b)' = 'read_only'\n", "line 2, column 1: a tool is the exact name");
        bad("[decide]\ntool = 1\n", "line 2, column 1: unknown field `tool`");
    }

    #[test]
    fn the_bounds_of_a_conversation_have_their_units_and_ranges() {
        let usual = good("").conversation;
        assert_eq!((usual.max_denials, usual.loop_threshold), (Some(20), None));
        assert_eq!((usual.window_ms, usual.max_calls), (3_600_000, None));
        let config = good("[conversation]\nwindow_ms = 60000\nmax_changes = 3\nmax_denials = 0\n");
        let said = config.conversation;
        assert_eq!((said.window_ms, said.max_changes, said.max_denials), (60_000, Some(3), None));
        assert_eq!((said.loop_threshold, said.check()), (None, Ok(())));
        let off = good("[conversation]\nmax_denials = 0\nloop_threshold = 0\n").conversation;
        assert!(off.is_off());
        bad("[conversation]\nmax_calls = 0\n", "line 2, column 13: `max_calls` is a whole number");
        bad("[conversation]\nmax_changes = -1\n", "line 2, column 15: `max_changes` is");
        bad(
            "[conversation]\nloop_threshold = 33\n",
            "line 2, column 18: `loop_threshold` is a whole number of repetitions (0 looks for none), 0 to 32",
        );
        bad("[conversation]\nwindow_ms = 999\n", "line 2, column 13: `window_ms` is");
        bad("[conversation]\nmax_elapsed_ms = '1h'\n", "line 2, column 18: `max_elapsed_ms` is");
        bad("[conversation]\nmax_steps = 1\n", "line 2, column 1: unknown field `max_steps`");
    }

    #[test]
    fn what_does_not_fit_is_named_by_its_place() {
        bad("x = ", "line 1, column");
        bad("[classes]\nlocal = 'ask'\n", "line 2, column 1: unknown field `local`");
        bad("[classes]\nread_only = 'maybe'\n", "line 2, column 13: expected \"allow\"");
        bad(
            "[classes]\nread_only = { ask = 'a', who = 1 }\n",
            "line 2, column 13: unknown key `who`",
        );
        bad("[classes]\nread_only = { count = 2 }\n", "line 2, column 13: expected \"allow\"");
        bad("[classes]\nread_only = { ask = 'a b' }\n", "line 2, column 13: a question needs");
        bad(
            "[classes]\nread_only = { ask = 'a', count = 0 }\n",
            "line 2, column 13: `count` is a whole number of people, 1 to 16",
        );
        bad(
            "[classes]\nread_only = { ask = 'a', count = -1 }\n",
            "line 2, column 13: `count` is a whole number of people, 1 to 16",
        );
        bad(
            "[limits]\nmax_denials = 5\nmax_steps = 0\n",
            "line 3, column 13: `max_steps` is a whole number of steps, 1 or more",
        );
        bad(
            "[limits]\nmax_steps = '7'\n",
            "line 2, column 13: `max_steps` is a whole number of steps, 1 or more",
        );
        bad(
            "[limits]\nquestion_ttl_ms = 1.5\n",
            "line 2, column 19: `question_ttl_ms` is a whole number of milliseconds, 1 or more",
        );
        for odd in ["99999999999999999999", "-1", "1e3", "true", "[1]", "{ a = 1 }", "1979-05-27"] {
            bad(
                &format!("[limits]\nmax_active_ms = {odd}\n"),
                "line 2, column 17: `max_active_ms` is a whole number of milliseconds, 1 or more",
            );
        }
        bad(
            "[limits]\nloop_threshold = 33\n",
            "line 2, column 18: `loop_threshold` is a whole number of repetitions, 1 to 32",
        );
        bad(
            "[approvals]\nremind_before_ms = -1\n",
            "line 2, column 20: `remind_before_ms` is a whole number of milliseconds (0 reminds nobody), 0 to 2592000000",
        );
        bad("[limits]\nmax_stepz = 1\n", "line 2, column 1: unknown field `max_stepz`");
        bad(
            "[lease]\nterm_ms = 999\n",
            "line 2, column 11: `term_ms` is a whole number of milliseconds, 1000 to 3600000",
        );
        bad("[agent]\ncommand = 'tidy.py'\n", "line 2, column 11: ");
        bad(
            "[[reviewers]]\nperson='a'\nroles=['r']\nkey='ed25519:00'\n",
            "line 4, column 5: not a public key",
        );
        let term = "not_before = 2026-01-31T12:00:00+02:00\n";
        bad(
            &format!("[[reviewers]]\nperson='a'\nroles=['r']\nkey='{KEY}'\n{term}"),
            "line 5, column 14: expected an instant in UTC",
        );
        bad(
            &format!("[[reviewers]]\nperson='a'\nroles=[]\nkey='{KEY}'\n"),
            "line 3, column 7: roles",
        );
    }
}
