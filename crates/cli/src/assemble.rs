//! The only place where front doors and back ends are put together.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portcullis::system::{OsEntropy, SystemClock, TokioSpawn};
use portcullis_audit::FileError;
use portcullis_audit::keys::{
    KeyEntry, KeyFileError, Keyring, KeyringError, PublicKey, SigningKey,
};
use portcullis_domain::ports::{Clock, Ledgers, Observer, Store, ToolSource};
use portcullis_engine::{Parts, Timing, Tools};
use portcullis_mcp::{Board, LoadReport, McpTools, OfferLine, Session};
use portcullis_sandbox::identity::LinuxProcesses;
use portcullis_server::proxy::{Completing, Servers};
use portcullis_store::sqlite::open::OpenMode;
use portcullis_store::sqlite::{Committing, Opening, SqliteStore};
use portcullis_tools::{Files, HostTools};

use crate::agent::{self, AgentChoice, Prepared};
use crate::args::Globals;
use crate::config::{self, Config, ServerChoice};
use crate::failure::{Code, Failure};
use crate::half_made;
use crate::http::{self, For};
use crate::mcp;
use crate::people;
use crate::place::{self, Place};

/// Calls that may block a thread at once, those that outlived their deadline included.
const BLOCKING_PLACES: usize = 16;

/// Where the kernel shows itself and its devices: what is written there is no file.
const KERNEL_OWN: [&str; 3] = ["/proc", "/sys", "/dev"];

/// The files that SQLite keeps beside a database.
const SIDE_FILES: [&str; 3] = ["-wal", "-shm", "-journal"];

/// An open database: rows for people, raw tables for `verify`.
pub(crate) trait Database: Store + Ledgers {}

impl<T: Store + Ledgers> Database for T {}

/// The database to read. Nothing is created, upgraded or changed.
pub(crate) fn reader(globals: &Globals) -> Result<Arc<dyn Database>, Failure> {
    there(globals)?;
    Ok(Arc::new(open(globals, OpenMode::ReadOnly, Vec::new())?))
}

/// Says what to do where nothing was ever made, before anything else is found wrong with the place.
fn there(globals: &Globals) -> Result<(), Failure> {
    match globals.db.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let sentence = format!("there is no database at `{}`", globals.db.display());
            Err(Failure::new(Code::NoDatabase, sentence)
                .hint("check the path, or begin with `portcullis run` or `portcullis init`"))
        }
        _ => Ok(()),
    }
}

/// Makes the database when it is missing, and brings an old one up to date.
pub(crate) fn create(globals: &Globals) -> Result<(), Failure> {
    writer(globals, OpenMode::CreateOrOpen, Vec::new()).map(drop)
}

/// The database to write. Its default folder is made when it is missing.
fn writer(
    globals: &Globals,
    mode: OpenMode,
    observers: Vec<Arc<dyn Observer>>,
) -> Result<Arc<SqliteStore>, Failure> {
    if mode == OpenMode::CreateOrOpen && globals.db == globals.place.database() {
        place::make_private(&globals.place.state)?;
    }
    Ok(Arc::new(open(globals, mode, observers)?))
}

fn open(
    globals: &Globals,
    mode: OpenMode,
    observers: Vec<Arc<dyn Observer>>,
) -> Result<SqliteStore, Failure> {
    SqliteStore::open(&globals.db, mode, opening(observers))
        .map_err(|error| half_made::refusal(error, mode, globals))
}

/// The parts for what people do beside a run: the existing database to write, who may answer, no tools.
/// Needs a tokio runtime.
pub(crate) fn operator_parts(globals: &Globals, config: &Config) -> Result<Parts, Failure> {
    let keys = ring(config, &globals.place)?;
    there(globals)?;
    let store = writer(globals, OpenMode::Existing, Vec::new())?;
    parts(store, config, keys, Tools::register(Vec::new())?)
}

/// A database that is open for runs, with all that a gate needs.
pub(crate) struct Gatehouse {
    /// The database, for heads.
    pub(crate) database: Arc<dyn Database>,
    /// The parts of the gate.
    pub(crate) parts: Parts,
    /// What the operator should know before anything runs, a sentence each.
    pub(crate) remarks: Vec<String>,
}

/// Everything for `run` and `resume`. The folder for the file tools is checked, and MCP servers are started, before the database
/// is opened. A recording of the run is out of their reach: who reads it knows the secret of the fences, and who writes it puts words into a replay.
pub(crate) async fn gatehouse(
    globals: &Globals,
    mode: OpenMode,
    config: &Config,
    files: Option<&Path>,
    recording: Option<&Path>,
    observers: Vec<Arc<dyn Observer>>,
) -> Result<Gatehouse, Failure> {
    let (tools, mut remarks) = tools(globals, config, files, recording, For::Calls).await?;
    let (keys, made) = reviewers(globals, config)?;
    remarks.extend(made);
    let store = writer(globals, mode, observers)?;
    let parts = parts(Arc::clone(&store), config, keys, tools)?;
    Ok(Gatehouse { database: store, parts, remarks })
}

/// Everything for `proxy`: the same tools, each of which completes its run, none that starts others, and what MCP servers offer
/// beside tools.
pub(crate) async fn hosts_gatehouse(
    globals: &Globals,
    mode: OpenMode,
    config: &Config,
    files: Option<&Path>,
    observers: Vec<Arc<dyn Observer>>,
) -> Result<(Gatehouse, Servers), Failure> {
    let Found { mut sources, sessions, board, mut remarks } =
        sources(globals, config, files, None, For::Calls).await?;
    let mut offers = Vec::new();
    for (choice, session) in config.mcp.iter().zip(sessions) {
        let (offered, lines) = mcp::offers(choice, session).await?;
        remarks.extend(mcp::offer_remarks(choice, &lines));
        let offered = Arc::new(offered.telling(Arc::clone(&board)));
        sources.push(Arc::clone(&offered) as Arc<dyn ToolSource>);
        offers.push(offered);
    }
    let completing = |source| Arc::new(Completing::new(source)) as Arc<dyn ToolSource>;
    let tools = Tools::register(sources.into_iter().map(completing).collect())?;
    let (keys, made) = reviewers(globals, config)?;
    remarks.extend(made);
    let store = writer(globals, mode, observers)?;
    let parts = conversing(parts(Arc::clone(&store), config, keys, tools)?, config);
    Ok((Gatehouse { database: store, parts, remarks }, Servers { offers, board }))
}

/// The tools of a host, but for those that are called like one of these.
fn host_tools(config: &Config, beside: &[Arc<dyn ToolSource>]) -> HostTools {
    let taken = taken(beside);
    let named = config.decide.iter().map(|(name, class)| (name.as_str(), *class));
    HostTools::new(named.filter(|(name, _)| !taken.contains(*name)))
}

/// Everything for a decision on the calls of a host, which makes them by itself.
pub(crate) fn deskhouse(
    globals: &Globals,
    mode: OpenMode,
    config: &Config,
) -> Result<Gatehouse, Failure> {
    let tools = Tools::register(vec![Arc::new(host_tools(config, &[]))])?;
    let (keys, remarks) = reviewers(globals, config)?;
    let store = writer(globals, mode, Vec::new())?;
    let parts = conversing(parts(Arc::clone(&store), config, keys, tools)?, config);
    Ok(Gatehouse { database: store, parts, remarks })
}

/// The same parts for calls of a host, which are counted over its conversation.
fn conversing(parts: Parts, config: &Config) -> Parts {
    Parts { conversation: Some(config.conversation), ..parts }
}

/// The tools that this command has, with what the operator should know of them, a sentence each.
pub(crate) async fn tools(
    globals: &Globals,
    config: &Config,
    files: Option<&Path>,
    recording: Option<&Path>,
    purpose: For,
) -> Result<(Tools, Vec<String>), Failure> {
    let Found { mut sources, remarks, .. } =
        sources(globals, config, files, recording, purpose).await?;
    // No run is given them: only what was decided about them can be asked again.
    if purpose == For::Specs {
        let host = host_tools(config, &sources);
        sources.push(Arc::new(host));
    }
    let tools = Tools::register(sources)?;
    Ok((if config.children { tools.with_children()? } else { tools }, remarks))
}

/// Where tools come from.
struct Found {
    sources: Vec<Arc<dyn ToolSource>>,
    /// The sessions with the MCP servers of the configuration, in its order; none where no server was started.
    sessions: Vec<Arc<dyn Session>>,
    /// Where the calls of MCP servers say how far they are.
    board: Arc<Board>,
    /// What the operator should know of them, a sentence each.
    remarks: Vec<String>,
}

/// Where tools come from: this folder if there is one, the network if the operator named places, and each MCP server.
/// Servers are started for calls alone.
async fn sources(
    globals: &Globals,
    config: &Config,
    files: Option<&Path>,
    recording: Option<&Path>,
    purpose: For,
) -> Result<Found, Failure> {
    let mut sources = own_sources(globals, config, files, recording, purpose)?;
    let (mut remarks, mut sessions) = (Vec::new(), Vec::new());
    let board = Arc::<Board>::default();
    match purpose {
        For::Specs => {
            for choice in &config.mcp {
                let seen = mcp::look(choice, &taken(&sources))?;
                sources.push(Arc::new(seen));
            }
        }
        For::Calls => {
            let around = around(globals, config)?;
            let connected = mcp::connect_all(&config.mcp, &around).await?;
            for (choice, session) in config.mcp.iter().zip(connected) {
                let session = session?;
                sessions.push(Arc::clone(&session));
                let (tools, report) = mcp::open(choice, session, &taken(&sources)).await?;
                if report.registered() == 0 && !choice.offers.lets_any_through() {
                    return Err(mcp::nothing(&report));
                }
                remarks.extend(mcp::remarks(&report));
                sources.push(Arc::new(tools.telling(Arc::clone(&board))));
            }
        }
    }
    Ok(Found { sources, sessions, board, remarks })
}

/// What became of the tools of a server, and of what else it offers to hosts of a proxy.
pub(crate) type Report = (LoadReport, Vec<OfferLine>);

/// What of each MCP server could be called in a run, without a folder of files.
pub(crate) async fn reports(
    globals: &Globals,
    config: &Config,
) -> Result<Vec<Result<Report, Failure>>, Failure> {
    let mut sources = own_sources(globals, config, None, None, For::Specs)?;
    let sessions = mcp::connect_all(&config.mcp, &around(globals, config)?).await?;
    let mut reports = Vec::with_capacity(sessions.len());
    for (choice, session) in config.mcp.iter().zip(sessions) {
        let opened = match session {
            Ok(session) => {
                let opened = reported(choice, &session, &taken(&sources)).await;
                session.close().await;
                opened
            }
            Err(failure) => Err(failure),
        };
        reports.push(opened.map(|(tools, report)| {
            sources.push(Arc::new(tools));
            report
        }));
    }
    Ok(reports)
}

async fn reported(
    choice: &ServerChoice,
    session: &Arc<dyn Session>,
    taken: &BTreeSet<String>,
) -> Result<(McpTools, Report), Failure> {
    let (tools, report) = mcp::open(choice, Arc::clone(session), taken).await?;
    let (_, lines) = mcp::offers(choice, Arc::clone(session)).await?;
    Ok((tools, (report, lines)))
}

/// What MCP servers are started among.
pub(crate) fn around(globals: &Globals, config: &Config) -> Result<mcp::Around, Failure> {
    Ok(mcp::Around {
        ours: out_of_reach(globals, config)?,
        search_path: globals.search_path.clone(),
        home: crate::args::variable("HOME").map(PathBuf::from),
        egress: config.egress.clone(),
    })
}

/// The names that these sources have already.
fn taken(sources: &[Arc<dyn ToolSource>]) -> BTreeSet<String> {
    sources.iter().flat_map(|source| source.specs()).map(|spec| spec.name).collect()
}

/// The tools that need no server.
fn own_sources(
    globals: &Globals,
    config: &Config,
    files: Option<&Path>,
    recording: Option<&Path>,
    purpose: For,
) -> Result<Vec<Arc<dyn ToolSource>>, Failure> {
    let mut sources: Vec<Arc<dyn ToolSource>> = Vec::new();
    if let Some(root) = files {
        let mut forbidden = out_of_reach(globals, config)?;
        forbidden.extend(KERNEL_OWN.map(PathBuf::from));
        forbidden.extend(recording.map(Path::to_owned));
        sources.push(Arc::new(Files::open(root, &forbidden)?));
    }
    if let Some(choice) = &config.http {
        sources.push(Arc::new(http::open(choice, &config.egress, purpose)?));
    }
    Ok(sources)
}

fn parts(
    store: Arc<SqliteStore>,
    config: &Config,
    keys: Keyring,
    tools: Tools,
) -> Result<Parts, Failure> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let processes = LinuxProcesses::new().map_err(|error| {
        Failure::new(Code::Identity, error.to_string()).hint("mount /proc as usual")
    })?;
    Ok(Parts {
        store,
        keys: Arc::new(keys.with_clock(Arc::clone(&clock))),
        clock,
        entropy: Arc::new(OsEntropy),
        spawn: Arc::new(TokioSpawn::new(tokio::runtime::Handle::current(), BLOCKING_PLACES)),
        processes: Arc::new(processes),
        policy: Arc::new(config.classes.clone()),
        tools: Arc::new(tools),
        reconcile: None,
        conversation: None,
        timing: config
            .lease
            .map_or_else(Timing::default, |lease| Timing { lease, ..Timing::default() }),
    })
}

fn opening(observers: Vec<Arc<dyn Observer>>) -> Opening<'static> {
    Opening {
        now: SystemClock::new().now(),
        entropy: &OsEntropy,
        observers,
        committing: Committing::Caller,
    }
}

/// The people who may answer: the configured reviewers, else the public keys in the key folder.
pub(crate) fn keyring(globals: &Globals) -> Result<Keyring, Failure> {
    ring(&config::load(globals)?, &globals.place)
}

/// The people who may answer under this configuration.
pub(crate) fn ring(config: &Config, place: &Place) -> Result<Keyring, Failure> {
    if !config.reviewers.is_empty() {
        return Ok(Keyring::new(config.reviewers.iter().cloned())?);
    }
    match Keyring::load_dir(&place.keys) {
        Err(KeyringError::Folder(FileError::Missing { .. })) => Ok(Keyring::default()),
        loaded => Ok(loaded?),
    }
}

/// Who may answer a run's questions. Where nobody was configured and no key was ever made, a key is drawn for
/// this user, so that there is somebody to ask. A private key that is there is never opened here.
fn reviewers(globals: &Globals, config: &Config) -> Result<(Keyring, Vec<String>), Failure> {
    let there = ring(config, &globals.place)?;
    if there.entries().next().is_some() {
        return Ok((there, Vec::new()));
    }
    let name = globals.key.as_deref().unwrap_or(&globals.user);
    match SigningKey::create(&globals.place.keys, name, &OsEntropy) {
        Ok(_) => {
            let remark =
                format!("made the key `{name}`, which answers questions: `portcullis key list`");
            Ok((ring(config, &globals.place)?, vec![remark]))
        }
        // Its public half is missing, or another process made it just now.
        Err(KeyFileError::File(FileError::Exists { .. })) => {
            Ok((ring(config, &globals.place)?, Vec::new()))
        }
        Err(error) => Err(error.into()),
    }
}

/// Refuses to begin a run whose rules ask more people than can answer. Nothing is made for it: the key that a first
/// run draws is stood in for.
pub(crate) fn enough_people(
    globals: &Globals,
    config: &Config,
    owner: &str,
) -> Result<(), Failure> {
    let mut ring = ring(config, &globals.place)?;
    if ring.entries().next().is_none() {
        let name = globals.key.as_deref().unwrap_or(&globals.user);
        let key = SigningKey::generate(&OsEntropy).public();
        ring.add(KeyEntry::new(key, name, ["operator"]))?;
    }
    people::shortage(config, &ring, owner).map_or(Ok(()), Err)
}

/// Whose run it is unless somebody else is named: the person whose key the key folder or the configuration knows by
/// the name of this user, so that nobody answers their own question under another name; else the user.
pub(crate) fn own_person(globals: &Globals, config: &Config) -> String {
    let name = globals.key.as_deref().unwrap_or(&globals.user);
    let public = PublicKey::open(&globals.place.keys.join(format!("{name}.pub")));
    let (Ok(public), Ok(ring)) = (public, ring(config, &globals.place)) else {
        return globals.user.clone();
    };
    let mut known = ring.entries().filter(|(id, _)| **id == public.id());
    known.next().map_or_else(|| globals.user.clone(), |(_, entry)| entry.person.clone())
}

/// The key that signs this person's answers. Only `approve`, `reject` and `answer` ask for it.
///
/// It is the one that was named, else the user's own. It is made only where nobody can answer yet: a mistyped
/// name or another user's shell makes no second reviewer.
pub(crate) fn reviewer_key(globals: &Globals, config: &Config) -> Result<SigningKey, Failure> {
    let name = globals.key.as_deref().unwrap_or(&globals.user);
    let keys = &globals.place.keys;
    match SigningKey::open(&keys.join(format!("{name}.key"))) {
        Err(KeyFileError::File(FileError::Missing { .. })) => {}
        opened => return Ok(opened?),
    }
    if globals.key.is_none() && ring(config, &globals.place)?.entries().next().is_none() {
        return Ok(SigningKey::open_or_create(keys, name, &OsEntropy)?);
    }
    Err(Failure::new(Code::NoKey, format!("there is no key `{name}` in `{}`", keys.display()))
        .hint(
            "name one of `portcullis key list` with --key, or make one with `portcullis key new`",
        ))
}

/// Finds the agent of a run and puts it out of reach of everything that governs it.
pub(crate) fn prepare_agent(
    choice: &AgentChoice,
    globals: &Globals,
    config: &Config,
    files: Option<&Path>,
) -> Result<Prepared, Failure> {
    let mut forbidden = out_of_reach(globals, config)?;
    forbidden.extend(files.map(Path::to_owned));
    let env = choice
        .env
        .iter()
        .filter_map(|name| crate::args::variable(name).map(|value| (OsString::from(name), value)));
    let around = agent::Surroundings {
        forbidden,
        search_path: globals.search_path.clone(),
        home: crate::args::variable("HOME").map(PathBuf::from),
        env: env.collect(),
    };
    agent::prepare(choice, around)
}

/// State, keys, configuration, heads, files of credentials and of a token, and our own program: what no agent and no tool may reach.
fn out_of_reach(globals: &Globals, config: &Config) -> Result<Vec<PathBuf>, Failure> {
    let absolute =
        |path: &Path| std::path::absolute(path).map_err(|error| Failure::io("find", path, &error));
    let db = absolute(&globals.db)?;
    let mut places = vec![globals.place.state.clone(), globals.place.config.clone()];
    for suffix in SIDE_FILES {
        let mut side = db.clone().into_os_string();
        side.push(suffix);
        places.push(side.into());
    }
    places.push(db);
    places.extend(config.path.clone());
    places.extend(config.head.clone());
    places.extend(config.credentials.files().map(Path::to_owned));
    places.extend(config.egress.roots().map(Path::to_owned));
    places.extend(config.mcp.iter().map(|choice| choice.manifest.clone()));
    let logins = config.mcp.iter().filter_map(config::ServerChoice::login);
    places.extend(logins.map(|login| login.tokens.clone()));
    places.extend(config.proxy.token_file.clone());
    places.push(own_program()?);
    Ok(places)
}

/// Where this program lies. When its file was replaced meanwhile, where the new one lies.
pub(crate) fn own_program() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::io("find", Path::new("/proc/self/exe"), &error))?;
    let text = own.as_os_str().as_bytes();
    Ok(text
        .strip_suffix(b" (deleted)")
        .map_or(own.clone(), |there| OsStr::from_bytes(there).into()))
}
