//! The world outside: tools that count what they do, and do not always do it, or say so.

use std::sync::Arc;
use std::time::Duration;

use portcullis_canon::{Limits, Object, Value, parse};
use portcullis_domain::id::StepId;
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{BoxFuture, Clock as _, ToolFailure, ToolOutput, ToolSource};
use portcullis_domain::recovery::{Found, Probe};
use portcullis_domain::tool::{EffectClass, ToolSpec};

use crate::log::{Effect, What};
use crate::planted::Planted;
use crate::world::World;

/// How long a call may take, in milliseconds.
pub(crate) const DEADLINE_MS: u64 = 4_000;

/// The tools with what they can change, and whether they complete their run.
pub(crate) const TOOLS: [(&str, EffectClass, bool); 9] = [
    ("look", EffectClass::ReadOnly, false),
    ("note", EffectClass::LocalMutation, false),
    ("finish", EffectClass::LocalMutation, true),
    ("peek", EffectClass::ReadOnly, false),
    ("send", EffectClass::RemoteMutation, false),
    ("wipe", EffectClass::Destructive, false),
    (KEYED, EffectClass::RemoteMutation, false),
    (PROBED, EffectClass::LocalMutation, false),
    (PROBE, EffectClass::ReadOnly, false),
];

/// The tool whose receiver knows a call by its key.
pub(crate) const KEYED: &str = "keyed";

/// The tool that can be asked about, and the one that is asked.
pub(crate) const PROBED: &str = "probed";
pub(crate) const PROBE: &str = "seen";

const SCHEMA: &str = r#"{"type":"object","additionalProperties":false,"properties":{
    "n":{"type":"integer"},"to":{"type":"string","maxLength":16,"default":"nobody"}}}"#;

/// The same with the parameter that the gate fills.
const KEYED_SCHEMA: &str = r#"{"type":"object","additionalProperties":false,"properties":{
    "n":{"type":"integer"},"to":{"type":"string","maxLength":16,"default":"nobody"},
    "key":{"type":"string","maxLength":64}}}"#;

/// Tools that are polled in the run's own task.
pub(crate) struct Reading(pub(crate) Arc<World>);

/// Tools that block a thread.
pub(crate) struct Writing(pub(crate) Arc<World>);

/// What a tool does when it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Answer,
    /// Nothing, and says so.
    Nothing,
    /// Loses its connection, after or before it did something.
    Lose {
        done: bool,
    },
    /// Panics, after or before.
    Panic {
        done: bool,
    },
    /// Nothing, and ends the run.
    Abort,
    /// Something, and answers with what is no JSON.
    Garble,
    /// Something, but is longer about it than it may.
    Dawdle,
}

fn specs(among: &[&str]) -> Vec<ToolSpec> {
    let tools = TOOLS.iter().filter(|(name, ..)| among.contains(name));
    tools
        .map(|(name, effect, terminal)| ToolSpec {
            name: (*name).to_owned(),
            description: "A tool of the simulated world.".to_owned(),
            input_schema: schema(name),
            effect: *effect,
            source: true,
            sink: effect.changes_something(),
            authority: vec!["/to".to_owned()],
            deadline_ms: DEADLINE_MS,
            terminal: *terminal,
            fixed: Object::new(),
            max_result_bytes: 1_024,
            target: None,
            probe: (*name == PROBED).then(|| Probe { tool: PROBE.to_owned(), arguments: None }),
            idempotency_key: (*name == KEYED).then(|| "key".to_owned()),
        })
        .collect()
}

fn schema(tool: &str) -> Value {
    let text = if tool == KEYED { KEYED_SCHEMA } else { SCHEMA };
    parse(text.as_bytes(), &Limits::BARE).unwrap_or(Value::Null)
}

fn drawn(world: &World, permit: &Permit, blocks: bool) -> Does {
    // Of those whose outcome somebody can find out, more is lost.
    let often = [KEYED, PROBED].contains(&permit.tool());
    let rate = world.mood().tool * if often { 2 } else { 1 };
    world.draw(|draw| {
        if !draw.chance(rate) {
            return Does::Answer;
        }
        let done = draw.chance(500);
        let kinds = [
            (4, Does::Nothing),
            (3, Does::Lose { done }),
            (3, Does::Panic { done }),
            (1, Does::Abort),
            (1, Does::Garble),
            // A thread that blocks is late when the scheduler lets it wait.
            (if blocks { 0 } else { 4 }, Does::Dawdle),
        ];
        draw.weighted(&kinds).unwrap_or(Does::Answer)
    })
}

/// Whether something was changed for a step.
pub(crate) fn happened(world: &World, step: StepId) -> bool {
    world.with_log(|log| {
        log.iter().any(|entry| match &entry.what {
            What::Effect(effect) => effect.step == step && effect.is_a_change(),
            _ => false,
        })
    })
}

/// Whether something was done for a call with this key.
fn knows(world: &World, key: &str) -> bool {
    world.with_log(|log| {
        log.iter().any(|entry| match &entry.what {
            What::Effect(effect) => effect.key.as_deref() == Some(key),
            _ => false,
        })
    })
}

/// Does the thing, and counts it.
fn act(world: &World, permit: &Permit) {
    let class = TOOLS.iter().find(|(name, ..)| *name == permit.tool()).map(|(_, class, _)| *class);
    let key = permit.arguments().get("key").and_then(Value::as_str).map(str::to_owned);
    let known = key.as_deref().is_some_and(|key| knows(world, key));
    let effect = Effect {
        run: permit.run(),
        step: permit.step(),
        start: permit.start(),
        call: permit.call(),
        tool: permit.tool().to_owned(),
        changes: class.is_none_or(EffectClass::changes_something),
        key,
        known,
    };
    world.count(match (effect.changes, known) {
        (true, false) => "effect",
        (true, true) => "call known by its key",
        (false, _) => "look",
    });
    if world.planted == Some(Planted::CallMadeTwice) && world.chance(100) {
        world.log(What::Effect(effect.clone()));
    }
    world.log(What::Effect(effect));
    let pid = world.executor.current();
    if world.chance(world.mood().crash.saturating_mul(6)) {
        world.note("the process is going to die before anything else");
        world.doom(pid, true);
    }
}

fn conclude(world: &World, permit: &Permit, does: Does) -> Result<ToolOutput, ToolFailure> {
    let message = "as planned".to_owned();
    if matches!(does, Does::Lose { done: false } | Does::Panic { done: false }) {
        world.note(format!("{} fails before it did anything", permit.tool()));
    } else if !matches!(does, Does::Nothing | Does::Abort) {
        act(world, permit);
    }
    if permit.tool() == PROBE {
        return probe(world, permit, does);
    }
    match does {
        Does::Answer | Does::Dawdle => {
            Ok(ToolOutput { content: br#"{"ok":true}"#.to_vec(), labels: None })
        }
        Does::Garble => {
            world.count("outcome is no strict JSON");
            Ok(ToolOutput { content: b"{\"ok\":".to_vec(), labels: None })
        }
        Does::Lose { .. } => {
            world.count("tool lost its connection");
            Err(ToolFailure::Unknown { message })
        }
        Does::Panic { .. } => {
            world.count("tool panicked");
            // Without the hook that would print each of them.
            std::panic::resume_unwind(Box::new("as planned"))
        }
        Does::Nothing => {
            world.count("tool failed and did nothing");
            world.log(What::SaidNothing { step: permit.step(), start: permit.start() });
            Err(ToolFailure::NothingHappened { message })
        }
        Does::Abort => {
            world.count("tool ended its run");
            world.log(What::SaidNothing { step: permit.step(), start: permit.start() });
            Err(ToolFailure::Abort { message })
        }
    }
}

/// What the receiver says about a call: the truth as it is now, or nothing of use.
fn probe(world: &World, permit: &Permit, does: Does) -> Result<ToolOutput, ToolFailure> {
    let about = happened(world, permit.step());
    let (content, says) = match does {
        Does::Answer | Does::Dawdle if about => (r#"{"happened":true,"result":{"ok":true}}"#, true),
        Does::Answer | Does::Dawdle => (r#"{"happened":false}"#, true),
        Does::Garble => (r#"{"happened":"perhaps"}"#, false),
        _ => {
            world.count("tool lost its connection");
            return Err(ToolFailure::Unknown { message: "as planned".to_owned() });
        }
    };
    // An agent that calls it by itself asks about no call.
    if permit.start() == 0 {
        let found = match (says, about) {
            (true, true) => Found::Happened,
            (true, false) => Found::DidNotHappen,
            (false, _) => Found::Unknown,
        };
        world.log(What::Told { step: permit.step(), found });
    }
    Ok(ToolOutput { content: content.as_bytes().to_vec(), labels: None })
}

impl ToolSource for Reading {
    fn specs(&self) -> Vec<ToolSpec> {
        specs(&["look", "note", "finish", PROBED, PROBE])
    }

    fn blocks(&self) -> bool {
        false
    }

    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            let world = &self.0;
            let does = drawn(world, &permit, false);
            let before = world.draw(|draw| draw.chance(300).then(|| draw.below(1_500)));
            if let Some(ms) = before {
                world.clock.sleep(Duration::from_millis(ms)).await;
            }
            if does == Does::Dawdle {
                world.count("tool was overdue");
                let ms = world.draw(|draw| draw.between(DEADLINE_MS, 5 * DEADLINE_MS));
                world.clock.sleep(Duration::from_millis(ms)).await;
            }
            conclude(world, &permit, does)
        })
    }
}

impl ToolSource for Writing {
    fn specs(&self) -> Vec<ToolSpec> {
        specs(&["peek", "send", "wipe", KEYED])
    }

    fn blocks(&self) -> bool {
        true
    }

    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            let does = drawn(&self.0, &permit, true);
            conclude(&self.0, &permit, does)
        })
    }
}
