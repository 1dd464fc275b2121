//! Reading a run back from its events alone: the stream hash by hash, and each call that a verdict was about, made again
//! from the recorded proposal and the recorded spec.
//!
//! No table is believed. An event has to be what its hash says and to follow from those before it, a content and a spec
//! have to be what their digests say, and a call made again has to have both digests that were recorded of it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use portcullis_canon::{Digest, Object};
use portcullis_domain::content::ContentRef;
use portcullis_domain::event::{Event, StepJudged};
use portcullis_domain::fold::RunState;
use portcullis_domain::id::RunId;
use portcullis_domain::ports::{EventFilter, Store, StoreError, StoredEvent};
use portcullis_domain::proposal::ProposalOrigin;
use portcullis_domain::refold::RefoldError;
use portcullis_domain::refusal::Refusal;
use portcullis_domain::scope::Scope;
use portcullis_domain::step::{Admitted, Step};
use portcullis_domain::stream::Stream;
use portcullis_domain::verdict::Reviewers;

use crate::admit::{Call, Written, admit_probe, card, readmit};
use crate::tools::Described;

/// Events of one page.
const PAGE: u32 = 128;

/// How many specs are kept at hand.
const MAX_SPECS: usize = 64;

/// Where the record of a run stops to be one: nothing behind it is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Its sequence in the journal, as stored.
    pub seq: i64,
    /// What does not hold.
    pub why: RefoldError,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the record does not hold at event {}: {}", self.seq, self.why)
    }
}

/// What is recorded, and is needed to make something again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Recorded {
    /// The salt that keys a run's digests.
    Salt,
    /// The goal of a run.
    Goal,
    /// A proposal's bytes.
    Proposal,
    /// What came back.
    Result,
    /// What is said of a run's end.
    Note,
}

impl Recorded {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Salt => "run's salt",
            Self::Goal => "goal",
            Self::Proposal => "proposal",
            Self::Result => "result",
            Self::Note => "note",
        }
    }
}

/// Why something cannot be made again from the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Obstacle {
    /// A content was erased, or is not there.
    #[error("the {} was erased, or is not there", .0.as_str())]
    ContentGone(Recorded),
    /// A content is not what its digest says.
    #[error("the {} is not what its digest says", .0.as_str())]
    ContentDamaged(Recorded),
    /// The tool's spec is not in the table of specs.
    #[error("the spec of its tool is not there")]
    SpecGone,
    /// The tool's spec is not what its digest says, or cannot be used.
    #[error("the spec of its tool is not what its digest says")]
    SpecDamaged,
    /// Proposal and spec do not make the call whose digests are recorded.
    #[error("the recorded proposal does not make the call that was judged")]
    CallDiffers,
    /// No policy of the identity that answered is at hand.
    #[error("no policy with the identity of the one that answered is at hand")]
    PolicyNotAtHand,
    /// The policy answered too late; what it said then was not recorded.
    #[error("the policy answered too late, and what it said is not recorded")]
    PolicyTimedOut,
}

impl Obstacle {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ContentGone(_) => "content_gone",
            Self::ContentDamaged(_) => "content_damaged",
            Self::SpecGone => "spec_gone",
            Self::SpecDamaged => "spec_damaged",
            Self::CallDiffers => "call_differs",
            Self::PolicyNotAtHand => "policy_not_at_hand",
            Self::PolicyTimedOut => "policy_timed_out",
        }
    }
}

/// Why there is nothing to hand on.
pub(crate) enum Fault {
    /// The store cannot be read.
    Store(StoreError),
    /// The record does not give it.
    Obstacle(Obstacle),
}

impl From<Obstacle> for Fault {
    fn from(obstacle: Obstacle) -> Self {
        Self::Obstacle(obstacle)
    }
}

/// The store's failures pass; what the record does not give is a value.
pub(crate) fn obstacle<T>(found: Result<T, Fault>) -> Result<Result<T, Obstacle>, StoreError> {
    match found {
        Ok(value) => Ok(Ok(value)),
        Err(Fault::Obstacle(obstacle)) => Ok(Err(obstacle)),
        Err(Fault::Store(error)) => Err(error),
    }
}

/// The record of an installation, as its scope may read it.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) scope: &'a Scope,
}

/// A run's events, one after another, each checked and folded before it is handed out.
pub(crate) struct Trace<'a> {
    source: Source<'a>,
    wanted: EventFilter,
    page: VecDeque<StoredEvent>,
    state: Option<Box<RunState>>,
    broken: Option<Broken>,
    ended: bool,
}

impl<'a> Trace<'a> {
    pub(crate) fn of(source: Source<'a>, run: RunId) -> Self {
        let wanted = EventFilter { stream: Some(Stream::from(run)), after: 0, limit: PAGE };
        Self { source, wanted, page: VecDeque::new(), state: None, broken: None, ended: false }
    }

    /// The state after the last event that was handed out; nothing before the first.
    pub(crate) fn state(&self) -> Option<&RunState> {
        self.state.as_deref()
    }

    /// Where the record stopped to be one, once that was met.
    pub(crate) const fn broken(&self) -> Option<Broken> {
        self.broken
    }

    /// The next event; nothing at the end, and none behind an event that does not hold.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, StoreError> {
        if self.ended {
            return Ok(None);
        }
        if self.page.is_empty() {
            self.page = self.source.store.events(self.source.scope, self.wanted).await?.into();
        }
        let Some(stored) = self.page.pop_front() else {
            self.ended = true;
            self.complete();
            return Ok(None);
        };
        match self.take(&stored) {
            Ok(event) => Ok(Some(event)),
            Err(why) => {
                self.ended = true;
                self.page.clear();
                self.broken = Some(Broken { seq: stored.journal_seq, why });
                Ok(None)
            }
        }
    }

    fn take(&mut self, stored: &StoredEvent) -> Result<Event, RefoldError> {
        let event = stored.event(self.source.store.instance())?;
        match &mut self.state {
            None => self.state = Some(Box::new(RunState::begin(&event)?)),
            Some(state) => state.apply(&event).map(drop)?,
        }
        self.wanted.after = event.link.journal_seq;
        Ok(event)
    }

    /// A stream that stops in the middle of an append is not a whole one.
    fn complete(&mut self) {
        let seq = i64::try_from(self.wanted.after).unwrap_or(i64::MAX);
        let owed = self.state.as_ref().and_then(|state| state.complete().err());
        self.broken = owed.map(|fold| Broken { seq, why: fold.into() });
    }
}

/// What is at hand of a run's contents and specs.
pub(crate) struct Shelf<'a> {
    source: Source<'a>,
    salt: Option<Vec<u8>>,
    specs: BTreeMap<Digest, Arc<Described>>,
}

impl<'a> Shelf<'a> {
    pub(crate) const fn of(source: Source<'a>) -> Self {
        Self { source, salt: None, specs: BTreeMap::new() }
    }

    /// A content's bytes, which its digest covers.
    pub(crate) async fn content(
        &self,
        reference: ContentRef,
        what: Recorded,
    ) -> Result<Vec<u8>, Fault> {
        match self.source.store.content(self.source.scope, reference.digest).await {
            Ok(Some(content)) if content.reference() == reference => Ok(content.into_bytes()),
            Ok(Some(_)) | Err(StoreError::Damaged { .. }) => {
                Err(Obstacle::ContentDamaged(what).into())
            }
            Ok(None) => Err(Obstacle::ContentGone(what).into()),
            Err(error) => Err(Fault::Store(error)),
        }
    }

    /// The run's salt.
    pub(crate) async fn salt(&mut self, reference: ContentRef) -> Result<Vec<u8>, Fault> {
        if let Some(salt) = &self.salt {
            return Ok(salt.clone());
        }
        let salt = self.content(reference, Recorded::Salt).await?;
        self.salt = Some(salt.clone());
        Ok(salt)
    }

    /// A recorded spec, which its digest covers.
    async fn spec(&mut self, digest: Digest) -> Result<Arc<Described>, Fault> {
        if let Some(known) = self.specs.get(&digest) {
            return Ok(Arc::clone(known));
        }
        let bytes = match self.source.store.spec(digest).await {
            Ok(bytes) => bytes.ok_or(Obstacle::SpecGone)?,
            Err(StoreError::Damaged { .. }) => return Err(Obstacle::SpecDamaged.into()),
            Err(error) => return Err(Fault::Store(error)),
        };
        let described = Described::recorded(&bytes).filter(|read| read.digest == digest);
        let described = Arc::new(described.ok_or(Obstacle::SpecDamaged)?);
        if self.specs.len() >= MAX_SPECS {
            self.specs.clear();
        }
        self.specs.insert(digest, Arc::clone(&described));
        Ok(described)
    }

    /// The bytes of a step's proposal.
    pub(crate) async fn proposal(&self, step: &Step) -> Result<Vec<u8>, Fault> {
        let reference = step.proposal.ok_or(Obstacle::CallDiffers)?;
        self.content(reference, Recorded::Proposal).await
    }

    /// The call that was admitted, made again: tool and arguments have the recorded request digest.
    pub(crate) async fn call(
        &mut self,
        state: &RunState,
        step: &Step,
        admitted: &Admitted,
    ) -> Result<Remade, Fault> {
        let salt = self.salt(state.run.salt).await?;
        let proposal = self.proposal(step).await?;
        let spec = self.spec(admitted.spec).await?;
        let written =
            Written::read(&proposal, step.request()).map_err(|_| Obstacle::CallDiffers)?;
        let found = written.places(step).find_map(|at| {
            let call = readmit(&written, at, step.id, &spec, &salt).ok();
            Some((recorded(call, &spec, admitted).ok()?, at))
        });
        let (call, at) = found.ok_or(Obstacle::CallDiffers)?;
        Ok(Remade { call, spec, made: Made::Proposal { written, at }, salt })
    }

    /// The call of a probe about a step's call, made again: what the spec of that call hands it.
    pub(crate) async fn probe(
        &mut self,
        state: &RunState,
        step: &Step,
        admitted: &Admitted,
    ) -> Result<Remade, Fault> {
        let about = step.admitted.as_ref().ok_or(Obstacle::CallDiffers)?;
        let about = self.call(state, step, about).await?;
        let probe = about.spec.spec.probe.as_ref().filter(|probe| probe.tool == admitted.tool);
        let arguments = probe.and_then(|probe| probe.arguments_for(&about.call.arguments));
        let arguments = arguments.ok_or(Obstacle::CallDiffers)?;
        let spec = self.spec(admitted.spec).await?;
        let origin = ProposalOrigin::Operator;
        let call = admit_probe(origin, arguments.clone(), step.id, &spec, &about.salt);
        let call = recorded(call, &spec, admitted)?;
        Ok(Remade { call, spec, made: Made::Probe(arguments), salt: about.salt })
    }
}

/// The call, if it is the one that was recorded.
fn recorded(call: Option<Call>, spec: &Described, admitted: &Admitted) -> Result<Call, Obstacle> {
    let same = call.filter(|call| {
        call.request == admitted.request
            && call.tool == admitted.tool
            && spec.spec.effect == admitted.effect
    });
    same.ok_or(Obstacle::CallDiffers)
}

/// What a call was made from.
enum Made {
    /// A proposal, and the place of the call in it.
    Proposal { written: Written, at: usize },
    /// What a tool's spec hands its probe.
    Probe(Object),
}

/// A call that was made again from the record.
pub(crate) struct Remade {
    pub(crate) call: Call,
    pub(crate) spec: Arc<Described>,
    made: Made,
    salt: Vec<u8>,
}

impl Remade {
    /// The call that the same would make with another spec of its tool.
    pub(crate) fn under(&self, step: &Step, spec: &Described) -> Result<Call, Refusal> {
        match &self.made {
            Made::Proposal { written, at } => readmit(written, *at, step.id, spec, &self.salt),
            Made::Probe(arguments) => {
                let origin = self.call.origin;
                let call = admit_probe(origin, arguments.clone(), step.id, spec, &self.salt);
                call.ok_or(Refusal::ArgumentsInvalid)
            }
        }
    }

    /// Whether it is the call that this verdict was recorded for, whole. One that was asked about again although the
    /// rules would let it happen is bound to those who were asked before.
    pub(crate) fn is_that_of(&self, judged: &StepJudged, asked: Option<&Reviewers>) -> bool {
        let mut made = card(&self.call, &self.spec, &judged.verdict);
        let bound = judged.admitted.call;
        if self.call.origin != judged.origin {
            return false;
        }
        if made.call_digest(&self.salt) == bound {
            return true;
        }
        made.reviewers = asked.cloned();
        asked.is_some() && made.call_digest(&self.salt) == bound
    }
}
