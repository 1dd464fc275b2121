//! Tools that do what a test says: answer, fail, panic, answer late or never, with too much or with no JSON.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use portcullis_canon::{Object, Value};
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{BoxFuture, ToolFailure, ToolOutput, ToolSource};
use portcullis_domain::tool::{EffectClass, ToolSpec};

/// The most bytes of a result that the specs allow.
const MAX_RESULT_BYTES: u64 = 4_096;

/// What a tool does when it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Does {
    /// Answers with these bytes.
    Answer(Vec<u8>),
    /// Fails and changed nothing.
    Fail,
    /// Fails and says so in these words, whatever it changed before.
    Refuse(String),
    /// Fails and may have changed something.
    Unknown,
    /// Asks to end the run.
    Abort,
    /// Panics.
    Panic,
    /// Answers when the test lets it, however late that is; until then it keeps its thread.
    Hang,
    /// Never answers; it keeps no thread, unless the source blocks.
    Never,
}

impl Does {
    /// Answers with a JSON text of twice the bytes that its spec allows.
    #[must_use]
    pub fn too_much() -> Self {
        let bytes = usize::try_from(MAX_RESULT_BYTES).unwrap_or(usize::MAX).saturating_mul(2);
        Self::Answer(format!("\"{}\"", "x".repeat(bytes)).into_bytes())
    }

    /// Answers with what is no JSON, and no UTF-8 either.
    #[must_use]
    pub fn no_json() -> Self {
        Self::Answer(b"{\"ok\": \xff".to_vec())
    }
}

/// Tools named after their class: `look`, `write`, `send`, `burn`, and `end` and `finish`, which complete the run. Until
/// a test says otherwise each answers `{"ok":true}`. They take `n`, an integer, and `to`, a text of 64 characters at most.
///
/// ```
/// use portcullis_canon::Object;
/// use portcullis_domain::ports::{ToolFailure, ToolSource};
/// use portcullis_testkit::doubles::{Does, HostileTools};
/// use portcullis_testkit::{block_on, permit::permit_for};
///
/// let tools = HostileTools::new(false);
/// tools.set("send", Does::Unknown);
/// let answer = block_on(tools.call(permit_for("send", Object::new())));
/// assert!(matches!(answer, Err(ToolFailure::Unknown { .. })));
/// assert_eq!((tools.effects("send"), tools.effects("write")), (1, 0));
/// ```
#[derive(Debug)]
pub struct HostileTools {
    does: Mutex<BTreeMap<String, Does>>,
    /// What the next calls do, before what is set for all of them.
    first: Mutex<BTreeMap<String, VecDeque<Does>>>,
    more: Mutex<Vec<ToolSpec>>,
    effects: Mutex<BTreeMap<String, u32>>,
    seen: Mutex<Vec<Object>>,
    gate: (Mutex<bool>, Condvar),
    blocks: bool,
    description: Mutex<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HostileTools {
    /// Tools whose calls block, or do not.
    #[must_use]
    pub fn new(blocks: bool) -> Arc<Self> {
        Arc::new(Self {
            does: Mutex::default(),
            first: Mutex::default(),
            more: Mutex::default(),
            effects: Mutex::default(),
            seen: Mutex::default(),
            gate: (Mutex::new(false), Condvar::new()),
            blocks,
            description: Mutex::new("A tool.".to_owned()),
        })
    }

    /// What `tool` does from now on.
    pub fn set(&self, tool: &str, does: Does) {
        lock(&self.does).insert(tool.to_owned(), does);
    }

    /// What the next call of `tool` does, once, before what is set for all of them.
    pub fn first(&self, tool: &str, does: Does) {
        lock(&self.first).entry(tool.to_owned()).or_default().push_back(does);
    }

    /// One more tool.
    pub fn add(&self, spec: ToolSpec) {
        lock(&self.more).push(spec);
    }

    /// The added tool of that name as it is from now on.
    pub fn replace(&self, spec: ToolSpec) {
        let mut more = lock(&self.more);
        more.retain(|known| known.name != spec.name);
        more.push(spec);
    }

    /// The description in every spec from now on.
    pub fn describe(&self, text: &str) {
        text.clone_into(&mut lock(&self.description));
    }

    /// How often the tool was called.
    #[must_use]
    pub fn effects(&self, tool: &str) -> u32 {
        lock(&self.effects).get(tool).copied().unwrap_or(0)
    }

    /// The arguments of every call, in order.
    #[must_use]
    pub fn seen(&self) -> Vec<Object> {
        lock(&self.seen).clone()
    }

    /// Lets every hanging call answer.
    pub fn let_go(&self) {
        *lock(&self.gate.0) = true;
        self.gate.1.notify_all();
    }

    /// Counts a call, and says what it does.
    fn begin(&self, permit: &Permit) -> Does {
        // Read before the call is counted: whoever waits for the count may then set what the next call does.
        let first = lock(&self.first).get_mut(permit.tool()).and_then(VecDeque::pop_front);
        let does = first.or_else(|| lock(&self.does).get(permit.tool()).cloned());
        lock(&self.seen).push(permit.arguments().clone());
        let mut effects = lock(&self.effects);
        let times = effects.entry(permit.tool().to_owned()).or_insert(0);
        *times = times.saturating_add(1);
        does.unwrap_or_else(|| Does::Answer(br#"{"ok":true}"#.to_vec()))
    }

    #[expect(clippy::panic, reason = "what a test asked for")]
    async fn perform(&self, permit: Permit) -> Result<ToolOutput, ToolFailure> {
        let message = "as planned".to_owned();
        match self.begin(&permit) {
            Does::Answer(content) => Ok(ToolOutput { content, labels: None }),
            Does::Fail => Err(ToolFailure::NothingHappened { message }),
            Does::Refuse(message) => Err(ToolFailure::Failed { message }),
            Does::Unknown => Err(ToolFailure::Unknown { message }),
            Does::Abort => Err(ToolFailure::Abort { message }),
            Does::Panic => panic!("as planned"),
            Does::Hang => {
                let open = lock(&self.gate.0);
                let open = self.gate.1.wait_while(open, |open| !*open);
                drop(open.unwrap_or_else(PoisonError::into_inner));
                Ok(ToolOutput { content: br#"{"late":true}"#.to_vec(), labels: None })
            }
            Does::Never => std::future::pending().await,
        }
    }

    /// A spec as the others have it, with another name and class.
    #[must_use]
    pub fn spec(&self, name: &str, effect: EffectClass, terminal: bool) -> ToolSpec {
        let typed = |kind: &str| Object::from_iter([("type", kind)]);
        let mut to = typed("string");
        to.insert("maxLength", 64_u64);
        to.insert("default", "nobody");
        let mut properties = Object::new();
        properties.insert("n", typed("integer"));
        properties.insert("to", to);
        let mut schema = typed("object");
        schema.insert("additionalProperties", false);
        schema.insert("properties", properties);
        ToolSpec {
            name: name.to_owned(),
            description: lock(&self.description).clone(),
            input_schema: Value::Object(schema),
            effect,
            source: true,
            sink: effect.changes_something(),
            authority: vec!["/to".to_owned()],
            deadline_ms: 5_000,
            terminal,
            fixed: Object::new(),
            max_result_bytes: MAX_RESULT_BYTES,
            target: None,
            probe: None,
            idempotency_key: None,
        }
    }
}

impl ToolSource for HostileTools {
    fn specs(&self) -> Vec<ToolSpec> {
        let mut specs = vec![
            self.spec("look", EffectClass::ReadOnly, false),
            self.spec("write", EffectClass::LocalMutation, false),
            self.spec("send", EffectClass::RemoteMutation, false),
            self.spec("burn", EffectClass::Destructive, false),
            self.spec("end", EffectClass::ReadOnly, true),
            self.spec("finish", EffectClass::LocalMutation, true),
        ];
        specs.extend(lock(&self.more).iter().cloned());
        specs
    }

    fn blocks(&self) -> bool {
        self.blocks
    }

    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(self.perform(permit))
    }
}
