//! The tools of a pinned server, for the gate: each call rests on a listing that was held against the pin.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use portcullis_canon::{Object, Value, sanitize};
use portcullis_domain::label::{Labels, Origin};
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{BoxFuture, Clock, Lack, ToolFailure, ToolOutput, ToolSource};
use portcullis_domain::recovery::ProbeAnswer;
use portcullis_domain::tool::ToolSpec;
use tokio::sync::Mutex;

use crate::answer::outcome;
use crate::listing::Listing;
use crate::offer::{McpOffers, OfferTerms};
use crate::pin::{
    LoadReport, Loaded, LoadedTool, OtherServer, Refused, ServerName, Terms, load, load_pinned,
};
use crate::progress::Board;
use crate::session::{Answer, CallFailure, Leave, NO_SUCH_RESOURCE, Session, SessionError};

/// How often a listing is asked for again because the tools changed while it came.
const MOST_LISTINGS: usize = 3;

/// The longest message about a call, in bytes.
const MAX_MESSAGE: usize = 1024;

/// Why a server's tools cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The manifest is not of this server.
    #[error(transparent)]
    Manifest(#[from] OtherServer),
    /// It could not be asked for its tools.
    #[error("the server {0}")]
    Session(#[from] SessionError),
}

/// The tools of one server that fit their pin and their rules.
pub struct McpTools {
    server: ServerName,
    session: Arc<dyn Session>,
    clock: Arc<dyn Clock>,
    /// By their registered names.
    tools: BTreeMap<String, LoadedTool>,
    held: Mutex<Held>,
    board: Arc<Board>,
}

/// What was found when the server's tools were last held against the pin.
struct Held {
    /// What [`Session::changes`] said then.
    changes: u64,
    /// Tools that no longer fit, by their registered names.
    drifted: BTreeMap<String, Refused>,
}

impl McpTools {
    /// Lists a server's tools, holds them against its terms and gives those that can be called, and a line for each.
    ///
    /// The clock bounds how long a call waits for a listing.
    ///
    /// # Errors
    /// [`OpenError`] when the server cannot be asked, or the manifest is another's.
    pub async fn open(
        server: &ServerName,
        session: Arc<dyn Session>,
        terms: &Terms<'_>,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, LoadReport), OpenError> {
        let (changes, live) = listed(session.as_ref()).await?;
        let Loaded { tools, report } = load(server, terms, &live)?;
        let tools = tools.into_iter().map(|tool| (tool.spec().name.clone(), tool)).collect();
        let held = Mutex::new(Held { changes, drifted: BTreeMap::new() });
        let board = Arc::default();
        Ok((Self { server: server.clone(), session, clock, tools, held, board }, report))
    }

    /// The same, whose calls say there how far they are.
    #[must_use]
    pub fn telling(mut self, board: Arc<Board>) -> Self {
        self.board = board;
        self
    }

    async fn perform(&self, permit: &Permit) -> Result<ToolOutput, ToolFailure> {
        let begun = self.clock.monotonic();
        let tool = self.tools.get(permit.tool());
        let tool = tool.ok_or_else(|| nothing("the server has no such tool"))?;
        let deadline = tool.spec().deadline();
        // Half of the time is for the call: a listing that takes longer is known to have changed nothing.
        let looked = select(self.verified(tool), self.clock.sleep(deadline / 2)).await;
        match looked {
            Either::Left((verified, _)) => verified?,
            Either::Right(_) => {
                return Err(nothing(
                    "the server had to list its tools again and did not in time: nothing was called",
                ));
            }
        }
        let arguments = server_arguments(tool, permit.arguments())?;
        let passed = Duration::from_micros(self.clock.monotonic().micros_since(begun));
        let left = deadline.saturating_sub(passed);
        let told = |progress| self.board.tell(permit.run(), progress);
        let leave = Leave { deadline: left, standing: permit.standing().clone() };
        let answer = self.session.call(tool.server_name(), arguments, leave, &told).await;
        let answer = answer.map_err(failure)?;
        let content = content(&answer, tool.spec())?;
        let origin = Origin::external(&format!("{}/{}", self.server, tool.server_name()));
        Ok(ToolOutput { content, labels: Some(Labels::of(origin)) })
    }

    /// Whether the tool is still what was pinned. Where the server said that its tools changed, or was started anew, it
    /// is asked for them again first, once for all calls that wait.
    fn verified<'a>(&'a self, tool: &'a LoadedTool) -> BoxFuture<'a, Result<(), ToolFailure>> {
        Box::pin(async move {
            let mut held = self.held.lock().await;
            if held.changes != self.session.changes() {
                let (changes, live) = listed(self.session.as_ref()).await.map_err(|error| {
                    // The server's own words, and places on this machine, are for the operator.
                    tracing::warn!(server = %self.server, "did not list its tools again: it {error}");
                    nothing("the server had to list its tools again and could not: nothing was called; the operator sees why")
                })?;
                *held = Held { changes, drifted: self.drifted(&live) };
            }
            // What changed is for the operator to read, and not for the agent: a stranger wrote it.
            held.drifted.get(&tool.spec().name).map_or(Ok(()), |why| {
                Err(nothing(&format!(
                    "the server changed this tool after it was pinned ({}): nothing was called; the operator sees what \
                     changed with `portcullis pin --diff {}`",
                    why.code(),
                    self.server
                )))
            })
        })
    }

    fn drifted(&self, live: &Listing) -> BTreeMap<String, Refused> {
        let unfit = self.tools.iter().filter_map(|(name, tool)| {
            let why = tool.verify(live).err()?;
            tracing::warn!(server = %self.server, tool = %name, "no longer as pinned: {why}");
            Some((name.clone(), why))
        });
        unfit.collect()
    }
}

impl ToolSource for McpTools {
    fn specs(&self) -> Vec<ToolSpec> {
        self.tools.values().map(|tool| tool.spec().clone()).collect()
    }

    /// The session is asynchronous.
    fn blocks(&self) -> bool {
        false
    }

    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move { self.perform(&permit).await })
    }
}

impl fmt::Debug for McpTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpTools").field("server", &self.server).finish_non_exhaustive()
    }
}

/// The tools of a server that nobody is connected to, to be looked at.
#[derive(Clone, Debug)]
pub struct PinnedTools(Vec<ToolSpec>);

impl PinnedTools {
    /// The tools as they would be if the server still offered what was pinned.
    ///
    /// # Errors
    /// [`OtherServer`] when the manifest is another's.
    pub fn of(server: &ServerName, terms: &Terms<'_>) -> Result<Self, OtherServer> {
        let loaded = load_pinned(server, terms)?;
        Ok(Self(loaded.tools.iter().map(|tool| tool.spec().clone()).collect()))
    }

    /// These, and the tools by which the hosts of a proxy have what else the server offers.
    ///
    /// # Errors
    /// [`OtherServer`] when the manifest is another's.
    pub fn with_offers(
        mut self,
        server: &ServerName,
        terms: &OfferTerms<'_>,
    ) -> Result<Self, OtherServer> {
        self.0.extend(McpOffers::specs_of(server, terms)?);
        Ok(self)
    }
}

impl ToolSource for PinnedTools {
    fn specs(&self) -> Vec<ToolSpec> {
        self.0.clone()
    }

    fn blocks(&self) -> bool {
        false
    }

    fn call(&self, _: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(std::future::ready(Err(nothing("nobody is connected to the server of this tool"))))
    }
}

/// A listing during which the server did not say that its tools changed, and the count at that time.
///
/// # Errors
/// [`SessionError`], also when they changed each of three times.
pub async fn listed(session: &dyn Session) -> Result<(u64, Listing), SessionError> {
    steady(session, "tools", || session.list()).await
}

/// What was listed while the server did not say that anything changed, and the count at that time.
pub(crate) async fn steady<T, L>(
    session: &dyn Session,
    what: &'static str,
    list: impl Fn() -> L,
) -> Result<(u64, T), SessionError>
where
    L: Future<Output = Result<T, SessionError>>,
{
    for _ in 0..MOST_LISTINGS {
        let before = session.changes();
        let live = list().await?;
        if session.changes() == before {
            return Ok((before, live));
        }
    }
    Err(SessionError::Unbounded(what, "they changed each time"))
}

/// The arguments as the server names them. What is fixed is in them already: it was checked and recorded with the rest.
fn server_arguments(tool: &LoadedTool, given: &Object) -> Result<Object, ToolFailure> {
    if tool.spec().fixed.iter().any(|(name, value)| given.get(name) != Some(value)) {
        return Err(nothing("a fixed argument has another value: nothing was called"));
    }
    let mut arguments = given.clone();
    for (new, old) in tool.renamed() {
        if arguments.contains_key(old) {
            return Err(nothing("an argument has a name that was replaced: nothing was called"));
        }
        if let Some(value) = arguments.remove(new) {
            arguments.insert(old, value);
        }
    }
    Ok(arguments)
}

/// A tool that only reads and answers whether something happened, as a probe does, gives that answer bare.
fn content(answer: &Answer, spec: &ToolSpec) -> Result<Vec<u8>, ToolFailure> {
    let most = usize::try_from(spec.max_result_bytes).unwrap_or(usize::MAX);
    let reads = !spec.effect.changes_something() && !answer.failed;
    let probed = answer.structured.as_ref().filter(|said| ProbeAnswer::read(said).is_some());
    let bare = probed.filter(|_| reads).map(Value::to_canonical);
    match bare.filter(|bytes| bytes.len() <= most) {
        Some(bytes) => Ok(bytes),
        None => outcome(answer, spec.max_result_bytes),
    }
}

/// What is known of a request that has no result.
pub(crate) fn failure(failure: CallFailure) -> ToolFailure {
    match failure {
        CallFailure::NotSent(message) => nothing(&message),
        CallFailure::Needs(needs) => {
            ToolFailure::Lacking { lack: needs.lack(), message: needs.to_string() }
        }
        CallFailure::NoSuchResource => {
            ToolFailure::Lacking { lack: Lack::Subject, message: NO_SUCH_RESOURCE.to_owned() }
        }
        CallFailure::Unknown(message) => ToolFailure::Unknown { message: one_line(&message) },
        CallFailure::Failed(message) => ToolFailure::Failed { message: one_line(&message) },
    }
}

pub(crate) fn nothing(message: &str) -> ToolFailure {
    ToolFailure::NothingHappened { message: one_line(message) }
}

fn one_line(message: &str) -> String {
    sanitize::clip(&sanitize::line(message), MAX_MESSAGE)
}

#[cfg(test)]
mod tests;
