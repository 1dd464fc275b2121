//! `portcullis proxy`: serves the tools to an MCP host over standard input and output, or to those that come over HTTP; each
//! call passes the gate.

mod keeping;
mod listen;
mod pipes;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use portcullis_canon::{Object, Value, sanitize};
use portcullis_domain::id::QuestionId;
use portcullis_domain::label::Name;
use portcullis_domain::ports::Observer;
use portcullis_domain::question::QuestionKind;
use portcullis_domain::scope::Scope;
use portcullis_engine::{GateError, operator};
use portcullis_mcp::{Served as _, serve};
use portcullis_server::proxy::{Notes, Proxy, Settings, Wakes};
use portcullis_store::sqlite::open::OpenMode;
use tokio::sync::Notify;

use crate::args::Globals;
use crate::assemble;
use crate::config;
use crate::drive;
use crate::exit::Exit;
use crate::failure::{Code, Failure};
use crate::heads::Heads;
use crate::signals::Signals;
use crate::start;

use keeping::{Commits, Keeper};
use listen::Door;
use pipes::{standard_input, standard_output};

/// How long a host has to read the last answers.
const WRITING: Duration = Duration::from_secs(2);

/// Arguments of `proxy`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder whose files the host may ask to read and change
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
    /// The conversation that this host's calls belong to [default: a new one for each connection]
    #[arg(long, value_name = "NAME")]
    thread: Option<String>,
    /// Whose calls they are, as a label [default: the person of your key, else your user name]
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// Let hosts in over HTTP at this address of this machine, such as 127.0.0.1:8765; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// The file with the token that hosts over HTTP have to show; made when it is not there [default: proxy.token in the
    /// configuration folder]
    #[arg(long, value_name = "FILE", requires = "listen")]
    token_file: Option<PathBuf>,
}

/// Serves hosts until the one on standard input closes it, or a signal comes. Calls that are on their way finish.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<Exit, Failure> {
    if args.owner.as_deref().is_some_and(|owner| Name::new(owner).is_err()) {
        return Err(Failure::usage("the owner has to be 1 to 128 plain bytes"));
    }
    let mut config = config::load(globals)?;
    if let Some(file) = &args.token_file {
        let named = std::path::absolute(file).map_err(|error| Failure::io("find", file, &error))?;
        config.proxy.token_file = Some(named);
    }
    let flags = start::Flags { files: args.files, ..start::Flags::default() };
    let files = flags.files(config.files.clone())?;
    let owner = args.owner.unwrap_or_else(|| assemble::own_person(globals, &config));
    assemble::enough_people(globals, &config, &owner)?;
    let signals = Signals::catch()?;
    let door = match args.listen {
        Some(address) => Some(Door::open(address, &config.proxy, globals).await?),
        None => None,
    };
    let wakes = Arc::new(Wakes::default());
    let commits = Arc::new(Commits::default());
    let observers: Vec<Arc<dyn Observer>> =
        vec![Arc::clone(&wakes) as _, Arc::clone(&commits) as _];
    let heads = Heads::of(globals, &config)?;
    let mode = OpenMode::CreateOrOpen;
    let house = assemble::hosts_gatehouse(globals, mode, &config, files.as_deref(), observers);
    let (house, servers) = house.await?;
    if let Some(heads) = &heads {
        heads.compare(house.database.as_ref())?;
        heads.keep(house.database.as_ref())?;
    }
    let teller = Arc::new(Teller { globals: globals.clone() });
    house.remarks.iter().for_each(|remark| teller.say(remark, None));
    if let Err(error) = operator::sweep_due(&house.parts, &Scope::of_file_owner()).await {
        teller.say(&format!("not every overdue question was closed: {error}"), None);
    }
    let settings = Settings {
        thread: args.thread,
        question_ttl_ms: config.limits.question_ttl_ms,
        grant_ttl_ms: config.limits.grant_ttl_ms,
        ..config.proxy.over(Settings::of(&owner))
    };
    let notes = Arc::clone(&teller) as Arc<dyn Notes>;
    let proxy = Proxy::open(house.parts, settings, wakes, notes, servers)
        .map_err(|error| Failure::new(Code::Argument, error.to_string()))?;
    let keeper = heads.map(|heads| Keeper::new(heads, house.database));
    let attended = attend(Arc::new(proxy), door, signals, &teller);
    let exit = match &keeper {
        Some(keeper) => tokio::select! {
            biased;
            exit = attended => exit,
            never = keeper.follow(&commits, &teller) => match never {},
        },
        None => attended.await,
    };
    // However it ended: what was recorded is recorded.
    let kept = match &keeper {
        Some(keeper) => keeper.keep().await,
        None => Ok(()),
    };
    exit.and_then(|exit| kept.map(|()| exit))
}

/// Serves, and waits for what is on its way. The first signal takes no more calls; the second one waits for nothing.
async fn attend(
    proxy: Arc<Proxy>,
    door: Option<Door>,
    mut signals: Signals,
    teller: &Teller,
) -> Result<Exit, Failure> {
    let (first, second) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (closes, stops, leaves) = (Arc::clone(&proxy), Arc::clone(&first), Arc::clone(&second));
    tokio::spawn(async move {
        signals.next().await;
        closes.close();
        stops.notify_one();
        signals.next().await;
        leaves.notify_one();
    });
    let stop = async move { first.notified().await };
    let served = async {
        match door {
            Some(door) => door.serve(&proxy, stop, teller).await,
            None => over_pipes(&proxy, stop, teller).await,
        }
    };
    tokio::select! {
        served = served => served.map(|()| Exit::Done),
        () = second.notified() => Ok(Exit::Stopped),
    }
}

/// Serves the host that started this process, until it closes standard input.
async fn over_pipes(
    proxy: &Arc<Proxy>,
    stop: impl Future<Output = ()> + Send + 'static,
    teller: &Teller,
) -> Result<(), Failure> {
    let tools = proxy.tools().len();
    teller.say(&format!("serving {tools} tools to an MCP host on standard input and output"), None);
    let (output, written) = standard_output()?;
    let served = serve(Arc::clone(proxy) as _, standard_input()?, output, stop).await;
    proxy.close();
    proxy.finished().await;
    // A host that reads nothing any more keeps nobody from leaving.
    let _ = tokio::time::timeout(WRITING, written).await;
    served.map_err(|error| Failure::new(Code::Io, error.to_string()))
}

/// Tells the operator on standard error: standard output is the protocol's.
struct Teller {
    globals: Globals,
}

impl Teller {
    fn say(&self, note: &str, command: Option<&str>) {
        let members = command.map(|command| ("command", command));
        self.say_with(note, command, members.as_slice());
    }

    /// Says it to a person as a sentence and what to type, to a program with these members beside.
    fn say_with(&self, note: &str, command: Option<&str>, members: &[(&str, &str)]) {
        let note = sanitize::line(note);
        let mut out = std::io::stderr().lock();
        // Whoever closed it does not want to know.
        let _ = if self.globals.json {
            let mut object = Object::new();
            object.insert("note", note.as_ref());
            for (key, text) in members {
                object.insert(*key, *text);
            }
            writeln!(out, "{}", Value::Object(object).to_canonical_string())
        } else {
            writeln!(
                out,
                "portcullis: {note}{}",
                command.map_or_else(String::new, |c| format!("\n  {c}"))
            )
        };
    }
}

impl Notes for Teller {
    fn asked(&self, question: QuestionId, kind: QuestionKind, tool: &str) {
        let (note, rest) = match kind {
            QuestionKind::Approval => (
                format!("a call of {tool} waits for a person: {question}"),
                format!("approve {question}"),
            ),
            QuestionKind::UnknownOutcome => (
                format!("it is not known what a call of {tool} did: {question}"),
                format!("answer {question} happened|did-not-happen|run-again"),
            ),
        };
        self.say(&note, Some(&drive::command(&self.globals, &rest)));
    }

    fn fault(&self, error: &GateError) {
        self.say(&format!("a call could not be handled: {error}"), None);
    }
}
