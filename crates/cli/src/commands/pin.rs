//! `portcullis pin`: keeps what a server says of its tools, and says what changed since.

use std::io;

use portcullis::system::SystemClock;
use portcullis_domain::ports::Clock as _;
use portcullis_mcp::{Change, Manifest, diff, listed};
use serde::Serialize;

use crate::args::Globals;
use crate::assemble;
use crate::config::{self, Config, ServerChoice};
use crate::exit::Exit;
use crate::failure::{Code, Failure};
use crate::mcp;
use crate::output::{Out, text};
use crate::trusted;

/// Arguments of `pin`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The server: NAME of [mcp.servers.NAME]
    #[arg(value_name = "SERVER")]
    server: String,
    /// Change nothing: say what is different from what was pinned, and exit 1 if anything is
    #[arg(long)]
    diff: bool,
}

/// Runs the command.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<Exit, Failure> {
    let config = config::load(globals)?;
    let choice = named(&config, &args.server)?;
    let old = if args.diff { Some(mcp::manifest(choice)?) } else { mcp::former(choice)? };
    let around = assemble::around(globals, &config)?;
    let session = mcp::connect(choice, &around).await?;
    let listing = listed(session.as_ref()).await;
    session.close().await;
    let (_, live) = listing.map_err(|error| mcp::unusable(choice, &error))?;
    let new = Manifest::pin(choice.name.clone(), &live, SystemClock::new().now());
    let changes = old.as_ref().map(|old| diff(old, &new)).unwrap_or_default();
    if !args.diff {
        let bytes = new.to_bytes();
        let bytes = bytes.map_err(|error| Failure::new(Code::Manifest, error.to_string()))?;
        trusted::replace(&choice.manifest, &bytes)?;
    }
    let told = PinJson::of(choice, &new, &changes, !args.diff);
    let mut out = Out::new();
    let written = if globals.json { out.json(&told) } else { told.text(&mut out, &new, choice) };
    written.and_then(|()| out.flush()).map_err(|error| Failure::output(&error))?;
    Ok(if args.diff && !changes.is_empty() { Exit::Refused } else { Exit::Done })
}

pub(super) fn named<'a>(config: &'a Config, name: &str) -> Result<&'a ServerChoice, Failure> {
    config.mcp.iter().find(|choice| choice.name.as_str() == name).ok_or_else(|| {
        Failure::new(Code::Server, format!("the configuration has no MCP server `{name}`"))
            .hint("describe it in [mcp.servers.NAME], and name the configuration with -c")
    })
}

/// `pin`.
#[derive(Debug, Serialize)]
struct PinJson {
    server: String,
    manifest: String,
    written: bool,
    tools: Vec<ToolJson>,
    changes: Vec<ChangeJson>,
}

#[derive(Debug, Serialize)]
struct ToolJson {
    tool: String,
    ruled: bool,
}

#[derive(Debug, Serialize)]
struct ChangeJson {
    tool: String,
    change: &'static str,
    message: String,
}

impl PinJson {
    fn of(choice: &ServerChoice, new: &Manifest, changes: &[Change], written: bool) -> Self {
        let tools = new.tools().map(|tool| ToolJson {
            tool: tool.name().to_owned(),
            ruled: choice.rules.contains_key(tool.name()),
        });
        let changes = changes.iter().map(|change| ChangeJson {
            tool: change.tool.clone(),
            change: change.kind.as_str(),
            message: change.words.clone(),
        });
        Self {
            server: choice.name.to_string(),
            manifest: choice.manifest.display().to_string(),
            written,
            tools: tools.collect(),
            changes: changes.collect(),
        }
    }

    fn text(&self, out: &mut Out, new: &Manifest, choice: &ServerChoice) -> io::Result<()> {
        if self.written {
            let file = text::one_line(&self.manifest, 300);
            let count = text::counted(self.tools.len(), "tool");
            out.line(&format!("pinned {count} of `{}` in {file}", self.server))?;
            for tool in new.tools() {
                let ruled = choice.rules.contains_key(tool.name());
                let rest = if ruled { "" } else { "; no rule says what it does" };
                out.line(&format!("  {}{rest}", tool.words()))?;
            }
            if !self.changes.is_empty() {
                out.line("changed since the last pin:")?;
            }
        } else if self.changes.is_empty() {
            out.line(&format!("`{}` is as it was pinned", self.server))?;
        }
        self.changes.iter().try_for_each(|change| out.line(&format!("  {}", change.message)))
    }
}
