//! A host's TOML, as text: tables are cut out and one is put behind the rest, and all other bytes stay.

use std::collections::BTreeSet;

use portcullis_canon::{Limits, Object, Value, parse};

use super::edit::Door;
use super::entry::GATE;
use super::jsonc::Unfit;

/// The servers that stand beneath `key`, as a host with JSON would have them.
pub(super) fn servers(text: &str, key: &str) -> Result<Object, Unfit> {
    match table(text)?.get(key) {
        None => Ok(Object::new()),
        Some(toml::Value::Table(servers)) => {
            servers.iter().map(|(name, entry)| Ok((name.clone(), value(entry)?))).collect()
        }
        Some(_) => Err(format!("its `{key}` is not a table")),
    }
}

fn value(entry: &toml::Value) -> Result<Value, Unfit> {
    Ok(match entry {
        toml::Value::String(text) => Value::from(text.as_str()),
        toml::Value::Boolean(said) => Value::from(*said),
        toml::Value::Array(list) => {
            Value::from(list.iter().map(value).collect::<Result<Vec<_>, _>>()?)
        }
        toml::Value::Table(table) => {
            let members = table.iter().map(|(key, entry)| Ok((key.clone(), value(entry)?)));
            Value::Object(members.collect::<Result<Object, Unfit>>()?)
        }
        // Only whether it is there matters: an entry with such a value stays.
        toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Datetime(_) => {
            parse(b"0", &Limits::BARE).map_err(|_| "a number cannot be read".to_owned())?
        }
    })
}

fn table(text: &str) -> Result<toml::Table, Unfit> {
    text.parse().map_err(|error: toml::de::Error| format!("it is not TOML: {}", error.message()))
}

/// The text with the gate in place of these servers.
pub(super) fn exchange(
    text: &str,
    key: &str,
    moved: &BTreeSet<String>,
    door: &Door,
) -> Result<String, Unfit> {
    let ours = toml::Table::from_iter([
        ("command".to_owned(), toml::Value::from(door.command.as_str())),
        ("args".to_owned(), toml::Value::from(door.args.clone())),
    ]);
    let before = table(text)?;
    let present = before.get(key).and_then(|servers| servers.get(GATE));
    let kept = present == Some(&toml::Value::Table(ours.clone()));
    let mut gone = moved.clone();
    if !kept {
        gone.insert(GATE.to_owned());
    }
    let mut changed = cut(text, key, &gone)?;
    if !kept {
        if !changed.is_empty() && !changed.ends_with('\n') {
            changed.push('\n');
        }
        let blank = if changed.is_empty() { "" } else { "\n" };
        changed.push_str(&format!("{blank}[{key}.{GATE}]\n{ours}"));
    }
    let mut expected = before;
    let servers = expected.entry(key).or_insert_with(|| toml::Value::Table(toml::Table::new()));
    let servers = servers.as_table_mut().ok_or_else(|| format!("its `{key}` is not a table"))?;
    for name in &gone {
        servers.remove(name);
    }
    servers.insert(GATE.to_owned(), toml::Value::Table(ours));
    if table(&changed)? == expected {
        return Ok(changed);
    }
    Err("it cannot be edited without changing something else; edit it by hand".to_owned())
}

/// The text without the tables of these servers, and of what stands beneath them.
fn cut(text: &str, key: &str, gone: &BTreeSet<String>) -> Result<String, Unfit> {
    let (mut kept, mut held, mut within) = (String::new(), String::new(), false);
    for line in text.split_inclusive('\n') {
        if let Some(path) = header(line) {
            kept.push_str(&comments(&mut held));
            let server = path.get(1).filter(|_| path.first().is_some_and(|first| first == key));
            within = server.is_some_and(|server| gone.contains(server));
            if !within {
                kept.push_str(line);
            } else if line.contains('#') {
                return Err(lost(key));
            }
            continue;
        }
        let plain = line.trim();
        if !within {
            kept.push_str(line);
        } else if plain.is_empty() || plain.starts_with('#') {
            held.push_str(line);
        } else if held.contains('#') || line.contains('#') {
            return Err(lost(key));
        } else {
            held.clear();
        }
    }
    kept.push_str(&comments(&mut held));
    Ok(kept)
}

/// What stood between a table that goes and the next header: it belongs to that one, if it says anything.
fn comments(held: &mut String) -> String {
    let held = std::mem::take(held);
    if held.contains('#') { held } else { String::new() }
}

fn lost(key: &str) -> Unfit {
    format!(
        "there is a comment in a table of `{key}`, which would be lost; move it out, or edit by hand"
    )
}

/// The path of a table's header; nothing for another line.
fn header(line: &str) -> Option<Vec<String>> {
    if !line.trim_start().starts_with('[') {
        return None;
    }
    let mut at = toml::Value::Table(line.parse().ok()?);
    let mut path = Vec::new();
    loop {
        at = match at {
            toml::Value::Table(table) => match table.into_iter().next() {
                Some((name, next)) => {
                    path.push(name);
                    next
                }
                None => return Some(path),
            },
            toml::Value::Array(mut list) => list.pop()?,
            _ => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door() -> Door {
        Door { command: "/bin/portcullis".to_owned(), args: vec!["proxy".to_owned()], typed: false }
    }

    const TEXT: &str = "# mine\nmodel = \"m\" # which\n\n[mcp_servers.mail]\ncommand = \"npx\"\nargs = [\"-y\"]\n\n[mcp_servers.mail.env]\nKEY = \"v\"\n\n# about the next\n[profiles.a]\nx = 1\n[[hooks.PreToolUse]]\ny = 2\n";

    #[test]
    fn tables_go_and_everything_else_stays() {
        let moved = BTreeSet::from(["mail".to_owned()]);
        let changed = exchange(TEXT, "mcp_servers", &moved, &door()).unwrap();
        let expected = "# mine\nmodel = \"m\" # which\n\n\n# about the next\n[profiles.a]\nx = 1\n[[hooks.PreToolUse]]\ny = 2\n\n[mcp_servers.portcullis]\nargs = [\"proxy\"]\ncommand = \"/bin/portcullis\"\n";
        assert_eq!(changed, expected);
        let again = exchange(&changed, "mcp_servers", &BTreeSet::new(), &door()).unwrap();
        assert_eq!(again, changed);
        assert!(
            exchange("", "mcp_servers", &BTreeSet::new(), &door()).unwrap().starts_with("[mcp")
        );
    }

    #[test]
    fn what_cannot_be_cut_out_without_loss_is_refused() {
        let moved = BTreeSet::from(["mail".to_owned()]);
        for text in [
            "[mcp_servers.mail]\ncommand = \"npx\" # why\n",
            "[mcp_servers.mail]\n# why\ncommand = \"npx\"\n",
            "[mcp_servers.mail] # why\ncommand = \"npx\"\n",
            "mcp_servers.mail.command = \"npx\"\n",
            "mcp_servers = { mail = { command = \"npx\" } }\n",
            "[mcp_servers]\nmail = { command = \"npx\" }\n",
            "[mcp_servers.mail]\ncommand = '''\n[x]\n'''\n",
            "[mcp_servers.mail\n",
        ] {
            assert!(exchange(text, "mcp_servers", &moved, &door()).is_err(), "{text}");
        }
    }

    #[test]
    fn servers_are_read_as_another_host_has_them() {
        let servers = servers(TEXT, "mcp_servers").unwrap();
        let mail = servers.get("mail").unwrap().to_canonical_string();
        assert_eq!(mail, r#"{"args":["-y"],"command":"npx","env":{"KEY":"v"}}"#);
    }
}
