//! Permits for tests of tools: through the same door as the engine's, with a store that only keeps.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use portcullis_canon::{Digest, Object};
use portcullis_domain::event::{Body, StepStarted};
use portcullis_domain::id::{RunId, StepId};
use portcullis_domain::lease::Epoch;
use portcullis_domain::permit::{Intent, Permit, commit};
use portcullis_domain::ports::{Append, Condition, Durability, NewEvent};
use portcullis_domain::question::Card;
use portcullis_domain::scope::Scope;
use portcullis_domain::standing::Standing;
use portcullis_domain::time::Timestamp;
use portcullis_domain::tool::EffectClass;

use crate::block_on;
use crate::recording_store::RecordingStore;

/// How long a call with such a permit may take.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// A permit for one call of `tool` in a run of its own.
///
/// ```
/// use portcullis_canon::Object;
///
/// let permit = portcullis_testkit::permit::permit_for("files.list", Object::new());
/// assert_eq!((permit.tool(), permit.start()), ("files.list", 1));
/// ```
pub fn permit_for(tool: &str, arguments: Object) -> Permit {
    permit_in_run(RunId::from_bytes([1; 16]), tool, arguments)
}

/// A permit for one call of `tool` in `run`; each is for another step.
///
/// # Panics
/// Never, unless the domain refuses an intent that fits its own rules.
#[expect(clippy::expect_used, reason = "a test cannot go on without its permit")]
pub fn permit_in_run(run: RunId, tool: &str, arguments: Object) -> Permit {
    let intent = intent(run, tool, arguments);
    let scope = Scope::of_file_owner();
    let receipt = block_on(commit(&RecordingStore::new(), &scope, intent));
    let (permit, _) =
        receipt.expect("the intent names its own call").into_permit(Standing::always());
    permit
}

fn intent(run: RunId, tool: &str, arguments: Object) -> Intent {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut id = [0_u8; 16];
    id[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    let step = StepId::from_bytes(id);
    let card = Card {
        capability: tool.to_owned(),
        tool: tool.to_owned(),
        arguments,
        spec: Digest::ZERO,
        effect: EffectClass::ReadOnly,
        source: false,
        sink: false,
        authority: Vec::new(),
        target: None,
        sandbox: None,
        rules: Vec::new(),
        reviewers: None,
    };
    let salt = b"a salt".to_vec();
    let call = card.call_digest(&salt);
    let deadline_ms = u64::try_from(DEADLINE.as_millis()).unwrap_or(u64::MAX);
    let body = Body::StepStarted(StepStarted { call, epoch: Epoch(1), deadline_ms, start: 1 });
    let at = Timestamp::from_micros(1_790_000_000_000_000);
    let append = Append {
        condition: Condition::Driver {
            run,
            seq: 1,
            epoch: Epoch(1),
            take: None,
            live_at: None,
            label_seq: None,
        },
        events: vec![NewEvent { stream: run.into(), step: Some(step), at, body }],
        contents: vec![],
        specs: vec![],
        durability: Durability::Synced,
    };
    Intent { run, step, card, salt, deadline: DEADLINE, append }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_carries_exactly_what_it_was_asked_for() {
        let run = RunId::from_bytes([7; 16]);
        let arguments = Object::from_iter([("path", "a")]);
        let one = permit_in_run(run, "t", arguments.clone());
        let two = permit_in_run(run, "t", arguments.clone());
        assert_eq!((one.run(), one.tool(), one.arguments()), (run, "t", &arguments));
        assert_eq!(one.call(), two.call());
        assert_ne!(one.step(), two.step());
    }

    #[test]
    fn the_store_keeps_what_the_permit_rests_on() {
        let store = RecordingStore::new();
        let intent = intent(RunId::from_bytes([7; 16]), "t", Object::new());
        let receipt = block_on(commit(&store, &Scope::of_file_owner(), intent)).unwrap();
        assert_eq!(receipt.committed().events.len(), 1);
        let _unused = receipt.into_permit(Standing::always());
        let appends = store.appends();
        assert_eq!(appends.len(), 1);
        assert_eq!(appends[0].durability, Durability::Synced);
    }
}
