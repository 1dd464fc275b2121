//! `[mcp.servers.NAME]`: the servers whose tools a run has, how each is reached, and the rules for each tool.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use portcullis_canon::{Digest, Kind, Object, Value};
use portcullis_domain::recovery::Probe;
use portcullis_domain::tool::EffectClass;
use portcullis_egress::{Reach, Target};
use portcullis_mcp::{
    HttpServer, MAX_PINNED_FILES, OfferRules, ServerName, ToolRule, UriRule, UriRuleError,
};
use serde::Deserialize;
use toml::Spanned;

use super::Misfit;
use super::credentials::{CredentialSource, Credentials, Written};
use super::login::{LoginChoice, RawLogin};
use super::models::json;
use super::numbers::{Given, Number};

/// How long a server has from its start to its list of tools, unless something else is said.
const CONNECT: Duration = Duration::from_secs(30);
/// How long a call may take, unless something else is said.
const CALL: Duration = Duration::from_secs(60);
/// The largest result of a call in bytes, unless something else is said.
const RESULT: u64 = 64 * 1024;
/// How many digits of the digest of its settings stand beside a server's name.
const SETTINGS_DIGITS: usize = 16;

/// One server, as the operator describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerChoice {
    /// Its name here.
    pub(crate) name: ServerName,
    /// How it is reached.
    pub(crate) way: Way,
    /// Where the manifest lies, absolute.
    pub(crate) manifest: PathBuf,
    /// How long it has from its start to its list of tools.
    pub(crate) connect: Duration,
    /// How long a call may take whose rule does not say.
    pub(crate) call: Duration,
    /// The largest result in bytes of a tool whose rule does not say.
    pub(crate) max_result_bytes: u64,
    /// The rules, by the server's names of its tools.
    pub(crate) rules: BTreeMap<String, ToolRule>,
    /// What hosts of a proxy may have of it beside tools.
    pub(crate) offers: OfferRules,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It is a program that is started.
    Program(Program),
    /// It is behind a URL.
    Url(Box<RemoteServer>),
}

/// A server that is a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// A path, or a name that is looked for.
    pub(crate) command: PathBuf,
    /// What it is given.
    pub(crate) args: Vec<String>,
    /// Variables with their values.
    pub(crate) env: BTreeMap<String, String>,
    /// Variables that it gets as this process has them.
    pub(crate) inherit_env: Vec<String>,
    /// Whether the program has to be the file that was pinned.
    pub(crate) pin_program: bool,
    /// Other files that have to be as they were pinned, absolute.
    pub(crate) pin_files: Vec<PathBuf>,
}

/// A server behind a URL. It holds no secret: only where one lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteServer {
    /// Where it is, and how its credential is written into requests.
    pub(crate) server: HttpServer,
    /// The name of the credential, and where it lies.
    pub(crate) credential: Option<(String, CredentialSource)>,
    /// How a person gets its token, in the place of a credential.
    pub(crate) login: Option<LoginChoice>,
    /// What another value of makes another server, as one value.
    settings: Value,
}

impl ServerChoice {
    /// What the server is, for a person and for the digest that they sign: another program, argument, variable, address
    /// or credential makes another one. Values of variables may be secrets and are not in it, and neither is the path of
    /// an address to be read.
    pub(crate) fn place(&self) -> String {
        match &self.way {
            Way::Program(program) => {
                let settings = digits(&program.settings());
                format!("run as `{}`, settings {settings}", program.command.display())
            }
            Way::Url(remote) => {
                let settings = digits(&remote.settings);
                format!("reached at `{}`, settings {settings}", remote.server.target.origin())
            }
        }
    }

    /// The names of its credential and of the secret of its login.
    pub(super) fn credentials(&self) -> impl Iterator<Item = &str> {
        let remote = match &self.way {
            Way::Program(_) => None,
            Way::Url(remote) => Some(remote),
        };
        let own = remote.and_then(|remote| Some(remote.credential.as_ref()?.0.as_str()));
        own.into_iter().chain(self.login().and_then(|login| login.secret_name.as_deref()))
    }

    /// How a person gets its token.
    pub(crate) fn login(&self) -> Option<&LoginChoice> {
        match &self.way {
            Way::Program(_) => None,
            Way::Url(remote) => remote.login.as_ref(),
        }
    }
}

impl Program {
    fn settings(&self) -> Value {
        let texts = |texts: &mut dyn Iterator<Item = &String>| -> Value {
            texts.map(|text| Value::from(text.as_str())).collect::<Vec<_>>().into()
        };
        let mut object = Object::new();
        object.insert("command", self.command.to_string_lossy().as_ref());
        object.insert("args", texts(&mut self.args.iter()));
        object.insert("env", texts(&mut self.env.keys()));
        object.insert("inherit_env", texts(&mut self.inherit_env.iter()));
        Value::Object(object)
    }
}

/// The first digits of the digest of settings.
fn digits(settings: &Value) -> String {
    Digest::of_value(Kind::Config, settings).hex().chars().take(SETTINGS_DIGITS).collect()
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawMcp {
    servers: BTreeMap<Spanned<String>, RawServer>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawServer {
    command: Option<Spanned<String>>,
    args: Option<Spanned<Vec<Spanned<String>>>>,
    env: Option<Spanned<BTreeMap<Spanned<String>, Spanned<String>>>>,
    inherit_env: Option<Spanned<Vec<Spanned<String>>>>,
    pin_program: Option<Spanned<bool>>,
    pin_files: Option<Spanned<Vec<Spanned<String>>>>,
    url: Option<Spanned<String>>,
    credential: Option<Spanned<String>>,
    credential_header: Option<Spanned<String>>,
    credential_user: Option<Spanned<String>>,
    private: Option<Spanned<bool>>,
    login: Option<Spanned<RawLogin>>,
    manifest: Option<PathBuf>,
    #[serde(default)]
    connect_timeout_ms: Given,
    #[serde(default)]
    timeout_ms: Given,
    #[serde(default)]
    max_result_bytes: Given,
    resources: Option<Vec<Spanned<String>>>,
    prompts: Option<BTreeSet<String>>,
    #[serde(default)]
    prompt_names: BTreeMap<Spanned<String>, String>,
    #[serde(default)]
    completions: bool,
    #[serde(default)]
    tools: BTreeMap<String, Spanned<RawTool>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTool {
    effect: Option<Spanned<String>>,
    #[serde(default = "yes")]
    source: bool,
    #[serde(default = "yes")]
    sink: bool,
    #[serde(default)]
    authority: Vec<String>,
    #[serde(default)]
    timeout_ms: Given,
    #[serde(default)]
    max_result_bytes: Given,
    #[serde(default)]
    deny: Vec<String>,
    fix: Option<Spanned<toml::Table>>,
    #[serde(default)]
    rename: BTreeMap<String, String>,
    description: Option<String>,
    name: Option<String>,
    #[serde(default)]
    terminal: bool,
    probe: Option<RawProbe>,
    idempotency_key: Option<String>,
    #[serde(default)]
    accept_hints: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawProbe {
    tool: String,
    arguments: Option<BTreeMap<String, String>>,
}

/// What is not said is closed: a result carries content from outside, and a call sends.
const fn yes() -> bool {
    true
}

const CONNECT_MS: Number =
    Number { key: "connect_timeout_ms", unit: "milliseconds", least: 1_000, most: Some(600_000) };

const CALL_MS: Number =
    Number { key: "timeout_ms", unit: "milliseconds", least: 100, most: Some(3_600_000) };

const RESULT_BYTES: Number =
    Number { key: "max_result_bytes", unit: "bytes", least: 256, most: Some(16 * 1024 * 1024) };

/// What stands there, servers sorted by name. Relative paths start at `base`.
pub(super) fn read(
    raw: RawMcp,
    credentials: &Credentials,
    base: &Path,
) -> Result<Vec<ServerChoice>, Misfit> {
    raw.servers.into_iter().map(|(name, raw)| raw.read(&name, credentials, base)).collect()
}

const EITHER: &str =
    "a server has either `command`, which starts a program, or `url`, where it is reached";

impl RawServer {
    fn read(
        self,
        name: &Spanned<String>,
        credentials: &Credentials,
        base: &Path,
    ) -> Result<ServerChoice, Misfit> {
        let server = ServerName::new(name.get_ref())
            .map_err(|error| Misfit::at(&name.span(), error.to_string()))?;
        let way = match (&self.command, &self.url) {
            (Some(command), None) => Way::Program(self.program(command, base)?),
            (None, Some(url)) => {
                Way::Url(Box::new(self.remote(&server, url, credentials, base)?))
            }
            _ => return Err(Misfit::at(&name.span(), EITHER)),
        };
        let usual = || PathBuf::from(format!("{server}.manifest.json"));
        let offers = OfferRules {
            resources: self.resources.as_deref().map(uris).transpose()?,
            prompt_names: prompt_names(self.prompt_names, self.prompts.as_ref())?,
            prompts: self.prompts,
            completions: self.completions,
        };
        let rules = self.tools.into_iter().map(|(tool, raw)| Ok((tool, rule(raw)?)));
        let millis = |number: Option<u64>| number.map(Duration::from_millis);
        Ok(ServerChoice {
            way,
            manifest: base.join(self.manifest.unwrap_or_else(usual)),
            connect: millis(CONNECT_MS.read(&self.connect_timeout_ms)?).unwrap_or(CONNECT),
            call: millis(CALL_MS.read(&self.timeout_ms)?).unwrap_or(CALL),
            max_result_bytes: RESULT_BYTES.read(&self.max_result_bytes)?.unwrap_or(RESULT),
            offers,
            rules: rules.collect::<Result<_, _>>()?,
            name: server,
        })
    }

    fn program(&self, said: &Spanned<String>, base: &Path) -> Result<Program, Misfit> {
        let only = "only a server with a `url` has this";
        for other in [&self.credential, &self.credential_header, &self.credential_user] {
            refuse(other.as_ref(), only)?;
        }
        refuse(self.private.as_ref(), only)?;
        refuse(self.login.as_ref(), only)?;
        let program = text(said, "a program")?;
        if program.is_empty() {
            return Err(Misfit::at(&said.span(), "`command` names a program"));
        }
        // A name without a slash is looked for; a path starts at the configuration.
        let command = if program.contains('/') { base.join(program) } else { program.into() };
        let mut env = BTreeMap::new();
        for (name, value) in self.env.iter().flat_map(|env| env.get_ref()) {
            env.insert(variable(name)?.to_owned(), text(value, "a value")?.to_owned());
        }
        let inherit = self.inherit_env.iter().flat_map(|names| names.get_ref());
        let inherit = inherit.map(|name| variable(name).map(str::to_owned));
        let args = self.args.iter().flat_map(|args| args.get_ref());
        let args = args.map(|arg| text(arg, "an argument").map(str::to_owned));
        Ok(Program {
            command,
            args: args.collect::<Result<_, _>>()?,
            env,
            inherit_env: inherit.collect::<Result<_, _>>()?,
            pin_program: self.pin_program.as_ref().is_some_and(|pin| *pin.get_ref()),
            pin_files: self.pinned_files(base)?,
        })
    }

    fn pinned_files(&self, base: &Path) -> Result<Vec<PathBuf>, Misfit> {
        let Some(said) = &self.pin_files else { return Ok(Vec::new()) };
        // One place is left for the program.
        if said.get_ref().len() >= MAX_PINNED_FILES {
            let message = format!("`pin_files` has fewer than {MAX_PINNED_FILES} files");
            return Err(Misfit::at(&said.span(), message));
        }
        let file = |said: &Spanned<String>| match text(said, "a file's name")? {
            "" => Err(Misfit::at(&said.span(), "`pin_files` names files")),
            name => Ok(base.join(name)),
        };
        said.get_ref().iter().map(file).collect()
    }

    fn remote(
        &self,
        name: &ServerName,
        url: &Spanned<String>,
        credentials: &Credentials,
        base: &Path,
    ) -> Result<RemoteServer, Misfit> {
        let only = "only a server with a `command` has this";
        refuse(self.args.as_ref(), only)?;
        refuse(self.env.as_ref(), only)?;
        refuse(self.inherit_env.as_ref(), only)?;
        refuse(self.pin_program.as_ref(), only)?;
        refuse(self.pin_files.as_ref(), only)?;
        let target = Target::parse(url.get_ref())
            .map_err(|fault| Misfit::at(&url.span(), fault.to_string()))?;
        if !target.is_encrypted() && !target.is_this_machine() {
            let message = "plain http goes to this machine alone; an MCP server elsewhere has an `https://` address";
            return Err(Misfit::at(&url.span(), message));
        }
        let written = Written {
            credential: self.credential.as_ref(),
            header: self.credential_header.as_ref(),
            user: self.credential_user.as_ref(),
        };
        let private = self.private.as_ref().is_some_and(|private| *private.get_ref());
        let server = HttpServer {
            credential: written.reference("server")?,
            reach: if private { Reach::Private } else { Reach::Public },
            ..HttpServer::new(target)
        };
        // What no rule can open is told here, and not with the first call.
        server.rules().map_err(|fault| Misfit::at(&url.span(), fault.to_string()))?;
        let credential = match &self.credential {
            Some(name) => Some((name.get_ref().clone(), credentials.named(name)?.clone())),
            None => None,
        };
        let mut settings = settings(url, &written, private);
        let login = match &self.login {
            Some(login) if credential.is_some() => {
                let message = "a server has either a `credential` or a `login`";
                return Err(Misfit::at(&login.span(), message));
            }
            Some(login) => {
                let login = login.get_ref().read(name, &server.target, credentials, base)?;
                settings.insert("login", login.settings());
                Some(login)
            }
            None => None,
        };
        let server = match &login {
            Some(_) => HttpServer { login: Some(format!("portcullis login {name}")), ..server },
            None => server,
        };
        Ok(RemoteServer { server, credential, login, settings: Value::Object(settings) })
    }
}

/// What hosts call prompts. A name for one that no host may have is a mistake.
fn prompt_names(
    said: BTreeMap<Spanned<String>, String>,
    prompts: Option<&BTreeSet<String>>,
) -> Result<BTreeMap<String, String>, Misfit> {
    let is_had = |name: &String| prompts.is_some_and(|prompts| prompts.contains(name));
    if let Some(other) = said.keys().find(|name| !is_had(name.get_ref())) {
        return Err(Misfit::at(&other.span(), "`prompt_names` names what stands in `prompts`"));
    }
    Ok(said.into_iter().map(|(prompt, name)| (prompt.into_inner(), name)).collect())
}

/// Which resources may be read.
fn uris(said: &[Spanned<String>]) -> Result<Vec<UriRule>, Misfit> {
    let rule = |text: &Spanned<String>| {
        text.get_ref()
            .parse()
            .map_err(|error: UriRuleError| Misfit::at(&text.span(), error.to_string()))
    };
    said.iter().map(rule).collect()
}

/// What makes one server behind a URL another one than the next.
fn settings(url: &Spanned<String>, written: &Written<'_>, private: bool) -> Object {
    let said = |said: Option<&Spanned<String>>| -> Value {
        said.map_or(Value::Null, |said| Value::from(said.get_ref().as_str()))
    };
    let mut object = Object::new();
    object.insert("url", url.get_ref().as_str());
    object.insert("credential", said(written.credential));
    object.insert("credential_header", said(written.header));
    object.insert("credential_user", said(written.user));
    object.insert("private", private);
    object
}

/// A key that does not go with what the server is.
fn refuse<T>(said: Option<&Spanned<T>>, message: &str) -> Result<(), Misfit> {
    said.map_or(Ok(()), |said| Err(Misfit::at(&said.span(), message)))
}

fn text<'a>(said: &'a Spanned<String>, what: &str) -> Result<&'a str, Misfit> {
    if said.get_ref().contains('\0') {
        return Err(Misfit::at(&said.span(), format!("{what} has no zero byte in it")));
    }
    Ok(said.get_ref())
}

fn variable(name: &Spanned<String>) -> Result<&str, Misfit> {
    let text = name.get_ref();
    if text.is_empty() || text.contains(['=', '\0']) {
        return Err(Misfit::at(&name.span(), "not the name of a variable"));
    }
    Ok(text)
}

const CLASSES: &str = "a rule names what a call can change: `effect` is \"read_only\", \"local_mutation\", \"remote_mutation\" or \"destructive\"";

fn rule(said: Spanned<RawTool>) -> Result<ToolRule, Misfit> {
    let span = said.span();
    let raw = said.into_inner();
    let Some(effect) = &raw.effect else { return Err(Misfit::at(&span, CLASSES)) };
    let class = EffectClass::ALL.into_iter().find(|class| class.as_str() == effect.get_ref());
    let class = class.ok_or_else(|| Misfit::at(&effect.span(), CLASSES))?;
    Ok(ToolRule {
        source: raw.source,
        sink: raw.sink,
        authority: raw.authority,
        deadline: CALL_MS.read(&raw.timeout_ms)?.map(Duration::from_millis),
        max_result_bytes: RESULT_BYTES.read(&raw.max_result_bytes)?,
        deny: raw.deny.into_iter().collect(),
        fix: raw.fix.map(fixed).transpose()?.unwrap_or_default(),
        rename: raw.rename,
        description: raw.description,
        name: raw.name,
        terminal: raw.terminal,
        probe: raw.probe.map(|probe| Probe { tool: probe.tool, arguments: probe.arguments }),
        idempotency_key: raw.idempotency_key,
        accept_hints: raw.accept_hints,
        ..ToolRule::new(class)
    })
}

fn fixed(table: Spanned<toml::Table>) -> Result<Object, Misfit> {
    let misfit = || Misfit::at(&table.span(), "`fix` holds values that JSON has");
    let mut object = Object::new();
    for (key, value) in table.get_ref() {
        object.insert(key.as_str(), json(value).ok_or_else(misfit)?);
    }
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::super::credentials::SecretSource;
    use super::super::parse;
    use super::*;

    fn good(text: &str) -> Vec<ServerChoice> {
        parse(text, Path::new("/etc/base")).unwrap_or_else(|m| panic!("{}", m.sentence(text))).mcp
    }

    #[track_caller]
    fn bad(text: &str, sentence: &str) {
        let found = parse(text, Path::new("/")).unwrap_err().sentence(text);
        assert!(found.starts_with(sentence), "{found:?} does not begin with {sentence:?}");
    }

    fn program(server: &ServerChoice) -> &Program {
        match &server.way {
            Way::Program(program) => program,
            Way::Url(remote) => panic!("{remote:?}"),
        }
    }

    #[test]
    fn a_server_needs_a_program_and_the_rest_is_closed() {
        assert_eq!(good(""), []);
        let [server] = &good(
            "[mcp.servers.bank]\ncommand = 'bank-server'\n[mcp.servers.bank.tools.pay]\neffect = 'remote_mutation'\n",
        )[..] else {
            panic!("one server")
        };
        assert_eq!(server.name.as_str(), "bank");
        assert_eq!(program(server).command, Path::new("bank-server"));
        assert_eq!(server.manifest, Path::new("/etc/base/bank.manifest.json"));
        assert_eq!((server.connect, server.call, server.max_result_bytes), (CONNECT, CALL, RESULT));
        assert_eq!(server.rules.get("pay"), Some(&ToolRule::new(EffectClass::RemoteMutation)));
        assert!(server.rules["pay"].source && server.rules["pay"].sink);
    }

    #[test]
    fn everything_that_can_be_said() {
        let servers = good(
            "[mcp.servers.bank]\ncommand = 'bin/bank'\nargs = ['--stdio', '']\nenv = { MODE = 'x' }\n\
             inherit_env = ['LANG']\npin_program = true\npin_files = ['a.lock', '/b']\nmanifest = '/pins/bank.json'\nconnect_timeout_ms = 5000\ntimeout_ms = 2000\n\
             max_result_bytes = 1024\n[mcp.servers.bank.tools.'send money']\neffect = 'destructive'\nsource = false\n\
             sink = false\nauthority = ['/who']\ntimeout_ms = 100\nmax_result_bytes = 256\ndeny = ['cc']\n\
             fix = { sum = 5, note = 'x', deep = { a = [1.5, true] } }\nrename = { to = 'who' }\n\
             description = 'Pays.'\nname = 'pay'\nterminal = true\nidempotency_key = 'key'\naccept_hints = true\n\
             probe = { tool = 'bank.paid', arguments = { id = '/who' } }\n\
             [mcp.servers.a]\ncommand = 'a'\n",
        );
        let [a, bank] = &servers[..] else { panic!("two servers") };
        assert_eq!((a.name.as_str(), bank.name.as_str()), ("a", "bank"));
        assert_eq!(program(bank).command, Path::new("/etc/base/bin/bank"));
        assert_eq!(program(bank).args, ["--stdio", ""]);
        assert_eq!(program(bank).env["MODE"], "x");
        assert_eq!(program(bank).inherit_env, ["LANG"]);
        assert!(program(bank).pin_program && !program(a).pin_program);
        assert_eq!(program(bank).pin_files, [Path::new("/etc/base/a.lock"), Path::new("/b")]);
        assert_eq!(bank.manifest, Path::new("/pins/bank.json"));
        assert_eq!((bank.connect, bank.call), (Duration::from_secs(5), Duration::from_secs(2)));
        let rule = &bank.rules["send money"];
        assert_eq!(rule.effect, EffectClass::Destructive);
        assert_eq!(
            (rule.source, rule.sink, rule.terminal, rule.accept_hints),
            (false, false, true, true)
        );
        assert_eq!(rule.deadline, Some(Duration::from_millis(100)));
        assert_eq!(rule.fix.to_canonical(), br#"{"deep":{"a":[1.5,true]},"note":"x","sum":5}"#);
        assert_eq!(rule.rename["to"], "who");
        assert_eq!(rule.probe.as_ref().map(|probe| probe.tool.as_str()), Some("bank.paid"));
    }

    #[test]
    fn what_hosts_may_have_beside_tools_is_closed_until_it_is_named() {
        let servers = good(
            "[mcp.servers.a]\ncommand = 'a'\n[mcp.servers.b]\ncommand = 'b'\nresources = ['n://one', 'n://all/*']\n\
             prompts = ['sum']\nprompt_names = { sum = 'short' }\ncompletions = true\n[mcp.servers.c]\ncommand = 'c'\nresources = []\n",
        );
        let [a, b, c] = &servers[..] else { panic!("three servers") };
        assert_eq!(a.offers, OfferRules::default());
        let rules: Vec<String> = b.offers.uris().map(ToString::to_string).collect();
        assert_eq!(rules, ["n://one", "n://all/*"]);
        assert!(b.offers.gets("sum") && !b.offers.gets("other") && b.offers.completions);
        assert_eq!(b.offers.prompt_name(&b.name, "sum"), "short");
        assert_eq!(c.offers.prompt_name(&c.name, "sum"), "c.sum");
        assert_eq!(c.offers.resources, Some(Vec::new()));
    }

    #[test]
    fn what_does_not_fit_is_named_by_its_place() {
        let server = |rest: &str| format!("[mcp.servers.bank]\ncommand = 'b'\n{rest}\n");
        let tool = |rest: &str| server(&format!("[mcp.servers.bank.tools.pay]\n{rest}"));
        bad("[mcp.servers.Bank]\ncommand = 'b'\n", "line 1, column 14: a server's name is");
        bad("[mcp.servers.bank]\nargs = []\n", "line 1, column 14: a server has either `command`");
        bad(
            &server("url = 'https://a.example/'"),
            "line 1, column 14: a server has either `command`",
        );
        bad("[mcp.servers.bank]\ncommand = ''\n", "line 2, column 11: `command` names a program");
        bad(&server("args = [\"a\\u0000\"]"), "line 3, column 9: an argument has no zero byte");
        bad(&server("env = { 'A=B' = 'x' }"), "line 3, column 9: not the name of a variable");
        bad(&server("pin_files = ['']"), "line 3, column 14: `pin_files` names files");
        bad(&server("pin_program = 1"), "line 3, column 15: invalid type");
        bad(&server("inherit_env = ['']"), "line 3, column 16: not the name of a variable");
        bad(&server("resources = ['a://b', '*']"), "line 3, column 23: a resource is named by its");
        bad(&server("prompts = 'sum'"), "line 3, column 11: invalid type");
        bad(
            &server("prompt_names = { sum = 's' }"),
            "line 3, column 18: `prompt_names` names what",
        );
        bad(&server("timeout_ms = 1"), "line 3, column 14: `timeout_ms` is a whole number");
        bad(&server("private = false"), "line 3, column 11: only a server with a `url` has this");
        bad(&server("credential = 'k'"), "line 3, column 14: only a server with a `url` has this");
        bad(&tool("source = true"), "line 3, column 1: a rule names what a call can change");
        bad(&tool("effect = 'safe'"), "line 4, column 10: a rule names what a call can change");
        bad(&tool("effect = 'read_only'\nallow = true"), "line 5, column 1: unknown field `allow`");
        bad(
            &tool("effect = 'read_only'\nfix = { a = 2026-01-31 }"),
            "line 5, column 7: `fix` holds",
        );
    }

    #[test]
    fn a_server_behind_a_url() {
        let text = "[mcp.servers.bank]\nurl = 'https://bank.corp:8443/s/path-word/mcp'\ncredential = 'k'\n\
             credential_header = 'x-api-key'\nprivate = true\nconnect_timeout_ms = 5000\n\
             [mcp.servers.near]\nurl = 'http://localhost:8080/mcp'\n[credentials.k]\nfile = 'k.key'\n";
        let servers = good(text);
        let [bank, near] = &servers[..] else { panic!("two servers") };
        let Way::Url(remote) = &bank.way else { panic!("a url") };
        assert_eq!(remote.server.target.origin(), "https://bank.corp:8443");
        assert_eq!(remote.server.reach, Reach::Private);
        let file = CredentialSource::Secret(SecretSource::File(PathBuf::from("/etc/base/k.key")));
        assert_eq!(remote.credential, Some(("k".to_owned(), file)));
        assert_eq!(remote.server.credential.as_ref().map(|named| named.name()), Some("k"));
        assert_eq!(bank.connect, Duration::from_secs(5));
        let place = bank.place();
        assert!(place.starts_with("reached at `https://bank.corp:8443`, settings "), "{place}");
        let others = [("path-word", "word"), ("x-api-key", "x-key"), ("private = true", "")];
        for (one, other) in others {
            assert_ne!(good(&text.replace(one, other))[0].place(), place, "{one}");
        }
        let Way::Url(remote) = &near.way else { panic!("a url") };
        assert_eq!((remote.server.reach, &remote.credential), (Reach::Public, &None));
    }

    #[test]
    fn a_url_that_does_not_fit_is_named_by_its_place() {
        let server = |url: &str, rest: &str| format!("[mcp.servers.bank]\nurl = '{url}'\n{rest}\n");
        let bad_url = |url: &str, sentence: &str| {
            bad(&server(url, ""), &format!("line 2, column 7: {sentence}"));
        };
        bad_url("bank", "the URL does not begin with");
        bad_url("http://bank.example/mcp", "plain http goes to this machine alone");
        bad_url("https://ann:word@bank.example/", "the URL carries a user or a password");
        bad_url("https://10.0.0.1/mcp", "a rule names");
        bad_url("https://169.254.169.254/mcp", "a rule names");
        let fine = |rest: &str| server("https://bank.example/", rest);
        bad(&fine("args = []"), "line 3, column 8: only a server with a `command` has this");
        bad(&fine("env = { A = 'x' }"), "line 3, column 7: only a server with a `command` has");
        bad(&fine("pin_program = true"), "line 3, column 15: only a server with a `command` has");
        bad(&fine("pin_files = []"), "line 3, column 13: only a server with a `command` has");
        bad(
            &fine("credential = 'k'"),
            "line 3, column 14: `credential` names a table [credentials",
        );
        bad(&fine("credential_user = 'u'"), "line 3, column 19: this server names no `credential`");
        bad(&fine("headers = { a = 'b' }"), "line 3, column 1: unknown field `headers`");
    }

    #[test]
    fn another_argument_makes_another_place() {
        let place =
            |rest: &str| good(&format!("[mcp.servers.a]\ncommand = 'b'\n{rest}\n"))[0].place();
        assert_eq!(place(""), place("timeout_ms = 1000"));
        assert!(place("").starts_with("run as `b`, settings "));
        let others = ["args = ['x']", "inherit_env = ['X']", "env = { X = '1' }"].map(place);
        assert!(others.iter().all(|other| *other != place("")));
        assert_eq!(place("env = { X = '1' }"), place("env = { X = '2' }"), "no value is in it");
    }
}
