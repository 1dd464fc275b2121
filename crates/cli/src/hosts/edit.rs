//! Exchanging the servers of a host's text for the gate, and proving that nothing else changed.

use std::collections::BTreeSet;
use std::ops::Range;

use portcullis_canon::{Object, Value};

use super::entry::GATE;
use super::jsonc::{self, Unfit};

/// The command line that stands for the gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Door {
    pub(super) command: String,
    pub(super) args: Vec<String>,
    /// Whether the host wants the kind of server said.
    pub(super) typed: bool,
}

impl Door {
    /// As an entry of a host.
    pub(super) fn entry(&self) -> Object {
        let mut entry = Object::new();
        if self.typed {
            entry.insert("type", "stdio");
        }
        entry.insert("command", self.command.as_str());
        entry.insert(
            "args",
            self.args.iter().map(|arg| Value::from(arg.as_str())).collect::<Vec<_>>(),
        );
        entry
    }
}

/// The servers that stand beneath `key`.
pub(super) fn servers(text: &str, key: &str) -> Result<Object, Unfit> {
    match jsonc::read(text)?.remove(key) {
        None => Ok(Object::new()),
        Some(Value::Object(servers)) => Ok(servers),
        Some(_) => Err(format!("its `{key}` is not an object")),
    }
}

/// The text with the gate in place of these servers. All other bytes stay.
pub(super) fn exchange(
    text: &str,
    key: &str,
    moved: &BTreeSet<String>,
    door: &Door,
) -> Result<String, Unfit> {
    let outline = jsonc::outline(text)?;
    let at = outline.members.iter().find(|(name, _)| name == key).map(|(_, at)| at.clone());
    let changed = match at {
        Some(at) => exchange_member(text, key, &at, moved, door)?,
        None => insert(text, key, outline.inside, outline.members.is_empty(), door)?,
    };
    prove(text, &changed, key, moved, door)?;
    Ok(changed)
}

fn exchange_member(
    text: &str,
    key: &str,
    at: &Range<usize>,
    moved: &BTreeSet<String>,
    door: &Door,
) -> Result<String, Unfit> {
    let old = text.get(at.clone()).unwrap_or("");
    if jsonc::has_comments(old) {
        return Err(format!(
            "there are comments in its `{key}`, which would be lost; move them out of it, or edit it by hand"
        ));
    }
    let mut members = vec![format!("\"{GATE}\": {}", pretty(door))];
    for (name, at) in jsonc::outline(old)?.members {
        if name != GATE && !moved.contains(&name) {
            let value = old.get(at).unwrap_or("");
            members.push(format!("{}: {value}", Value::from(name).to_canonical_string()));
        }
    }
    let new = format!("{{\n    {}\n  }}", members.join(",\n    "));
    let (before, after) = (text.get(..at.start), text.get(at.end..));
    Ok(format!("{}{new}{}", before.unwrap_or(""), after.unwrap_or("")))
}

fn insert(text: &str, key: &str, inside: usize, alone: bool, door: &Door) -> Result<String, Unfit> {
    let (before, after) = (text.get(..inside), text.get(inside..));
    let (Some(before), Some(after)) = (before, after) else { return Err("it moved".to_owned()) };
    let comma = if alone { "\n" } else { "," };
    let key = Value::from(key).to_canonical_string();
    Ok(format!("{before}\n  {key}: {{\n    \"{GATE}\": {}\n  }}{comma}{after}", pretty(door)))
}

fn pretty(door: &Door) -> String {
    let member = |(key, value): (&str, &Value)| {
        format!("{}: {}", Value::from(key).to_canonical_string(), value.to_canonical_string())
    };
    let members: Vec<String> = door.entry().iter().map(member).collect();
    format!("{{ {} }}", members.join(", "))
}

/// The text of a file that is not there yet.
pub(super) fn fresh(key: &str, door: &Door) -> Result<String, Unfit> {
    exchange("{}\n", key, &BTreeSet::new(), door)
}

/// Everything but the servers is as it was, and of the servers only those that moved are gone.
fn prove(
    before: &str,
    after: &str,
    key: &str,
    moved: &BTreeSet<String>,
    door: &Door,
) -> Result<(), Unfit> {
    let mut expected = jsonc::read(before)?;
    let mut servers = servers(before, key)?;
    for name in moved {
        servers.remove(name);
    }
    servers.insert(GATE, door.entry());
    expected.insert(key, servers);
    if jsonc::read(after)? == expected {
        return Ok(());
    }
    Err("it cannot be edited without changing something else; edit it by hand".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door() -> Door {
        Door {
            command: "/bin/portcullis".to_owned(),
            args: vec!["proxy".to_owned(), "-c".to_owned(), "/p.toml".to_owned()],
            typed: false,
        }
    }

    const OURS: &str = r#"{ "args": ["proxy","-c","/p.toml"], "command": "/bin/portcullis" }"#;

    #[test]
    fn only_the_member_changes_and_comments_around_it_stay() {
        let text = "// mine\n{\n  \"a\": 1.50, // kept\n  \"mcpServers\": {\"mail\": {\"command\": \"m\"}, \"far\":   {\"url\": \"u\"}},\n  /* z */ \"b\": [1,],\n}\n";
        let moved = BTreeSet::from(["mail".to_owned()]);
        let changed = exchange(text, "mcpServers", &moved, &door()).unwrap();
        let expected = format!(
            "// mine\n{{\n  \"a\": 1.50, // kept\n  \"mcpServers\": {{\n    \"portcullis\": {OURS},\n    \"far\": {{\"url\": \"u\"}}\n  }},\n  /* z */ \"b\": [1,],\n}}\n"
        );
        assert_eq!(changed, expected);
        assert_eq!(exchange(&changed, "mcpServers", &BTreeSet::new(), &door()).unwrap(), changed);
    }

    #[test]
    fn a_text_without_servers_gets_the_gate() {
        assert_eq!(
            fresh("servers", &door()).unwrap(),
            format!("{{\n  \"servers\": {{\n    \"portcullis\": {OURS}\n  }}\n}}\n")
        );
        let text = "{ // a\n  \"x\": 1\n}";
        let changed = exchange(text, "servers", &BTreeSet::new(), &door()).unwrap();
        assert!(changed.contains("// a\n  \"x\": 1\n}") && changed.contains("portcullis"));
    }

    #[test]
    fn comments_among_the_servers_and_odd_texts_are_refused() {
        let none = BTreeSet::new();
        for text in [
            "{\"mcpServers\": {\n// which\n\"mail\": {\"command\": \"m\"}}}",
            "{\"mcpServers\": []}",
            "{\"mcpServers\": {}, \"mcpServers\": {}}",
            "{\"mcpServers\": {\"a\": {}, \"a\": {}}}",
            "{\"mcpServers\": {}",
            "{'mcpServers': {}}",
            "[]",
        ] {
            assert!(exchange(text, "mcpServers", &none, &door()).is_err(), "{text}");
        }
    }
}
