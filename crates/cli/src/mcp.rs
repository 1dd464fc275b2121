//! The MCP servers of a configuration: connected, held against their manifests and rules, and given as tools.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use portcullis::system::SystemClock;
use portcullis_canon::{Object, Value};
use portcullis_domain::ports::BoxFuture;
use portcullis_egress::{CredentialFault, CredentialRef, Credentials, Egress, RulesFault};
use portcullis_mcp::{
    Answer, Asks, CallFailure, Fate, FileFault, Http, Leave, Listing, LoadReport,
    MAX_MANIFEST_BYTES, Manifest, ManifestError, McpOffers, McpTools, Offer, OfferFate, OfferKind,
    OfferLine, OfferTerms, OpenError, Opening, PinnedFiles, PinnedTools, Reopening, Session,
    SessionError, Severity, Stdio, StdioServer, Terms, Told,
};
use portcullis_sandbox::child::{DEFAULT_PATH, find_program};
use tokio::task::JoinSet;

use crate::config::{EgressChoice, Program, RemoteServer, ServerChoice, Way};
use crate::failure::{Code, Failure};
use crate::login;
use crate::scratch::Scratch;
use crate::trusted::Trusted;

/// How a manifest is read.
const FILE: Trusted = Trusted { what: "manifest", code: Code::Manifest, most: MAX_MANIFEST_BYTES };

/// What a server is started among.
#[derive(Clone, Debug)]
pub(crate) struct Around {
    /// Our own files, none of which a server is told of.
    pub(crate) ours: Vec<PathBuf>,
    /// Where programs are looked for.
    pub(crate) search_path: Option<OsString>,
    /// The operator's home, for what an argument means by `~`.
    pub(crate) home: Option<PathBuf>,
    /// How requests leave.
    pub(crate) egress: EgressChoice,
}

/// Opens a session with a server whose files are as they were pinned.
async fn connect(choice: &ServerChoice, around: &Around) -> Result<Arc<dyn Session>, Failure> {
    let paths = paths(choice, around)?;
    // Without any there need not be a manifest yet to start it: `check` tells what there is.
    let files = match paths.is_empty() {
        true => Ok(PinnedFiles::default()),
        false => manifest(choice)?.files().only(paths.iter().map(PathBuf::as_path)),
    };
    let files = files.map_err(|fault| unfit(choice, &fault))?;
    let first = connect_with(choice, around, files.clone()).await?;
    let Way::Program(program) = &choice.way else { return Ok(first) };
    // A program that ends is started again, by what was read of the configuration at the beginning.
    let (choice, program, around) = (choice.clone(), program.clone(), around.clone());
    let opening: Opening = Box::new(move || {
        let (choice, program) = (choice.clone(), program.clone());
        let (around, files) = (around.clone(), files.clone());
        Box::pin(async move {
            start(&choice, &program, &around, files).await.map_err(|failure| match failure {
                NotStarted::Here(failure) => SessionError::Start(failure.sentence()),
                NotStarted::There(error) => error,
            })
        })
    });
    Ok(Arc::new(Reopening::new(first, opening, Arc::new(SystemClock::new()))))
}

/// Opens a session with a server that is a program only if its files are these.
pub(crate) async fn connect_with(
    choice: &ServerChoice,
    around: &Around,
    files: PinnedFiles,
) -> Result<Arc<dyn Session>, Failure> {
    match &choice.way {
        Way::Program(program) => {
            let started = start(choice, program, around, files).await;
            started.map_err(|failure| match failure {
                NotStarted::Here(failure) => failure,
                NotStarted::There(error) => unusable(choice, &error),
            })
        }
        Way::Url(remote) => reach(choice, remote, &around.egress).await,
    }
}

/// The files of a server that the operator wants pinned, as they are now.
pub(crate) fn files(choice: &ServerChoice, around: &Around) -> Result<PinnedFiles, Failure> {
    PinnedFiles::read(paths(choice, around)?.iter().map(PathBuf::as_path))
        .map_err(|fault| unfit(choice, &fault))
}

fn paths(choice: &ServerChoice, around: &Around) -> Result<Vec<PathBuf>, Failure> {
    let Way::Program(program) = &choice.way else { return Ok(Vec::new()) };
    let mut paths = program.pin_files.clone();
    if program.pin_program {
        paths.push(found(choice, program, around)?);
    }
    Ok(paths)
}

/// The file that is started.
fn found(choice: &ServerChoice, program: &Program, around: &Around) -> Result<PathBuf, Failure> {
    let search = around.search_path.as_deref().unwrap_or(DEFAULT_PATH.as_ref());
    find_program(program.command.as_os_str(), search).ok_or_else(|| {
        let (name, command) = (&choice.name, program.command.display());
        let sentence = format!("the MCP server `{name}` cannot be used: no program `{command}`");
        Failure::new(Code::Server, sentence).hint("see [mcp.servers] in the configuration")
    })
}

/// Why the files of a server cannot be used.
fn unfit(choice: &ServerChoice, fault: &FileFault) -> Failure {
    let sentence = format!("the MCP server `{}` cannot be used: {fault}", choice.name);
    Failure::new(Code::Server, sentence)
        .hint(format!("`portcullis pin {} --diff` says what is different", choice.name))
}

/// Why a program has no session.
enum NotStarted {
    /// Something is missing here.
    Here(Failure),
    /// It is its own fault.
    There(SessionError),
}

/// Starts a program and opens a session with it. Its own folder goes with the session.
async fn start(
    choice: &ServerChoice,
    program: &Program,
    around: &Around,
    files: PinnedFiles,
) -> Result<Arc<dyn Session>, NotStarted> {
    let room = Scratch::make().map_err(NotStarted::Here)?;
    let mut server = StdioServer::new(&program.command, room.path());
    if program.pin_program {
        // The very file that is looked at: the name may lead to another one by now.
        let found = found(choice, program, around).map_err(NotStarted::Here)?;
        files.only([found.as_path()]).map_err(|fault| NotStarted::There(fault.into()))?;
        server.program = found.into();
    }
    server.pinned = files;
    server.args = program.args.iter().map(OsString::from).collect();
    let inherited = program
        .inherit_env
        .iter()
        .filter_map(|name| crate::args::variable(name).map(|value| (OsString::from(name), value)));
    let stated = program.env.iter().map(|(name, value)| (name.into(), value.into()));
    // What the operator states goes before what is inherited.
    server.env =
        inherited.filter(|(name, _)| !program.env.keys().any(|own| name == own.as_str())).collect();
    server.env.extend(stated);
    if let Some(path) = &around.search_path {
        server.search_path.clone_from(path);
    }
    server.ours.clone_from(&around.ours);
    server.operators_home.clone_from(&around.home);
    let session = Stdio::connect(server, choice.connect).await;
    let session = session.map_err(NotStarted::There)?;
    Ok(Arc::new(Housed { session, _room: room }))
}

/// Opens a session with a server behind a URL, by a client that reaches nothing else and holds no other credential.
async fn reach(
    choice: &ServerChoice,
    remote: &RemoteServer,
    way: &EgressChoice,
) -> Result<Arc<dyn Session>, Failure> {
    let of_server = || format!("the MCP server `{}` cannot be used", choice.name);
    let refused = |fault: RulesFault| Failure::from(fault).of(&of_server());
    let unlocked = |fault: CredentialFault| {
        Failure::from(fault).of(&of_server()).hint("see [credentials] in the configuration")
    };
    let mut server = remote.server.clone();
    let rules = server.rules().map_err(refused)?;
    let (named, rules) = match (&remote.credential, &remote.login) {
        (Some((name, source)), _) => {
            let credential = source.open().map_err(unlocked)?;
            let credential = credential.only_to(&server.target.authority()).map_err(unlocked)?;
            (Some((name.as_str(), credential)), source.admit(rules).map_err(refused)?)
        }
        (None, Some(login)) => {
            let (token, rules) = login::token(choice, login, &server, rules)?;
            server.credential = Some(CredentialRef::bearer(choice.name.as_str()));
            (Some((choice.name.as_str(), token)), rules)
        }
        (None, None) => (None, rules),
    };
    let credentials = Credentials::new(named).map_err(unlocked)?;
    let rules = way.over(rules).map_err(refused)?;
    let egress = Egress::new(rules, credentials, Arc::new(SystemClock::new())).map_err(refused)?;
    let session = Http::connect(server, egress, choice.connect).await;
    Ok(Arc::new(session.map_err(|error| unusable(choice, &error))?))
}

/// A session in a folder of its own, which is removed when the server is gone.
struct Housed {
    session: Stdio,
    _room: Scratch,
}

impl Session for Housed {
    fn list(&self) -> BoxFuture<'_, Result<Listing, SessionError>> {
        self.session.list()
    }

    fn call<'a>(
        &'a self,
        tool: &'a str,
        arguments: Object,
        leave: Leave,
        told: Told<'a>,
    ) -> BoxFuture<'a, Result<Answer, CallFailure>> {
        self.session.call(tool, arguments, leave, told)
    }

    fn offers(&self, kind: OfferKind) -> BoxFuture<'_, Result<Vec<Offer>, SessionError>> {
        self.session.offers(kind)
    }

    fn ask<'a>(
        &'a self,
        asks: Asks,
        params: Object,
        deadline: Duration,
        told: Told<'a>,
    ) -> BoxFuture<'a, Result<Value, CallFailure>> {
        self.session.ask(asks, params, deadline, told)
    }

    fn changes(&self) -> u64 {
        self.session.changes()
    }

    fn has_ended(&self) -> bool {
        self.session.has_ended()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.session.close()
    }
}

/// All servers at once, in the order of the configuration.
pub(crate) async fn connect_all(
    choices: &[ServerChoice],
    around: &Around,
) -> Result<Vec<Result<Arc<dyn Session>, Failure>>, Failure> {
    let mut starting = JoinSet::new();
    for (place, choice) in choices.iter().cloned().enumerate() {
        let around = around.clone();
        starting.spawn(async move { (place, connect(&choice, &around).await) });
    }
    let mut all = Vec::with_capacity(choices.len());
    while let Some(joined) = starting.join_next().await {
        all.push(joined.map_err(|_| Failure::new(Code::Bug, "starting a server panicked"))?);
    }
    all.sort_by_key(|(place, _)| *place);
    Ok(all.into_iter().map(|(_, session)| session).collect())
}

/// What a server cannot be used for.
pub(crate) fn unusable(choice: &ServerChoice, error: &SessionError) -> Failure {
    if let SessionError::Files(fault) = error {
        return unfit(choice, fault);
    }
    Failure::new(Code::Server, format!("the MCP server `{}` cannot be used: {error}", choice.name))
        .hint("see [mcp.servers] in the configuration, and try it with `portcullis check`")
}

/// What was pinned of a server.
pub(crate) fn manifest(choice: &ServerChoice) -> Result<Manifest, Failure> {
    let Some(read) = read(choice)? else {
        let sentence = format!("the MCP server `{}` was never pinned", choice.name);
        let pin = format!("pin it with `portcullis pin {}`", choice.name);
        return Err(Failure::new(Code::Manifest, sentence).hint(pin));
    };
    own(choice, read.map_err(|error| misfit(choice, &error))?)
}

/// What was pinned of a server and is about to be pinned anew; nothing where there is nothing to compare with. A file
/// that is no manifest, or is another server's, is not overwritten.
pub(crate) fn former(choice: &ServerChoice) -> Result<Option<Manifest>, Failure> {
    match read(choice)? {
        None | Some(Err(ManifestError::Version | ManifestError::Edited(_))) => Ok(None),
        Some(Ok(manifest)) => own(choice, manifest).map(Some),
        Some(Err(error)) => Err(misfit(choice, &error).hint("move the file away, or name another")),
    }
}

/// The file as it is; nothing where there is none.
fn read(choice: &ServerChoice) -> Result<Option<Result<Manifest, ManifestError>>, Failure> {
    let looked = choice.manifest.symlink_metadata();
    if looked.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Ok(None);
    }
    Ok(Some(Manifest::read(FILE.read(&choice.manifest)?.as_bytes())))
}

fn misfit(choice: &ServerChoice, error: &ManifestError) -> Failure {
    Failure::new(Code::Manifest, format!("`{}`: {error}", choice.manifest.display()))
}

fn own(choice: &ServerChoice, manifest: Manifest) -> Result<Manifest, Failure> {
    if *manifest.server() == choice.name {
        return Ok(manifest);
    }
    let (path, other) = (choice.manifest.display(), manifest.server());
    let sentence = format!("`{path}` is the manifest of `{other}`, not of `{}`", choice.name);
    Err(Failure::new(Code::Manifest, sentence).hint("name another file with `manifest`"))
}

fn terms<'a>(
    choice: &'a ServerChoice,
    manifest: &'a Manifest,
    place: &'a str,
    taken: &'a BTreeSet<String>,
) -> Terms<'a> {
    Terms {
        manifest,
        rules: &choice.rules,
        place,
        deadline: choice.call,
        max_result_bytes: choice.max_result_bytes,
        taken,
    }
}

/// The tools of a server that fit its manifest and its rules, and what became of all.
pub(crate) async fn open(
    choice: &ServerChoice,
    session: Arc<dyn Session>,
    taken: &BTreeSet<String>,
) -> Result<(McpTools, LoadReport), Failure> {
    let (manifest, place) = (manifest(choice)?, choice.place());
    let terms = terms(choice, &manifest, &place, taken);
    let clock = Arc::new(SystemClock::new());
    McpTools::open(&choice.name, session, &terms, clock)
        .await
        .map_err(|error| unopened(choice, error))
}

/// What the server offers beside tools to hosts of a proxy, and what became of all that it offers.
pub(crate) async fn offers(
    choice: &ServerChoice,
    session: Arc<dyn Session>,
) -> Result<(McpOffers, Vec<OfferLine>), Failure> {
    let (manifest, place) = (manifest(choice)?, choice.place());
    let terms = offer_terms(choice, &manifest, &place);
    let clock = Arc::new(SystemClock::new());
    McpOffers::open(&choice.name, session, &terms, clock)
        .await
        .map_err(|error| unopened(choice, error))
}

fn unopened(choice: &ServerChoice, error: OpenError) -> Failure {
    match error {
        OpenError::Session(error) => unusable(choice, &error),
        OpenError::Manifest(error) => Failure::new(Code::Manifest, error.to_string()),
    }
}

fn offer_terms<'a>(
    choice: &'a ServerChoice,
    manifest: &'a Manifest,
    place: &'a str,
) -> OfferTerms<'a> {
    OfferTerms {
        manifest,
        rules: &choice.offers,
        place,
        deadline: choice.call,
        max_result_bytes: choice.max_result_bytes,
    }
}

/// The tools of a server by its manifest alone: nobody is connected.
pub(crate) fn look(
    choice: &ServerChoice,
    taken: &BTreeSet<String>,
) -> Result<PinnedTools, Failure> {
    let (manifest, place) = (manifest(choice)?, choice.place());
    PinnedTools::of(&choice.name, &terms(choice, &manifest, &place, taken))
        .and_then(|tools| tools.with_offers(&choice.name, &offer_terms(choice, &manifest, &place)))
        .map_err(|error| Failure::new(Code::Manifest, error.to_string()))
}

/// Nothing of a server can be called.
pub(crate) fn nothing(report: &LoadReport) -> Failure {
    let sentence = format!("no tool of the MCP server `{}` can be called", report.server);
    Failure::new(Code::NoTools, sentence).hint("`portcullis check` says why, a line for each tool")
}

/// What an operator should know before a run begins: what is refused, what looks like something else, what is worth a
/// look. What is not pinned or has no rule they left out themselves.
pub(crate) fn remarks(report: &LoadReport) -> impl Iterator<Item = String> {
    let told = report.lines.iter().filter(|line| {
        let warned = line.remarks.iter().any(|(severity, _)| *severity == Severity::Warning);
        match &line.fate {
            Fate::Refused(_) => true,
            Fate::Registered { .. } | Fate::Unclassified => warned,
            Fate::Unpinned { renamed_from, like } => renamed_from.is_some() || like.is_some(),
        }
    });
    told.map(|line| format!("of the MCP server `{}`, {line}", report.server))
}

/// The same of what a server offers beside tools: what a rule names and hosts are not shown.
pub(crate) fn offer_remarks(
    choice: &ServerChoice,
    lines: &[OfferLine],
) -> impl Iterator<Item = String> {
    let missing = |line: &&OfferLine| !matches!(line.fate, OfferFate::Shown | OfferFate::Unruled);
    lines.iter().filter(missing).map(|line| format!("of the MCP server `{}`, {line}", choice.name))
}
