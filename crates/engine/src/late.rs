//! Late outcomes: what came back when nothing waited for it any more. They add a fact and change nothing.

use portcullis_domain::event::{Body, OutcomeLate};
use portcullis_domain::id::{RunId, StepId};
use portcullis_domain::label::{Labels, Origin};
use portcullis_domain::lease::Epoch;
use portcullis_domain::observation::Failure;
use portcullis_domain::ports::{Append, Condition, Disposition, Durability, NewEvent, ToolFailure};
use portcullis_domain::scope::Scope;
use portcullis_domain::tool::ToolSpec;

use crate::core::Core;
use crate::effect::Running;
use crate::observe::{Observer, Outcome};
use crate::parts::Parts;

/// How often a late outcome is offered to a store that cannot take it just now.
const MAX_TRIES: u32 = 20;

/// Appends a late outcome. A store that does not take it in the end is logged: the intent is in the record.
pub(crate) async fn record(
    parts: &Parts,
    scope: &Scope,
    run: RunId,
    step: StepId,
    epoch: Epoch,
    outcome: Outcome,
) {
    let body = Body::OutcomeLate(OutcomeLate { epoch, observation: outcome.observation });
    let event = NewEvent { stream: run.into(), step: Some(step), at: parts.clock.now(), body };
    for tries in 1..=MAX_TRIES {
        let append = Append {
            condition: Condition::Late,
            events: vec![event.clone()],
            contents: vec![outcome.content.clone()],
            specs: Vec::new(),
            durability: Durability::Synced,
        };
        match parts.store.append(scope, append).await {
            Ok(_) => return,
            Err(error) if error.disposition() == Disposition::Retry && tries < MAX_TRIES => {
                parts.clock.sleep(std::time::Duration::from_millis(25 * u64::from(tries))).await;
            }
            Err(error) => {
                tracing::error!(%run, %step, %error, "a late outcome could not be recorded");
                return;
            }
        }
    }
}

/// Waits beside the run for a call that the run does not wait for any more, and records what came of it.
pub(crate) fn watch(core: &Core, step: StepId, running: Running, spec: ToolSpec) {
    let (parts, scope, salt) = (core.parts.clone(), core.scope.clone(), core.salt.clone());
    let (run, epoch) = (core.run_id(), core.epoch);
    tracing::warn!(%run, %step, tool = spec.name, "a call that has not answered is abandoned");
    let spawn = std::sync::Arc::clone(&parts.spawn);
    let watch = async move {
        let observer = Observer { salt: &salt, entropy: parts.entropy.as_ref() };
        let external = Labels::of(Origin::external(&spec.name));
        let outcome = match running.answer().await {
            Some(Ok(output)) => observer.answered(&spec, output),
            Some(Err(ToolFailure::NothingHappened { message })) => {
                observer.failed(Failure::Error, &message, external)
            }
            Some(Err(ToolFailure::Lacking { lack, message })) => {
                observer.lacking(&lack, &message, external)
            }
            Some(Err(ToolFailure::Failed { message })) => observer.refused(&spec, &message),
            Some(Err(ToolFailure::Unknown { message })) => {
                observer.failed(Failure::LostConnection, &message, external)
            }
            Some(Err(ToolFailure::Abort { message })) => {
                observer.failed(Failure::Abort, &message, external)
            }
            None => observer.failed(Failure::Panic, "the tool panicked", Labels::none()),
        };
        record(&parts, &scope, run, step, epoch, outcome).await;
    };
    if spawn.spawn(Box::pin(watch)).is_err() {
        tracing::error!(%run, %step, "nobody is left to wait for a late outcome");
    }
}
