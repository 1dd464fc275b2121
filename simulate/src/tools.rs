//! The world outside: tools that count what they do, and do not always do it, or say so.

use std::sync::Arc;
use std::time::Duration;

use portcullis_canon::{Limits, Object, Value, parse};
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{BoxFuture, Clock as _, ToolFailure, ToolOutput, ToolSource};
use portcullis_domain::tool::{EffectClass, ToolSpec};

use crate::log::{Effect, What};
use crate::planted::Planted;
use crate::world::World;

/// How long a call may take, in milliseconds.
pub(crate) const DEADLINE_MS: u64 = 4_000;

/// The tools with what they can change, and whether they complete their run.
pub(crate) const TOOLS: [(&str, EffectClass, bool); 6] = [
    ("look", EffectClass::ReadOnly, false),
    ("note", EffectClass::LocalMutation, false),
    ("finish", EffectClass::LocalMutation, true),
    ("peek", EffectClass::ReadOnly, false),
    ("send", EffectClass::RemoteMutation, false),
    ("wipe", EffectClass::Destructive, false),
];

const SCHEMA: &str = r#"{"type":"object","additionalProperties":false,"properties":{
    "n":{"type":"integer"},"to":{"type":"string","maxLength":16,"default":"nobody"}}}"#;

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
            input_schema: parse(SCHEMA.as_bytes(), &Limits::BARE).unwrap_or(Value::Null),
            effect: *effect,
            source: true,
            sink: effect.changes_something(),
            authority: vec!["/to".to_owned()],
            deadline_ms: DEADLINE_MS,
            terminal: *terminal,
            fixed: Object::new(),
            max_result_bytes: 1_024,
            target: None,
            probe: None,
            idempotency_key: None,
        })
        .collect()
}

fn drawn(world: &World, blocks: bool) -> Does {
    let rate = world.mood().tool;
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

/// Does the thing, and counts it.
fn act(world: &World, permit: &Permit) {
    let class = TOOLS.iter().find(|(name, ..)| *name == permit.tool()).map(|(_, class, _)| *class);
    let effect = Effect {
        run: permit.run(),
        step: permit.step(),
        start: permit.start(),
        call: permit.call(),
        tool: permit.tool().to_owned(),
        changes: class.is_none_or(EffectClass::changes_something),
    };
    world.count(if effect.changes { "effect" } else { "look" });
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

impl ToolSource for Reading {
    fn specs(&self) -> Vec<ToolSpec> {
        specs(&["look", "note", "finish"])
    }

    fn blocks(&self) -> bool {
        false
    }

    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            let world = &self.0;
            let does = drawn(world, false);
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
        specs(&["peek", "send", "wipe"])
    }

    fn blocks(&self) -> bool {
        true
    }

    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            let does = drawn(&self.0, true);
            conclude(&self.0, &permit, does)
        })
    }
}
