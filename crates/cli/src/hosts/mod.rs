//! Hosts of MCP servers: where each keeps its servers, and putting the gate before them.
//!
//! What stands in a host's file is moved as a whole or not at all, every other byte of the file stays, and a copy of before
//! is kept. The forms follow the public documents that each host's entry below names.

mod edit;
mod entry;
mod files;
mod jsonc;
mod toml_text;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use portcullis_canon::Object;

use crate::config;
use crate::failure::{Code, Failure};
use edit::Door;
use entry::{GATE, Local};
use files::{Own, Text};
use jsonc::Unfit;

/// The hosts whose files are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Host {
    /// Claude Desktop
    ClaudeDesktop,
    /// Claude Code
    ClaudeCode,
    /// Cursor
    Cursor,
    /// Windsurf
    Windsurf,
    /// Gemini CLI
    GeminiCli,
    /// Visual Studio Code
    Vscode,
    /// Codex
    Codex,
    /// Zed
    Zed,
}

/// How a host keeps its servers.
struct Form {
    /// Its file beneath the home folder.
    file: &'static str,
    /// The member that holds them.
    key: &'static str,
    /// The file is TOML, else JSON.
    toml: bool,
    /// An entry says what kind of server it is.
    typed: bool,
}

impl Host {
    fn form(self) -> Form {
        let json = |file, key| Form { file, key, toml: false, typed: false };
        match self {
            // "Connect to local MCP servers", modelcontextprotocol.io; the place is that of Linux builds.
            Self::ClaudeDesktop => json(".config/Claude/claude_desktop_config.json", "mcpServers"),
            // "Connect Claude Code to tools via MCP", scopes of an installation: the user's.
            Self::ClaudeCode => Form { typed: true, ..json(".claude.json", "mcpServers") },
            // "Model Context Protocol", cursor.com/docs: the global file.
            Self::Cursor => json(".cursor/mcp.json", "mcpServers"),
            // "Cascade MCP integration", docs.windsurf.com.
            Self::Windsurf => json(".codeium/windsurf/mcp_config.json", "mcpServers"),
            // "MCP servers with the Gemini CLI", geminicli.com: the user's settings.
            Self::GeminiCli => json(".gemini/settings.json", "mcpServers"),
            // "MCP configuration reference", code.visualstudio.com: the user's profile.
            Self::Vscode => Form { typed: true, ..json(".config/Code/User/mcp.json", "servers") },
            // "Model Context Protocol", developers.openai.com/codex.
            Self::Codex => Form { toml: true, ..json(".codex/config.toml", "mcp_servers") },
            // "Model Context Protocol in Zed", zed.dev/docs.
            Self::Zed => json(".config/zed/settings.json", "context_servers"),
        }
    }

    /// Its file, where nobody names another.
    pub(crate) fn file(self, home: &Path) -> PathBuf {
        home.join(self.form().file)
    }

    fn servers(self, text: &str) -> Result<Object, Unfit> {
        let form = self.form();
        match form.toml {
            true => toml_text::servers(text, form.key),
            false => edit::servers(text, form.key),
        }
    }

    fn exchange(
        self,
        text: Option<&str>,
        moved: &BTreeSet<String>,
        door: &Door,
    ) -> Result<String, Unfit> {
        let form = self.form();
        match (form.toml, text) {
            (true, text) => toml_text::exchange(text.unwrap_or(""), form.key, moved, door),
            (false, Some(text)) if !text.trim().is_empty() => {
                edit::exchange(text, form.key, moved, door)
            }
            (false, _) => edit::fresh(form.key, door),
        }
    }
}

/// What is to be done, worked out before anything is written.
pub(crate) struct Plan {
    /// The host's file.
    pub(crate) file: PathBuf,
    /// The text that it is to have; nothing when it has it.
    pub(crate) text: Option<String>,
    /// The gate, as the host names it.
    pub(crate) entry: Object,
    /// Servers that go behind the gate.
    pub(crate) moved: Vec<String>,
    /// Servers that stay with the host, and why.
    pub(crate) stays: Vec<(String, String)>,
    /// What becomes of the gate's configuration; nothing when it has all of it.
    rules: Option<Added>,
    /// What is added to it, without the values of variables.
    pub(crate) shown: String,
}

/// The gate's configuration as it was read, and the text that it is to have.
struct Added {
    before: Option<Text>,
    text: String,
}

/// A host's text after the exchange.
struct Exchanged {
    text: String,
    locals: BTreeMap<String, Local>,
    stays: Vec<(String, String)>,
}

/// The files of an installation.
pub(crate) struct Installation {
    host: Host,
    door: Door,
    file: Own,
    /// The gate's own configuration.
    rules: PathBuf,
}

impl Installation {
    /// Opens the folder of the host's file. `gate` is this program and `rules` its configuration, both absolute.
    pub(crate) fn of(host: Host, file: &Path, gate: &Path, rules: &Path) -> Result<Self, Failure> {
        let word = |path: &Path| {
            path.to_str().map(str::to_owned).ok_or_else(|| {
                Failure::new(Code::HostFile, format!("`{}` is not UTF-8 text", path.display()))
            })
        };
        let args = vec!["proxy".to_owned(), "-c".to_owned(), word(rules)?];
        let door = Door { command: word(gate)?, args, typed: host.form().typed };
        Ok(Self { host, door, file: Own::at(file)?, rules: rules.to_owned() })
    }

    /// Where the copy of before is kept.
    pub(crate) fn backup(&self) -> PathBuf {
        self.file.backup_path()
    }

    /// What is to be done.
    pub(crate) fn plan(&self) -> Result<Plan, Failure> {
        let before = self.file.read()?.map(|text| text.text);
        self.plan_for(before.as_deref())
    }

    fn plan_for(&self, before: Option<&str>) -> Result<Plan, Failure> {
        let Exchanged { text, locals, stays } = self.exchanged(before)?;
        let (rules, shown) = self.add(&locals)?;
        Ok(Plan {
            file: self.file.path().to_owned(),
            text: (before != Some(text.as_str())).then_some(text),
            entry: self.door.entry(),
            moved: locals.into_keys().collect(),
            stays,
            rules,
            shown,
        })
    }

    /// The host's text with the gate in it, and what became of each server.
    fn exchanged(&self, before: Option<&str>) -> Result<Exchanged, Failure> {
        let unfit = |why: Unfit| self.unfit(self.file.path(), &why);
        let servers = match before {
            Some(text) if !text.trim().is_empty() => self.host.servers(text).map_err(unfit)?,
            _ => Object::new(),
        };
        let (mut locals, mut stays) = (BTreeMap::new(), Vec::new());
        for (name, entry) in servers.iter().filter(|(name, _)| *name != GATE) {
            match Local::read(name, entry) {
                Ok(local) => drop(locals.insert(name.to_owned(), local)),
                Err(why) => stays.push((name.to_owned(), why)),
            }
        }
        self.is_ours(&servers)?;
        let moved: BTreeSet<String> = locals.keys().cloned().collect();
        let text = self.host.exchange(before, &moved, &self.door).map_err(unfit)?;
        Ok(Exchanged { text, locals, stays })
    }

    /// Another server of the gate's name is somebody else's.
    fn is_ours(&self, servers: &Object) -> Result<(), Failure> {
        let Some(entry) = servers.get(GATE) else { return Ok(()) };
        let proxy = entry.get("args").and_then(|args| args.as_array()?.first()?.as_str());
        if proxy == Some("proxy") {
            return Ok(());
        }
        Err(self.unfit(self.file.path(), &format!("a server `{GATE}` in it is not this gate")))
    }

    /// The gate's configuration with these servers, and what is added to it.
    fn add(&self, locals: &BTreeMap<String, Local>) -> Result<(Option<Added>, String), Failure> {
        let unfit = |why: &str| self.unfit(&self.rules, why);
        let there = !locals.is_empty() && self.rules.symlink_metadata().is_ok();
        let before = match there {
            true => Own::at(&self.rules)?.read()?,
            false => None,
        };
        let text = before.as_ref().map_or("", |before| before.text.as_str());
        let table: toml::Table =
            text.parse().map_err(|_| unfit("it is not TOML; mend it first"))?;
        let known = |name: &str| table.get("mcp")?.get("servers")?.get(name);
        let (mut added, mut shown) = (String::new(), String::new());
        for (name, local) in locals {
            let new = local.toml(name, true);
            match known(name) {
                None => {
                    added.push_str(&format!("\n{new}"));
                    shown.push_str(&format!("\n{}", local.toml(name, false)));
                }
                Some(there) if same(there, &new, name) => {}
                Some(_) => return Err(unfit(&format!("another server `{name}` is in it already"))),
            }
        }
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        let text = format!("{text}{end}{added}");
        if !locals.is_empty() {
            // What the gate cannot load would leave the host without any server.
            config::check(&text, &self.rules)
                .map_err(|why| unfit(&format!("with these servers it would not load: {why}")))?;
        }
        Ok(((!added.is_empty()).then_some(Added { before, text }), shown))
    }

    /// Writes what is planned: the gate's configuration first, so that no server is nowhere.
    pub(crate) fn write(&self) -> Result<Plan, Failure> {
        let before = self.file.read()?;
        let plan = self.plan_for(before.as_ref().map(|before| before.text.as_str()))?;
        let Some(text) = &plan.text else { return Ok(plan) };
        let backup = self.file.read_backup()?.map(|backup| backup.text);
        // One that was kept and not gone on from holds what is there now.
        if backup.is_some() && backup != before.as_ref().map(|before| before.text.clone()) {
            let sentence = format!(
                "`{}` holds what was there before an earlier installation",
                self.backup().display()
            );
            return Err(Failure::new(Code::HostFile, sentence)
                .hint("take that back with --undo, or move the copy away"));
        }
        if let Some(Added { before, text }) = &plan.rules {
            Own::at(&self.rules)?.exchange(before.as_ref(), text)?;
        }
        if let (Some(before), None) = (&before, backup) {
            self.file.keep(before)?;
        }
        self.file.exchange(before.as_ref(), text)?;
        Ok(plan)
    }

    /// Puts back what was there before, if the host's file is still what was written then.
    pub(crate) fn undo(&self) -> Result<(), Failure> {
        let Some(backup) = self.file.read_backup()? else {
            let sentence = format!("there is no copy at `{}`", self.backup().display());
            return Err(Failure::new(Code::HostFile, sentence).hint("nothing was changed"));
        };
        let now = self.file.read()?;
        // Nothing was written, or all is taken back already: only the copy is left.
        if now.as_ref().map(|now| &now.text) == Some(&backup.text) {
            return self.file.drop_backup();
        }
        let written = self.exchanged(Some(&backup.text))?.text;
        if now.as_ref().map(|now| &now.text) != Some(&written) {
            let sentence = format!(
                "`{}` was changed after the installation, and that would be lost",
                self.file.path().display()
            );
            let hint = format!("compare it with `{}` by hand", self.backup().display());
            return Err(Failure::new(Code::HostFile, sentence).hint(hint));
        }
        self.file.exchange(now.as_ref(), &backup.text)?;
        self.file.drop_backup()
    }

    fn unfit(&self, path: &Path, why: &str) -> Failure {
        let sentence = format!("`{}` cannot be edited: {why}", path.display());
        Failure::new(Code::HostFile, sentence).hint("nothing was changed")
    }
}

/// Whether the server that is there is the one that would be added.
fn same(there: &toml::Value, new: &str, name: &str) -> bool {
    let Ok(new) = new.parse::<toml::Table>() else { return false };
    let new = new.get("mcp").and_then(|mcp| mcp.get("servers")?.get(name).cloned());
    ["command", "args", "env"]
        .iter()
        .all(|key| new.as_ref().and_then(|new| new.get(key)) == there.get(key))
}
