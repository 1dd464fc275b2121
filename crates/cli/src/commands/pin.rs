//! `portcullis pin`: keeps what a server says of its tools, and says what changed since.

use std::io;

use portcullis::system::SystemClock;
use portcullis_canon::Digest;
use portcullis_domain::ports::Clock as _;
use portcullis_mcp::{
    Change, FileFault, Listing, Manifest, Offer, PinnedFiles, PinnedTool, Session, SessionError,
    diff, listed, offered,
};
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
    let files = mcp::files(choice, &around)?;
    let differences = old.as_ref().map(|old| old.files().differences(&files)).unwrap_or_default();
    let mut told = PinJson::of(choice, &files, &differences);
    if args.diff && !differences.is_empty() {
        // What changed is not started to hear what it says.
        told.print(globals)?;
        return Ok(Exit::Refused);
    }
    let session = mcp::connect_with(choice, &around, files.clone()).await?;
    let live = advertised(choice, session.as_ref()).await;
    session.close().await;
    let (live, also) = live.map_err(|error| mcp::unusable(choice, &error))?;
    let new = Manifest::pin(choice.name.clone(), &live, SystemClock::new().now());
    let new = new.with_files(files).with_offers(also);
    told.tools = tools(choice, &new);
    told.offers = offers(choice, &new);
    let old = old.as_ref().map(|old| diff(&asked_for(old, choice), &new));
    told.changes = old.map_or_else(Vec::new, changes);
    if !args.diff {
        let bytes = new.to_bytes();
        let bytes = bytes.map_err(|error| Failure::new(Code::Manifest, error.to_string()))?;
        trusted::replace(&choice.manifest, &bytes)?;
        told.written = true;
    }
    told.print(globals)?;
    Ok(if args.diff && !told.changes.is_empty() { Exit::Refused } else { Exit::Done })
}

/// The tools of a server, and what else it offers of which the operator speaks.
async fn advertised(
    choice: &ServerChoice,
    session: &dyn Session,
) -> Result<(Listing, Vec<Offer>), SessionError> {
    let (_, live) = listed(session).await?;
    let kinds: Vec<_> = choice.offers.kinds().collect();
    let (_, offers) = offered(session, &kinds).await?;
    Ok((live, offers))
}

/// What of a manifest is asked for again: what the operator does not speak of any more is no change of the server's.
fn asked_for(old: &Manifest, choice: &ServerChoice) -> Manifest {
    let spoken_of = old.offers().filter(|offer| choice.offers.names(offer.kind()));
    let spoken_of: Vec<Offer> = spoken_of.cloned().collect();
    old.clone().with_offers(spoken_of)
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
    files: Vec<FileJson>,
    file_changes: Vec<String>,
    tools: Vec<ToolJson>,
    offers: Vec<OfferJson>,
    changes: Vec<ChangeJson>,
}

#[derive(Debug, Serialize)]
struct FileJson {
    path: String,
    digest: String,
}

#[derive(Debug, Serialize)]
struct ToolJson {
    tool: String,
    ruled: bool,
    #[serde(skip)]
    words: String,
}

#[derive(Debug, Serialize)]
struct OfferJson {
    kind: &'static str,
    name: String,
    ruled: bool,
    #[serde(skip)]
    line: String,
}

#[derive(Debug, Serialize)]
struct ChangeJson {
    tool: String,
    change: &'static str,
    message: String,
}

fn tools(choice: &ServerChoice, new: &Manifest) -> Vec<ToolJson> {
    let tool = |tool: &PinnedTool| ToolJson {
        tool: tool.name().to_owned(),
        ruled: choice.rules.contains_key(tool.name()),
        words: tool.words(),
    };
    new.tools().map(tool).collect()
}

fn offers(choice: &ServerChoice, new: &Manifest) -> Vec<OfferJson> {
    let offer = |offer: &Offer| OfferJson {
        kind: offer.kind().member(),
        name: offer.name().to_owned(),
        ruled: choice.offers.allows(offer),
        line: offer.line(),
    };
    new.offers().map(offer).collect()
}

fn changes(changes: Vec<Change>) -> Vec<ChangeJson> {
    let change = |change: Change| ChangeJson {
        tool: change.tool,
        change: change.kind.as_str(),
        message: change.words,
    };
    changes.into_iter().map(change).collect()
}

impl PinJson {
    /// What is known before the server was heard.
    fn of(choice: &ServerChoice, files: &PinnedFiles, differences: &[FileFault]) -> Self {
        let file = |(path, digest): (&str, Digest)| FileJson {
            path: path.to_owned(),
            digest: digest.to_string(),
        };
        Self {
            server: choice.name.to_string(),
            manifest: choice.manifest.display().to_string(),
            written: false,
            files: files.iter().map(file).collect(),
            file_changes: differences.iter().map(FileFault::to_string).collect(),
            tools: Vec::new(),
            offers: Vec::new(),
            changes: Vec::new(),
        }
    }

    fn print(&self, globals: &Globals) -> Result<(), Failure> {
        let mut out = Out::new();
        let written = if globals.json { out.json(self) } else { self.text(&mut out) };
        written.and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
    }

    fn text(&self, out: &mut Out) -> io::Result<()> {
        let unchanged = self.changes.is_empty() && self.file_changes.is_empty();
        if self.written {
            let file = text::one_line(&self.manifest, 300);
            let mut count = text::counted(self.tools.len(), "tool");
            if !self.files.is_empty() {
                count = format!("{count} and {}", text::counted(self.files.len(), "file"));
            }
            out.line(&format!("pinned {count} of `{}` in {file}", self.server))?;
            for tool in &self.tools {
                let rest = if tool.ruled { "" } else { "; no rule says what it does" };
                out.line(&format!("  {}{rest}", tool.words))?;
            }
            for offer in &self.offers {
                let rest = if offer.ruled { "" } else { "; no rule names it" };
                out.line(&format!("  {}{rest}", offer.line))?;
            }
            for file in &self.files {
                out.line(&format!("  {} {}", file.digest, text::one_line(&file.path, 300)))?;
            }
            if !unchanged {
                out.line("changed since the last pin:")?;
            }
        } else if unchanged {
            out.line(&format!("`{}` is as it was pinned", self.server))?;
        }
        let changes =
            self.file_changes.iter().chain(self.changes.iter().map(|change| &change.message));
        changes.into_iter().try_for_each(|change| out.line(&format!("  {change}")))
    }
}
