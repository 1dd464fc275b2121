//! One server of a host's configuration: what can be carried behind the gate as it is, and what stays where it is.

use std::collections::BTreeMap;

use portcullis_canon::{Object, Value};
use portcullis_mcp::ServerName;

/// The name that the gate has among a host's servers.
pub(super) const GATE: &str = "portcullis";

/// A server that is started as a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Local {
    pub(super) command: String,
    pub(super) args: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
}

/// Why a server stays with its host: one sentence's end.
pub(super) type Stays = String;

impl Local {
    /// Reads an entry. What is not understood whole is not carried at all, since something would be lost.
    pub(super) fn read(name: &str, entry: &Value) -> Result<Self, Stays> {
        ServerName::new(name).map_err(|error| error.to_string())?;
        let entry = entry.as_object().ok_or("it is not an object")?;
        if ["url", "httpUrl", "serverUrl"].iter().any(|key| entry.contains_key(key)) {
            return Err("it is a remote server, and only programs can be carried over".to_owned());
        }
        for (key, only) in [("type", "stdio"), ("source", "custom")] {
            if entry.get(key).is_some_and(|value| value.as_str() != Some(only)) {
                return Err(format!("its `{key}` is not \"{only}\""));
            }
        }
        let entry = unfold(entry)?;
        let known = ["type", "source", "command", "args", "env"];
        if let Some(other) = entry.keys().find(|key| !known.contains(key)) {
            return Err(format!("its `{other}` cannot be carried over"));
        }
        let local = Self {
            command: word(entry.get("command").ok_or("it names no command")?, "command")?,
            args: args(entry.get("args"))?,
            env: env(entry.get("env"))?,
        };
        if local.command.contains('/') && !local.command.starts_with('/') {
            return Err("its `command` is a path that starts where the host does".to_owned());
        }
        let words = local.args.iter().chain(local.env.values()).chain([&local.command]);
        if words.into_iter().any(|word| word.contains('$')) {
            return Err("it has a variable (`$`) that only the host fills".to_owned());
        }
        Ok(local)
    }

    /// As it stands in the gate's configuration. `shown` says the values of variables too.
    pub(super) fn toml(&self, name: &str, shown: bool) -> String {
        let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
        let args: Vec<String> = self.args.iter().map(|arg| quoted(arg)).collect();
        let mut text = format!("[mcp.servers.{name}]\ncommand = {}\n", quoted(&self.command));
        text.push_str(&format!("args = [{}]\n", args.join(", ")));
        if !self.env.is_empty() {
            let value = |value: &str| quoted(if shown { value } else { "…" });
            let env =
                self.env.iter().map(|(key, said)| format!("{} = {}", quoted(key), value(said)));
            text.push_str(&format!("env = {{ {} }}\n", env.collect::<Vec<_>>().join(", ")));
        }
        text
    }
}

/// The older form, in which the command is an object of its own.
fn unfold(entry: &Object) -> Result<Object, Stays> {
    let Some(Value::Object(command)) = entry.get("command") else { return Ok(entry.clone()) };
    let mut flat = entry.clone();
    for (key, value) in command.iter() {
        let key = if key == "path" { "command" } else { key };
        if key != "command" && flat.contains_key(key) {
            return Err(format!("its `{key}` stands in it twice"));
        }
        flat.insert(key, value.clone());
    }
    if command.contains_key("path") { Ok(flat) } else { Err("it names no command".to_owned()) }
}

fn word(value: &Value, what: &str) -> Result<String, Stays> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("its `{what}` is not text"))
}

fn args(value: Option<&Value>) -> Result<Vec<String>, Stays> {
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(args)) => args.iter().map(|arg| word(arg, "args")).collect(),
        Some(_) => Err("its `args` is not a list".to_owned()),
    }
}

fn env(value: Option<&Value>) -> Result<BTreeMap<String, String>, Stays> {
    match value {
        None | Some(Value::Null) => Ok(BTreeMap::new()),
        Some(Value::Object(env)) => {
            env.iter().map(|(key, value)| Ok((key.to_owned(), word(value, "env")?))).collect()
        }
        Some(_) => Err("its `env` is not an object".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use portcullis_canon::{Limits, parse};

    use super::*;

    fn read(entry: &str) -> Result<Local, Stays> {
        Local::read("mail", &parse(entry.as_bytes(), &Limits::BARE).unwrap())
    }

    #[test]
    fn what_is_carried_is_carried_whole() {
        let expected = Local {
            command: "npx".to_owned(),
            args: vec!["-y".to_owned(), "a \"b\"".to_owned()],
            env: [("KEY".to_owned(), "v".to_owned())].into(),
        };
        for entry in [
            r#"{"command":"npx","args":["-y","a \"b\""],"env":{"KEY":"v"}}"#,
            r#"{"type":"stdio","command":"npx","args":["-y","a \"b\""],"env":{"KEY":"v"}}"#,
            r#"{"source":"custom","command":{"path":"npx","args":["-y","a \"b\""],"env":{"KEY":"v"}}}"#,
        ] {
            assert_eq!(read(entry).unwrap(), expected);
        }
        assert_eq!(read(r#"{"command":"/bin/mail"}"#).unwrap().command, "/bin/mail");
        let table: toml::Table = expected.toml("mail", true).parse().unwrap();
        let server = table["mcp"]["servers"]["mail"].clone();
        assert_eq!(server["command"].as_str(), Some("npx"));
        assert_eq!(server["args"].as_array().unwrap()[1].as_str(), Some("a \"b\""));
        assert_eq!(server["env"]["KEY"].as_str(), Some("v"));
        assert!(!expected.toml("mail", false).contains("\"v\""), "a secret is not shown");
    }

    #[test]
    fn what_would_lose_something_stays() {
        for (entry, why) in [
            (r#"{"url":"https://mail.example"}"#, "remote server"),
            (r#"{"command":"npx","cwd":"/x"}"#, "`cwd` cannot"),
            (r#"{"command":"npx","disabled":true}"#, "`disabled` cannot"),
            (r#"{"command":"npx","args":["${input:key}"]}"#, "variable"),
            (r#"{"command":"npx","env":{"K":"$KEY"}}"#, "variable"),
            (r#"{"type":"http","command":"npx"}"#, "`type` is not"),
            (r#"{"source":"extension","command":"npx"}"#, "`source` is not"),
            (r#"{"args":[]}"#, "names no command"),
            (r#"{"command":"./mail"}"#, "starts where the host does"),
            (r#"{"command":"bin/mail"}"#, "starts where the host does"),
            (r#"{"command":{"args":[]}}"#, "names no command"),
            (r#"{"command":"npx","args":[1]}"#, "`args` is not text"),
            ("7", "not an object"),
        ] {
            let stays = read(entry).unwrap_err();
            assert!(stays.contains(why), "{entry}: {stays}");
        }
        let entry = parse(br#"{"command":"npx"}"#, &Limits::BARE).unwrap();
        let long = "m".repeat(33);
        for name in ["", "a b", "GitHub", "_mail", "-mail", "ma.il", &long] {
            let stays = Local::read(name, &entry).unwrap_err();
            assert!(stays.contains("1 to 32 lower-case letters"), "{name}: {stays}");
        }
        assert!(Local::read(&"m".repeat(32), &entry).is_ok(), "control");
    }
}
