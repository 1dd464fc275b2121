//! The command line: what is common to all commands, and the list of them.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::commands;
use crate::failure::Failure;
use crate::place::{Place, Surroundings};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = "portcullis", version, about, long_about = None, after_help = EXITS)]
pub(crate) struct Cli {
    /// The database [default: portcullis.db in the state folder]
    #[arg(long, global = true, value_name = "PATH", env = "PORTCULLIS_DB", hide_env_values = true)]
    pub(crate) db: Option<PathBuf>,
    /// The configuration file [default: portcullis.toml in the configuration folder, if there is one]
    #[arg(short = 'c', long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The reviewer's key that signs, by name [default: your user name]
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        env = "PORTCULLIS_KEY",
        hide_env_values = true
    )]
    pub(crate) key: Option<String>,
    /// Write JSON for programs instead of text for people
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXITS: &str = "Exit codes: 0 done, 1 refused, failed, not intact or not the same, 2 usage, 3 a run waits for a person, 130 stopped by a signal.";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what the gate does, on a folder of its own
    Demo(commands::demo::Args),
    /// Make the folders, a key and a configuration file
    Init(commands::init::Args),
    /// Start a run
    Run(Box<commands::run::Args>),
    /// Go on with a run
    Resume(commands::resume::Args),
    /// List runs
    Runs(commands::runs::Args),
    /// Show one run
    Show(commands::show::Args),
    /// Show what was spent on models: by a run, or on a day
    Spend(commands::spend::Args),
    /// List providers of models: what is configured, and whether it answers
    Models(commands::models::Args),
    /// Serve the tools to an MCP host, each call through the gate
    ///
    /// It speaks MCP over standard input and output, so a host starts it. What an operator has to know is told on standard
    /// error.
    Proxy(commands::proxy::Args),
    /// Keep what an MCP server says of its tools, so that a change of it is seen
    Pin(commands::pin::Args),
    /// Log in to an MCP server at whoever gives its tokens
    ///
    /// Shows an address to open in a browser, and waits for the answer on a port of this machine. The tokens are kept in a
    /// file of one's own, and are refreshed by the commands that use the server.
    Login(commands::login::Args),
    /// Start the MCP servers, and say which of their tools could be called, and why others could not
    Check(commands::check::Args),
    /// List what was recorded
    Events(commands::events::Args),
    /// List what waits for a person
    Inbox(commands::inbox::Args),
    /// Say what happens to questions, remind of those that end soon, and end those past their time
    Watch(commands::watch::Args),
    /// Say yes to a question
    Approve(commands::approve::Args),
    /// Say no to a question
    Reject(commands::reject::Args),
    /// Say what became of a call whose outcome is unknown
    Answer(commands::answer::Args),
    /// End a run
    Cancel(commands::cancel::Args),
    /// Say why a step was decided as it was
    Explain(commands::explain::Args),
    /// Compare two runs, step by step
    Diff(commands::diff::Args),
    /// Check the whole record
    ///
    /// Answers are judged with the reviewers of the configuration that is named with -c, and of that one alone. Without
    /// -c, with those of the usual configuration and of each that the runs of this database were begun with.
    Verify(commands::verify::Args),
    /// Ask a policy again about what was decided
    ///
    /// Without -c and --policy each recorded evaluation is handed back to the rules that answered it, if the configuration
    /// that the run was begun with, the usual one or the built-in rules still are those. With -c FILE it is handed to the
    /// rules and the tools of today's configuration; with --policy FILE to its rules alone.
    Recheck(commands::recheck::Args),
    /// Answer a hook of a host that makes its calls by itself
    ///
    /// Reads one event on standard input and answers in the host's form. What the tools of the host can change stands in
    /// [decide.tools] of the configuration. Whatever goes wrong is a no, with exit code 2.
    Decide(commands::hook::Args),
    /// Put the gate before the MCP servers of a host
    ///
    /// Shows what would be written. The servers that the host starts as programs are moved into [mcp.servers] of the
    /// configuration; those that cannot be carried over whole stay, and are named.
    Hosts(commands::hosts::Args),
    /// Make and list reviewers' keys
    Key(commands::key::Args),
    /// Write a completion script for a shell
    Completions(commands::shell::Completions),
    /// Write the manual pages, one for each command
    Man(commands::shell::Man),
}

/// What every command is given.
#[derive(Clone, Debug)]
pub(crate) struct Globals {
    /// The database.
    pub(crate) db: PathBuf,
    /// Write JSON.
    pub(crate) json: bool,
    /// The configuration file that the operator named.
    pub(crate) config_path: Option<PathBuf>,
    /// Where the rest is.
    pub(crate) place: Place,
    /// The reviewer's key that the operator named.
    pub(crate) key: Option<String>,
    /// The user's name as a label: a usable key name, from the environment, else the system's for this user's id;
    /// `operator` when there is none.
    pub(crate) user: String,
    /// Text without colour, whatever the terminal can do.
    pub(crate) plain: bool,
    /// Where programs are looked for, as the operator's environment has it.
    pub(crate) search_path: Option<OsString>,
}

/// A variable of the environment that is set to something.
#[expect(clippy::disallowed_methods, reason = "the command is what reads the environment")]
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

impl Cli {
    /// What the commands share, from the arguments and the environment. Nothing is opened.
    pub(crate) fn globals(&self) -> Result<Globals, Failure> {
        let path = |name| variable(name).map(PathBuf::from);
        let place = Place::of(&Surroundings {
            home: path("HOME"),
            state_home: path("XDG_STATE_HOME"),
            config_home: path("XDG_CONFIG_HOME"),
        })?;
        Ok(Globals {
            db: self.db.clone().unwrap_or_else(|| place.database()),
            json: self.json,
            config_path: self.config.clone(),
            place,
            key: self.key.clone(),
            user: user_name(),
            plain: variable("NO_COLOR").is_some()
                || variable("TERM").is_some_and(|term| term == "dumb"),
            search_path: variable("PATH"),
        })
    }
}

/// The most bytes of the list of users that are looked through.
const MAX_USERS: u64 = 1 << 20;

fn user_name() -> String {
    let named = variable("USER").and_then(|name| name.into_string().ok());
    let named = named.filter(|name| is_key_name(name)).or_else(|| {
        let mut users = String::new();
        let file = File::open("/etc/passwd").ok()?;
        file.take(MAX_USERS).read_to_string(&mut users).ok()?;
        name_of(rustix::process::getuid().as_raw(), &users)
    });
    named.unwrap_or_else(|| "operator".to_owned())
}

/// The name of a user in a list of them, one a line: `NAME:…:ID:…`.
fn name_of(id: u32, users: &str) -> Option<String> {
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then_some(name)
    });
    name.filter(|name| is_key_name(name)).map(str::to_owned)
}

/// True for a name that a key's files can have.
pub(crate) fn is_key_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    (1..=60).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_named_by_their_id() {
        let users = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\nodd\n\
                     a b:x:1001:1001::/:/bin/sh\n";
        assert_eq!(name_of(0, users).as_deref(), Some("root"));
        assert_eq!(name_of(1000, users).as_deref(), Some("ann"));
        for (id, users) in [(1001, users), (7, users), (0, "")] {
            assert_eq!(name_of(id, users), None, "{id}");
        }
    }
}
