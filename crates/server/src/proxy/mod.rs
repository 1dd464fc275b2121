//! The gate in front of the tools of a host: each call is a run on a thread, and the rules across calls.
//!
//! Everything that these rules need is in the record. A request (tool, canonical arguments, and the word for a deliberate
//! repeat) has runs whose ids follow from thread, request and number, so that its last run is found by looking, and of
//! several that begin the next one, in whatever process, one does.

mod answer;
mod blocks;
mod completing;
mod drive;
mod fresh;
mod notices;
mod offers;
mod past;
mod rules;
mod status;
mod wakes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use portcullis_canon::{Object, Value};
use portcullis_domain::id::{QuestionId, RunId, ThreadId};
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::{AdvertisedTool, BoxFuture};
use portcullis_domain::question::QuestionKind;
use portcullis_domain::request::Request;
use portcullis_domain::scope::Scope;
use portcullis_domain::thread::conversation;
use portcullis_domain::tool::EffectClass;
use portcullis_engine::{Gate, GateError, Parts, Tools};
use portcullis_mcp::{
    Board, Hearing, HostAsk, HostCall, HostCompletion, HostMessage, HostRefusal, HostReply,
    HostResource, McpOffers, OfferKind, Served, ServedKinds, ServedTool,
};
use tokio::sync::{Mutex, watch};

use answer::Answer;
pub use completing::Completing;
use notices::Notices;
use offers::{Found, Offers};
use rules::Next;
pub use wakes::Wakes;

/// The `_meta` key by which a host names the conversation that a call belongs to.
pub const THREAD_KEY: &str = "portcullis/thread";

/// The `_meta` key by which a host says that a call is meant once more: another text, another call.
pub const REPEAT_KEY: &str = "portcullis/idempotency-key";

/// The agent that the record names for runs of a proxy.
pub const AGENT: &str = "mcp-proxy";

/// The most bytes of a name in `_meta`.
const MAX_NAME_BYTES: usize = 128;

/// Through which door a host names its thread: a hook's conversation of the same name is another one.
const DOOR: &str = "mcp";

/// The door of conversations that nobody names: a session over HTTP, or whoever has a token.
const CONNECTION_DOOR: &str = "mcp-http";

/// The most bytes of a tool's name that common hosts and models take.
const MAX_TOOL_NAME_BYTES: usize = 64;

/// How often the record is looked at while a call is held: another process may have written.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How often a held call says that it still waits.
const NOTICE_EVERY_US: u64 = 1_000_000;

/// How often a call is looked at anew because somebody else was first.
const MAX_TRIES: u32 = 16;

/// What an operator chooses.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whose runs they are.
    pub owner: String,
    /// The conversation of this connection; a new one where nobody names it.
    pub thread: Option<String>,
    /// How long a call that waits for a person is held before the host is told so.
    pub hold: Duration,
    /// How long the same change is not made again. Zero lets each call through.
    pub repeat_window: Duration,
    /// Questions of one thread that may wait at once. Proxies that ask at the same moment may pass it by one each.
    pub max_pending: u64,
    /// Calls that are on their way at once, those that are held included.
    pub max_calls: usize,
    /// The name of the tool that tells what waits and what became of it; none without one.
    pub status_tool: Option<String>,
    /// How long a question stays open, in milliseconds.
    pub question_ttl_ms: Option<u64>,
    /// How long a granted approval stays usable, in milliseconds.
    pub grant_ttl_ms: Option<u64>,
}

impl Settings {
    /// What holds unless something else is said.
    #[must_use]
    pub fn of(owner: &str) -> Self {
        Self {
            owner: owner.to_owned(),
            thread: None,
            hold: Duration::from_secs(15),
            repeat_window: Duration::from_mins(10),
            max_pending: 5,
            max_calls: 256,
            status_tool: Some("gate_status".to_owned()),
            question_ttl_ms: None,
            grant_ttl_ms: None,
        }
    }

    /// The bounds of one call's run: the call, and the word that ends it.
    fn limits(&self) -> Limits {
        Limits {
            max_steps: 3,
            question_ttl_ms: self.question_ttl_ms,
            grant_ttl_ms: self.grant_ttl_ms,
            ..Limits::default()
        }
    }
}

/// Why a proxy cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// Two tools would have one name.
    #[error("two tools would be called `{0}` by a host; rename one of them")]
    Repeated(String),
    /// Two servers would be asked for one resource.
    #[error(
        "the rules of the servers `{0}` and `{1}` let one resource be read of both; narrow one of them"
    )]
    Both(String, String),
    /// A name that hosts do not take.
    #[error("a host cannot call a tool `{0}`: a name has 1 to 64 letters, digits, `_` and `-`")]
    Name(String),
    /// The thread's name is empty or too long.
    #[error("the name of the thread has to be 1 to 128 bytes")]
    Thread,
}

/// Told what an operator has to know. It must not block.
pub trait Notes: Send + Sync {
    /// A person has to answer before the call of this tool can go on.
    fn asked(&self, question: QuestionId, kind: QuestionKind, tool: &str);

    /// Something is wrong that the host is told nothing of.
    fn fault(&self, error: &GateError);
}

/// One host's door to the gate.
pub struct Proxy {
    gate: Gate,
    scope: Scope,
    settings: Settings,
    notes: Arc<dyn Notes>,
    wakes: Arc<Wakes>,
    /// The connection's own thread.
    thread: ThreadId,
    /// The tools by the names that a host calls them.
    tools: BTreeMap<String, AdvertisedTool>,
    offers: Offers,
    board: Arc<Board>,
    closing: AtomicBool,
    /// Held by whoever is about to ask a person.
    asking: Mutex<()>,
    /// How many calls are on their way.
    open: watch::Sender<usize>,
}

/// What stands behind the MCP servers of a proxy beside their tools.
#[derive(Debug, Default)]
pub struct Servers {
    /// What hosts may have of them.
    pub offers: Vec<Arc<McpOffers>>,
    /// Where their calls say how far they are.
    pub board: Arc<Board>,
}

/// A call that has passed everything that needs no record, and the host that waits for it.
struct Asked<'a> {
    notices: Notices<'a>,
    tool: String,
    arguments: Object,
    thread: ThreadId,
    request: Request,
}

impl Asked<'_> {
    fn run(&self, number: u64) -> RunId {
        self.request.run(self.thread, number)
    }
}

impl Proxy {
    /// Opens the door. The parts' tools have to complete their runs ([`Completing`]), and `wakes` to observe the store. What
    /// the servers offer beside tools is served too; it has to be among the parts' tools.
    ///
    /// # Errors
    /// [`ProxyError`] for names that no host can call, or that mean two things.
    pub fn open(
        parts: Parts,
        settings: Settings,
        wakes: Arc<Wakes>,
        notes: Arc<dyn Notes>,
        servers: Servers,
    ) -> Result<Self, ProxyError> {
        let offers = Offers::new(servers.offers)?;
        let tools = by_host_name(&parts.tools, settings.status_tool.as_deref(), &offers)?;
        let thread = match &settings.thread {
            None => ThreadId::draw(parts.clock.now(), parts.entropy.as_ref()),
            Some(name) => named_thread(&settings.owner, name).ok_or(ProxyError::Thread)?,
        };
        Ok(Self {
            gate: Gate::new(parts),
            scope: Scope::of_file_owner(),
            settings,
            notes,
            wakes,
            thread,
            tools,
            offers,
            board: servers.board,
            closing: AtomicBool::new(false),
            asking: Mutex::new(()),
            open: watch::Sender::new(0),
        })
    }

    /// From now on no call is taken.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.wakes.wake();
    }

    /// Resolves once no call is on its way any more.
    pub async fn finished(&self) {
        let mut open = self.open.subscribe();
        // The sender lives as long as this does.
        let _ = open.wait_for(|open| *open == 0).await;
    }

    fn parts(&self) -> &Parts {
        self.gate.parts()
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// The thread of a call that names none: what the operator named, else the conversation that the transport stands for.
    fn own_thread(&self, connection: Option<&str>) -> ThreadId {
        match connection.filter(|_| self.settings.thread.is_none()) {
            Some(name) => conversation(&self.settings.owner, CONNECTION_DOOR, name),
            None => self.thread,
        }
    }

    /// Answers one call, whatever it is.
    async fn answer(&self, call: HostCall, hearing: &dyn Hearing) -> Answer {
        if Some(&call.tool) == self.settings.status_tool.as_ref() {
            return match self.thread_of(&call.meta, call.connection.as_deref()) {
                Some(thread) => self.status(thread, &call.arguments).await,
                None => Answer::bad_meta(THREAD_KEY),
            };
        }
        let Some(tool) = self.tools.get(&call.tool) else { return Answer::unknown_tool() };
        let ask = HostAsk { meta: call.meta, connection: call.connection };
        self.gated(&tool.name, call.arguments, ask, hearing).await
    }

    /// The conversation that a host means; nothing where it names one by what is no name.
    fn thread_of(&self, meta: &Object, connection: Option<&str>) -> Option<ThreadId> {
        match name_in(meta, THREAD_KEY).ok()? {
            None => Some(self.own_thread(connection)),
            Some(name) => named_thread(&self.settings.owner, name),
        }
    }

    /// Has one call of a tool pass the gate, and says what came of it.
    async fn gated(
        &self,
        tool: &str,
        arguments: Object,
        ask: HostAsk,
        hearing: &dyn Hearing,
    ) -> Answer {
        if self.is_closing() {
            return Answer::unavailable();
        }
        let Some(thread) = self.thread_of(&ask.meta, ask.connection.as_deref()) else {
            return Answer::bad_meta(THREAD_KEY);
        };
        let Ok(repeat) = name_in(&ask.meta, REPEAT_KEY) else {
            return Answer::bad_meta(REPEAT_KEY);
        };
        let request = Request::new(tool, &arguments, repeat);
        let (notices, tool) = (Notices::new(hearing), tool.to_owned());
        let asked = Asked { notices, tool, arguments, thread, request };
        self.hold(&asked).await
    }

    /// Does what the record says is next, and waits while that is for others to do, for as long as a call is held.
    async fn hold(&self, asked: &Asked<'_>) -> Answer {
        let clock = Arc::clone(&self.parts().clock);
        let begun = clock.monotonic();
        let hold_us = u64::try_from(self.settings.hold.as_micros()).unwrap_or(u64::MAX);
        let (mut tries, mut notices) = (0_u32, 0_u64);
        loop {
            // Before the look, so that nothing is missed between the two.
            let woken = self.wakes.next();
            let waits = match self.next(asked).await {
                Ok(Next::Answer(answer)) => return answer,
                Ok(Next::Again) => {
                    tries = tries.saturating_add(1);
                    if tries > MAX_TRIES {
                        return Answer::in_progress();
                    }
                    continue;
                }
                Ok(Next::Wait(answer)) => answer,
                Err(error) => {
                    self.notes.fault(&error);
                    return Answer::unavailable();
                }
            };
            let waited_us = clock.monotonic().micros_since(begun);
            if waited_us >= hold_us || self.is_closing() {
                return waits;
            }
            if waited_us / NOTICE_EVERY_US >= notices {
                notices = (waited_us / NOTICE_EVERY_US).saturating_add(1);
                asked.notices.waits(waits.notice()).await;
            }
            let left = Duration::from_micros(hold_us.saturating_sub(waited_us)).min(LOOK_EVERY);
            tokio::select! {
                () = woken => {}
                () = clock.sleep(left) => {}
                () = asked.notices.cancelled() => return waits,
            }
        }
    }
}

/// A name in `_meta`; `Err` for what is no text of 1 to 128 bytes.
fn name_in<'a>(meta: &'a Object, key: &str) -> Result<Option<&'a str>, ()> {
    let Some(value) = meta.get(key) else { return Ok(None) };
    let name = value.as_str().filter(|name| (1..=MAX_NAME_BYTES).contains(&name.len()));
    name.map(Some).ok_or(())
}

fn named_thread(owner: &str, name: &str) -> Option<ThreadId> {
    (1..=MAX_NAME_BYTES).contains(&name.len()).then(|| conversation(owner, DOOR, name))
}

/// The name by which hosts call a tool: models take letters, digits, `_` and `-`.
fn host_name(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    name.chars().map(|c| if plain(c) { c } else { '_' }).collect()
}

fn by_host_name(
    tools: &Tools,
    status: Option<&str>,
    offers: &Offers,
) -> Result<BTreeMap<String, AdvertisedTool>, ProxyError> {
    let mut named = BTreeMap::new();
    for tool in tools.shown().into_iter().filter(|tool| !offers.has_tool(&tool.name)) {
        let name = host_name(&tool.name);
        if name.len() > MAX_TOOL_NAME_BYTES {
            return Err(ProxyError::Name(name));
        }
        if status == Some(name.as_str()) || named.insert(name.clone(), tool).is_some() {
            return Err(ProxyError::Repeated(name));
        }
    }
    match status {
        Some(name)
            if name.is_empty() || name.len() > MAX_TOOL_NAME_BYTES || host_name(name) != name =>
        {
            Err(ProxyError::Name(name.to_owned()))
        }
        _ => Ok(named),
    }
}

/// A tool as a host is shown it. What is not known of its effect counts as the worst.
fn served(name: &str, tool: &AdvertisedTool, effect: Option<EffectClass>) -> ServedTool {
    ServedTool {
        name: name.to_owned(),
        description: tool.description.clone(),
        input_schema: tool.input_schema.clone(),
        read_only: effect.is_some_and(|effect| !effect.changes_something()),
        destructive: effect.is_none_or(|effect| effect > EffectClass::LocalMutation),
    }
}

/// Counts a call for as long as it is on its way, whatever becomes of it.
struct Counted<'a>(&'a watch::Sender<usize>);

impl<'a> Counted<'a> {
    fn new(open: &'a watch::Sender<usize>) -> Self {
        open.send_modify(|open| *open = open.saturating_add(1));
        Self(open)
    }

    /// How many there are, this one included.
    fn open(&self) -> usize {
        *self.0.borrow()
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open = open.saturating_sub(1));
    }
}

impl Served for Proxy {
    fn instructions(&self) -> String {
        answer::INSTRUCTIONS.to_owned()
    }

    fn tools(&self) -> Vec<ServedTool> {
        let specs: BTreeMap<&str, _> =
            self.parts().tools.specs().map(|spec| (spec.name.as_str(), spec.effect)).collect();
        let effect = |tool: &AdvertisedTool| specs.get(tool.name.as_str()).copied();
        let tools = self.tools.iter();
        let mut tools: Vec<_> =
            tools.map(|(name, tool)| served(name, tool, effect(tool))).collect();
        tools.extend(self.settings.status_tool.as_deref().map(status::tool));
        tools
    }

    fn tool(&self, name: &str) -> Option<ServedTool> {
        if Some(name) == self.settings.status_tool.as_deref() {
            return Some(status::tool(name));
        }
        let tool = self.tools.get(name)?;
        let spec = self.parts().tools.specs().find(|spec| spec.name == tool.name);
        Some(served(name, tool, spec.map(|spec| spec.effect)))
    }

    fn call<'a>(&'a self, call: HostCall, hearing: &'a dyn Hearing) -> BoxFuture<'a, HostReply> {
        Box::pin(async move {
            let counted = Counted::new(&self.open);
            if counted.open() > self.settings.max_calls || self.is_closing() {
                return Answer::unavailable().reply();
            }
            self.answer(call, hearing).await.reply()
        })
    }

    fn kinds(&self) -> ServedKinds {
        self.offers.kinds()
    }

    fn offers(&self, kind: OfferKind) -> Vec<Object> {
        self.offers.shown(kind)
    }

    fn read<'a>(
        &'a self,
        uri: String,
        ask: HostAsk,
        hearing: &'a dyn Hearing,
    ) -> BoxFuture<'a, Result<Vec<HostResource>, HostRefusal>> {
        Box::pin(async move {
            let found = self.offers.read(&uri).ok_or(HostRefusal::Unknown)?;
            self.had(found, ask, hearing).await.map(|value| blocks::resources(&value))
        })
    }

    fn prompt<'a>(
        &'a self,
        name: String,
        arguments: Object,
        ask: HostAsk,
        hearing: &'a dyn Hearing,
    ) -> BoxFuture<'a, Result<Vec<HostMessage>, HostRefusal>> {
        Box::pin(async move {
            let found = self.offers.prompt(&name, arguments).ok_or(HostRefusal::Unknown)?;
            self.had(found, ask, hearing).await.map(|value| blocks::messages(&value))
        })
    }

    fn complete<'a>(
        &'a self,
        params: Object,
        ask: HostAsk,
        hearing: &'a dyn Hearing,
    ) -> BoxFuture<'a, Result<HostCompletion, HostRefusal>> {
        Box::pin(async move {
            let found = self.offers.complete(params).ok_or(HostRefusal::Unknown)?;
            self.had(found, ask, hearing).await.map(|value| blocks::completion(&value))
        })
    }
}

impl Proxy {
    /// What a server gave, through the gate as each call goes; otherwise what the host is told of it.
    async fn had(
        &self,
        found: Found,
        ask: HostAsk,
        hearing: &dyn Hearing,
    ) -> Result<Value, HostRefusal> {
        let counted = Counted::new(&self.open);
        let answer = match counted.open() > self.settings.max_calls {
            true => Answer::unavailable(),
            false => self.gated(&found.tool, found.params, ask, hearing).await,
        };
        answer.given()
    }
}

/// A value as a text for a model: a text as it is, anything else as JSON.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_canonical_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_call_tools_by_names_that_models_take() {
        assert_eq!(host_name("files.read"), "files_read");
        assert_eq!(host_name("pay"), "pay");
        assert_eq!(host_name("schön"), "sch_n");
    }

    #[test]
    fn a_name_in_meta_is_a_short_text() {
        let mut meta = Object::new();
        assert_eq!(name_in(&meta, THREAD_KEY), Ok(None));
        meta.insert(THREAD_KEY, "a");
        assert_eq!(name_in(&meta, THREAD_KEY), Ok(Some("a")));
        for odd in [Value::from(""), Value::from(7_i64), Value::from("x".repeat(129))] {
            meta.insert(THREAD_KEY, odd);
            assert_eq!(name_in(&meta, THREAD_KEY), Err(()));
        }
    }
}
