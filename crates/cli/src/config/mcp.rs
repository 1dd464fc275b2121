//! `[mcp.servers.NAME]`: the servers whose tools a run has, and the rules for each tool.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portcullis_canon::{Digest, Kind, Object, Value};
use portcullis_domain::recovery::Probe;
use portcullis_domain::tool::EffectClass;
use portcullis_mcp::{ServerName, ToolRule};
use serde::Deserialize;
use toml::Spanned;

use super::Misfit;
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
    /// Its program: a path, or a name that is looked for.
    pub(crate) command: PathBuf,
    /// What the program is given.
    pub(crate) args: Vec<String>,
    /// Variables with their values.
    pub(crate) env: BTreeMap<String, String>,
    /// Variables that it gets as this process has them.
    pub(crate) inherit_env: Vec<String>,
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
}

impl ServerChoice {
    /// What the server is, for a person and for the digest that they sign: another program, argument or variable makes
    /// another one. Values of variables may be secrets and are not in it.
    pub(crate) fn place(&self) -> String {
        let texts = |texts: &mut dyn Iterator<Item = &String>| -> Value {
            texts.map(|text| Value::from(text.as_str())).collect::<Vec<_>>().into()
        };
        let mut object = Object::new();
        object.insert("command", self.command.to_string_lossy().as_ref());
        object.insert("args", texts(&mut self.args.iter()));
        object.insert("env", texts(&mut self.env.keys()));
        object.insert("inherit_env", texts(&mut self.inherit_env.iter()));
        let digest = Digest::of_value(Kind::Config, &Value::Object(object)).hex();
        let digits: String = digest.chars().take(SETTINGS_DIGITS).collect();
        format!("run as `{}`, settings {digits}", self.command.display())
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawMcp {
    servers: BTreeMap<Spanned<String>, RawServer>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawServer {
    command: Spanned<String>,
    #[serde(default)]
    args: Vec<Spanned<String>>,
    #[serde(default)]
    env: BTreeMap<Spanned<String>, Spanned<String>>,
    #[serde(default)]
    inherit_env: Vec<Spanned<String>>,
    manifest: Option<PathBuf>,
    #[serde(default)]
    connect_timeout_ms: Given,
    #[serde(default)]
    timeout_ms: Given,
    #[serde(default)]
    max_result_bytes: Given,
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
pub(super) fn read(raw: RawMcp, base: &Path) -> Result<Vec<ServerChoice>, Misfit> {
    raw.servers.into_iter().map(|(name, raw)| raw.read(&name, base)).collect()
}

impl RawServer {
    fn read(self, name: &Spanned<String>, base: &Path) -> Result<ServerChoice, Misfit> {
        let server = ServerName::new(name.get_ref())
            .map_err(|error| Misfit::at(&name.span(), error.to_string()))?;
        let program = text(&self.command, "a program")?;
        if program.is_empty() {
            return Err(Misfit::at(&self.command.span(), "`command` names a program"));
        }
        // A name without a slash is looked for; a path starts at the configuration.
        let command = if program.contains('/') { base.join(program) } else { program.into() };
        let usual = || PathBuf::from(format!("{server}.manifest.json"));
        let mut env = BTreeMap::new();
        for (name, value) in &self.env {
            env.insert(variable(name)?.to_owned(), text(value, "a value")?.to_owned());
        }
        let inherit = self.inherit_env.iter().map(|name| variable(name).map(str::to_owned));
        let args = self.args.iter().map(|arg| text(arg, "an argument").map(str::to_owned));
        let rules = self.tools.into_iter().map(|(tool, raw)| Ok((tool, rule(raw)?)));
        let millis = |number: Option<u64>| number.map(Duration::from_millis);
        Ok(ServerChoice {
            command,
            args: args.collect::<Result<_, _>>()?,
            env,
            inherit_env: inherit.collect::<Result<_, _>>()?,
            manifest: base.join(self.manifest.unwrap_or_else(usual)),
            connect: millis(CONNECT_MS.read(&self.connect_timeout_ms)?).unwrap_or(CONNECT),
            call: millis(CALL_MS.read(&self.timeout_ms)?).unwrap_or(CALL),
            max_result_bytes: RESULT_BYTES.read(&self.max_result_bytes)?.unwrap_or(RESULT),
            rules: rules.collect::<Result<_, _>>()?,
            name: server,
        })
    }
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

    #[test]
    fn a_server_needs_a_program_and_the_rest_is_closed() {
        assert_eq!(good(""), []);
        let [server] = &good(
            "[mcp.servers.bank]\ncommand = 'bank-server'\n[mcp.servers.bank.tools.pay]\neffect = 'remote_mutation'\n",
        )[..] else {
            panic!("one server")
        };
        assert_eq!(server.name.as_str(), "bank");
        assert_eq!(server.command, Path::new("bank-server"));
        assert_eq!(server.manifest, Path::new("/etc/base/bank.manifest.json"));
        assert_eq!((server.connect, server.call, server.max_result_bytes), (CONNECT, CALL, RESULT));
        assert_eq!(server.rules.get("pay"), Some(&ToolRule::new(EffectClass::RemoteMutation)));
        assert!(server.rules["pay"].source && server.rules["pay"].sink);
    }

    #[test]
    fn everything_that_can_be_said() {
        let servers = good(
            "[mcp.servers.bank]\ncommand = 'bin/bank'\nargs = ['--stdio', '']\nenv = { MODE = 'x' }\n\
             inherit_env = ['LANG']\nmanifest = '/pins/bank.json'\nconnect_timeout_ms = 5000\ntimeout_ms = 2000\n\
             max_result_bytes = 1024\n[mcp.servers.bank.tools.'send money']\neffect = 'destructive'\nsource = false\n\
             sink = false\nauthority = ['/who']\ntimeout_ms = 100\nmax_result_bytes = 256\ndeny = ['cc']\n\
             fix = { sum = 5, note = 'x', deep = { a = [1.5, true] } }\nrename = { to = 'who' }\n\
             description = 'Pays.'\nname = 'pay'\nterminal = true\nidempotency_key = 'key'\naccept_hints = true\n\
             probe = { tool = 'bank.paid', arguments = { id = '/who' } }\n\
             [mcp.servers.a]\ncommand = 'a'\n",
        );
        let [a, bank] = &servers[..] else { panic!("two servers") };
        assert_eq!((a.name.as_str(), bank.name.as_str()), ("a", "bank"));
        assert_eq!(bank.command, Path::new("/etc/base/bin/bank"));
        assert_eq!(bank.args, ["--stdio", ""]);
        assert_eq!(bank.env["MODE"], "x");
        assert_eq!(bank.inherit_env, ["LANG"]);
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
    fn what_does_not_fit_is_named_by_its_place() {
        let server = |rest: &str| format!("[mcp.servers.bank]\ncommand = 'b'\n{rest}\n");
        let tool = |rest: &str| server(&format!("[mcp.servers.bank.tools.pay]\n{rest}"));
        bad("[mcp.servers.Bank]\ncommand = 'b'\n", "line 1, column 14: a server's name is");
        bad("[mcp.servers.bank]\nargs = []\n", "line 1, column 1: missing field `command`");
        bad("[mcp.servers.bank]\ncommand = ''\n", "line 2, column 11: `command` names a program");
        bad(&server("args = [\"a\\u0000\"]"), "line 3, column 9: an argument has no zero byte");
        bad(&server("env = { 'A=B' = 'x' }"), "line 3, column 9: not the name of a variable");
        bad(&server("inherit_env = ['']"), "line 3, column 16: not the name of a variable");
        bad(&server("timeout_ms = 1"), "line 3, column 14: `timeout_ms` is a whole number");
        bad(&server("url = 'x'"), "line 3, column 1: unknown field `url`");
        bad(&tool("source = true"), "line 3, column 1: a rule names what a call can change");
        bad(&tool("effect = 'safe'"), "line 4, column 10: a rule names what a call can change");
        bad(&tool("effect = 'read_only'\nallow = true"), "line 5, column 1: unknown field `allow`");
        bad(
            &tool("effect = 'read_only'\nfix = { a = 2026-01-31 }"),
            "line 5, column 7: `fix` holds",
        );
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
