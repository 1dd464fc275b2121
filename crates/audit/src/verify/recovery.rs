//! What was done about an unknown outcome, against what its tool had declared for it.

use portcullis_canon::{Digest, Limits, from_slice};
use portcullis_domain::event::{ProbeCall, StepRestarted};
use portcullis_domain::fold::RunState;
use portcullis_domain::id::StepId;
use portcullis_domain::ports::StoreError;
use portcullis_domain::question::{Card, call_digest};
use portcullis_domain::tool::ToolSpec;

use super::report::{Break, Place};
use super::{Stop, Walk};

impl Walk<'_> {
    /// A call is started again by itself only when its receiver knows it by a key.
    pub(super) fn check_restart(
        &mut self,
        state: &RunState,
        restarted: &StepRestarted,
        step: Option<StepId>,
        at: Place,
    ) -> Result<(), Stop> {
        let keyed = self.spec_of(state, step)?.is_none_or(|spec| spec.idempotency_key.is_some());
        let why = "its tool declares no idempotency key, and it is started again by itself";
        if keyed && restarted.start > 1 { Ok(()) } else { self.not_admitted(at, why) }
    }

    /// A probe is the one that the tool names, and is shown as it was called.
    pub(super) fn check_probe(
        &mut self,
        state: &RunState,
        call: &ProbeCall,
        step: Option<StepId>,
        at: Place,
    ) -> Result<(), Stop> {
        let named = self
            .spec_of(state, step)?
            .is_none_or(|spec| spec.probe.is_some_and(|probe| probe.tool == call.admitted.tool));
        if !named {
            self.not_admitted(at, "it is not the probe that the tool of its step names")?;
        }
        let (card, salt) = (self.whole(call.card)?, self.whole(state.run.salt)?);
        let (Some(card), Some(salt)) = (card, salt) else {
            // Erased, or missing or changed, which is reported where the content is named.
            self.report.cards_unchecked += 1;
            return Ok(());
        };
        let shown = from_slice::<Card>(&card, &Limits::ENVELOPE).ok();
        let same = shown.is_some_and(|shown| {
            shown.tool == call.admitted.tool && shown.spec == call.admitted.spec
        });
        if same && call_digest(&card, &salt) == call.admitted.call {
            Ok(())
        } else {
            self.not_admitted(at, "the card of the probe is not the call that was made")
        }
    }

    /// The spec that a step's call was judged with; one that is missing or changed is reported where it is named.
    fn spec_of(
        &mut self,
        state: &RunState,
        step: Option<StepId>,
    ) -> Result<Option<ToolSpec>, Stop> {
        let row = state.batch.iter().find(|row| Some(row.id) == step);
        let Some(admitted) = row.and_then(|row| row.admitted.as_ref()) else { return Ok(None) };
        self.spec(admitted.spec)
    }

    fn spec(&mut self, digest: Digest) -> Result<Option<ToolSpec>, Stop> {
        let bytes = match self.reader.read(|ledger| ledger.spec(digest)) {
            Err(StoreError::Damaged { .. }) => None,
            stored => stored?,
        };
        Ok(bytes.and_then(|bytes| from_slice(&bytes, &Limits::ENVELOPE).ok()))
    }

    fn not_admitted(&mut self, at: Place, why: &str) -> Result<(), Stop> {
        self.broken(Break::NotAdmitted { at, why: why.to_owned() })
    }
}
