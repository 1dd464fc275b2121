//! The one call of the model: its tool, its card, the people who are asked, and the appends that are about it.

use std::collections::BTreeMap;
use std::time::Duration;

use portcullis_audit::keys::{KeyEntry, Keyring, SigningKey};
use portcullis_audit::{Options, verify};
use portcullis_canon::{Digest, Kind, Object};
use portcullis_domain::approval::{Answer, Statement};
use portcullis_domain::content::Content;
use portcullis_domain::event::{
    Body, LeaseAcquired, LeaseCause, LeaseReleased, QuestionAnswered, QuestionAsked, RunCreated,
    RunFinished, StepFinished, StepJudged, StepOpened, StepProposed, ThreadOpened,
};
use portcullis_domain::fold::RunState;
use portcullis_domain::id::{QuestionId, RunId, StepId, ThreadId};
use portcullis_domain::label::Labels;
use portcullis_domain::lease::{Epoch, Holder};
use portcullis_domain::limits::Limits;
use portcullis_domain::observation::{Failure, Observation, ObservationKind};
use portcullis_domain::ports::{
    Append, Condition, Durability, Entropy, Ledgers as _, NewEvent, Policy as _, ProposedCall,
    Store as _, TakeLease,
};
use portcullis_domain::proposal::ProposalOrigin;
use portcullis_domain::question::{Card, Question, QuestionKind, Terms};
use portcullis_domain::run::{EndReason, FrozenTool};
use portcullis_domain::scope::Scope;
use portcullis_domain::step::{Admitted, StepStatus};
use portcullis_domain::time::Timestamp;
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_domain::verdict::{Facts, OnRejection, Reviewers, Verdict};
use portcullis_policy::{ClassTable, Outcome};
use portcullis_store::memory::MemoryStore;
use portcullis_testkit::ports::{FixedProcesses, SeededEntropy};

use super::Who;

pub(crate) const RUN: RunId = RunId::from_bytes([1; 16]);
const THREAD: ThreadId = ThreadId::from_bytes([2; 16]);
pub(crate) const STEP: StepId = StepId::from_bytes([3; 16]);
const TOOL: &str = "send";
const ROLE: &str = "operator";
const OWNER: &str = "ann";
const PEOPLE: [&str; 2] = ["ben", "dan"];
const BEGIN: Timestamp = Timestamp::from_micros(1_790_000_000_000_000);
/// Terms of leases, questions and grants.
pub(crate) const TERM: Duration = Duration::from_secs(10);
/// What the clock leaps at once.
pub(crate) const LEAP: Duration = Duration::from_secs(25);

/// Everything about the call that no state changes.
pub(crate) struct Call {
    pub(crate) scope: Scope,
    pub(crate) spec: ToolSpec,
    pub(crate) salt: Content,
    proposal: Content,
    pub(crate) ring: Keyring,
    keys: BTreeMap<&'static str, SigningKey>,
}

/// What an append holds beside its condition.
pub(crate) type Batch = (Vec<NewEvent>, Vec<Content>);

/// Bytes that only depend on what is recorded already, so that the same record is the same bytes.
pub(crate) fn entropy(seq: u64) -> SeededEntropy {
    SeededEntropy::new(seq)
}

impl Call {
    pub(crate) fn new() -> Self {
        let drawn = entropy(u64::MAX);
        let keys: BTreeMap<_, _> = PEOPLE.map(|name| (name, SigningKey::generate(&drawn))).into();
        let entries = keys.iter().map(|(name, key)| KeyEntry::new(key.public(), name, [ROLE]));
        let mut salt = vec![0; 32];
        drawn.fill(&mut salt);
        Self {
            scope: Scope::of_file_owner(),
            spec: spec(),
            salt: Content::seal(salt, &drawn),
            proposal: Content::seal(b"{}".to_vec(), &drawn),
            // Two different keys can always be put together.
            ring: Keyring::new(entries).unwrap_or_default(),
            keys,
        }
    }

    /// The policy: nobody is asked, or so many.
    pub(crate) fn rules(reviewers: u32) -> ClassTable {
        let outcome = match reviewers {
            0 => Outcome::Allow,
            count => Outcome::ask(ROLE, count).unwrap_or(Outcome::Deny),
        };
        ClassTable::empty().with(EffectClass::RemoteMutation, outcome)
    }

    pub(crate) fn event(at: Timestamp, step: bool, body: Body) -> NewEvent {
        NewEvent { stream: RUN.into(), step: step.then_some(STEP), at, body }
    }

    /// A store with one run, whose step has a proposal and which nobody holds.
    pub(crate) fn begin(&self, rules: &ClassTable) -> Option<(MemoryStore, Timestamp)> {
        let store = MemoryStore::new(BEGIN, &entropy(u64::MAX - 1));
        let drawn = entropy(0);
        let goal = Content::seal(b"send it".to_vec(), &drawn);
        let created = RunCreated {
            owner: OWNER.to_owned(),
            thread: THREAD,
            parent: None,
            root: RUN,
            goal: goal.reference(),
            salt: self.salt.reference(),
            limits: Limits::default(),
            tools: vec![FrozenTool { name: TOOL.to_owned(), spec: self.spec.digest() }],
            policy: rules.id(),
            agent: "model".to_owned(),
            unconfined_agent: false,
        };
        let opened = Body::ThreadOpened(ThreadOpened { owner: OWNER.to_owned() });
        let epoch = Epoch::NONE.next();
        let proposed = StepProposed { proposal: self.proposal.reference() };
        let body = |step, body| Self::event(BEGIN, step, body);
        let events = vec![
            NewEvent { stream: THREAD.into(), step: None, at: BEGIN, body: opened },
            body(false, Body::RunCreated(created)),
            body(false, Self::lease(epoch, 2, LeaseCause::Begin)),
            body(true, Body::StepOpened(StepOpened { index: 0, batch: 1, batch_index: 0 })),
            body(true, Body::StepProposed(proposed)),
            body(false, Body::LeaseReleased(LeaseReleased { epoch })),
        ];
        let take = TakeLease { now: BEGIN, until: BEGIN.after(TERM), holder_dead: false };
        let condition = Condition::Driver {
            run: RUN,
            seq: 0,
            epoch: Epoch::NONE,
            take: Some(take),
            live_at: None,
            label_seq: None,
        };
        let append = Append {
            condition,
            events,
            contents: vec![goal, self.salt.clone(), self.proposal.clone()],
            specs: vec![self.spec.canonical()],
            durability: Durability::Synced,
        };
        portcullis_testkit::block_on(store.append(&self.scope, append)).ok()?;
        Some((store, BEGIN))
    }

    pub(crate) fn lease(epoch: Epoch, who: Who, cause: LeaseCause) -> Body {
        let pid = u32::try_from(who).unwrap_or(u32::MAX);
        let holder =
            Holder { process: FixedProcesses::identity(pid), nonce: format!("{:032x}", epoch.0) };
        Body::LeaseAcquired(LeaseAcquired { epoch, holder, cause })
    }

    /// What the policy says now, and the card for it.
    pub(crate) fn judge(&self, rules: &ClassTable, state: &RunState) -> Option<(StepJudged, Card)> {
        let arguments = Object::new();
        let facts = Facts {
            tenant: self.scope.tenant().clone(),
            owner: OWNER.to_owned(),
            origin: ProposalOrigin::Model,
            steps: 0,
            failures: state.run.failures,
            denials: state.run.denials,
            active_us: 0,
            labels: Labels::none(),
            label_seq: 0,
        };
        let proposed = ProposedCall { tool: &self.spec, arguments: &arguments };
        let verdict = rules.decide(&proposed, &facts).ok()?;
        let card = Card {
            capability: TOOL.to_owned(),
            tool: TOOL.to_owned(),
            arguments,
            spec: self.spec.digest(),
            effect: self.spec.effect,
            source: self.spec.source,
            sink: self.spec.sink,
            authority: Vec::new(),
            target: None,
            sandbox: None,
            rules: verdict.rules().to_vec(),
            reviewers: reviewers(&verdict),
        };
        let admitted = Admitted {
            tool: TOOL.to_owned(),
            spec: self.spec.digest(),
            effect: self.spec.effect,
            request: Digest::of(Kind::Arguments, b"{}"),
            call: card.call_digest(self.salt.bytes()),
        };
        let judged = StepJudged {
            origin: ProposalOrigin::Model,
            admitted,
            verdict,
            policy: rules.id(),
            facts,
        };
        Some((judged, card))
    }

    /// A question about the card.
    pub(crate) fn ask(
        &self,
        store: &MemoryStore,
        state: &RunState,
        now: Timestamp,
        card: &Card,
        kind: QuestionKind,
    ) -> Option<Batch> {
        let drawn = entropy(state.run.seq);
        let id = QuestionId::draw(now, &drawn);
        let asked = card.asks(kind)?;
        let call = card.call_digest(self.salt.bytes());
        let expires_at = Some(now.after(TERM));
        let grant_ttl_ms = u64::try_from(TERM.as_millis()).ok();
        let terms = Terms {
            instance: store.instance(),
            tenant: self.scope.tenant(),
            run: RUN,
            step: STEP,
            question: id,
            kind,
            call,
            expires_at,
            reviewers: &asked,
            uses: 1,
            grant_ttl_ms,
        };
        let digest = terms.digest();
        let unknown = kind == QuestionKind::UnknownOutcome;
        let shown = Content::seal(card.to_canonical(), &drawn);
        let body = QuestionAsked {
            question: id,
            kind,
            digest,
            call,
            card: shown.reference(),
            reviewers: asked,
            on_rejection: OnRejection::EndRun,
            uses: 1,
            expires_at,
            grant_ttl_ms,
            cause: unknown.then_some(Failure::Crash),
            detail: None,
            active_us: 0,
        };
        Some((vec![Self::event(now, true, Body::QuestionAsked(body))], vec![shown]))
    }

    /// A signed answer to the question.
    pub(crate) fn answer(
        &self,
        question: &Question,
        who: Who,
        answer: Answer,
        now: Timestamp,
    ) -> Option<QuestionAnswered> {
        let person = *PEOPLE.get(who)?;
        let key = self.keys.get(person)?;
        let statement = Statement {
            covers: vec![question.digest],
            answer,
            key: key.id(),
            at: now,
            note: None,
            result: None,
        };
        let signature = key.sign(&statement);
        portcullis_domain::grant::signer(question, &statement, &signature, OWNER, &self.ring)
            .ok()?;
        let person = person.to_owned();
        Some(QuestionAnswered { question: question.id, person, statement, signature })
    }

    /// Whether this person's answer to the run's question is recorded.
    pub(crate) fn has_answered(state: &RunState, who: Who) -> bool {
        let person = PEOPLE.get(who);
        state.approvals.iter().any(|approval| Some(&approval.person.as_str()) == person)
    }

    /// The end of the step and of its run.
    pub(crate) fn end(now: Timestamp, kind: ObservationKind, reason: EndReason) -> Vec<NewEvent> {
        let (status, failure) = match (kind, reason) {
            (ObservationKind::ToolResult, _) => (StepStatus::Done, None),
            (ObservationKind::Denied, _) => (StepStatus::Failed, None),
            _ => (StepStatus::Failed, Some(Failure::Error)),
        };
        let observation = Self::observation(kind, failure);
        let finished =
            StepFinished { status, read: None, observation: Some(observation), active_us: 0 };
        vec![
            Self::event(now, true, Body::StepFinished(finished)),
            Self::event(now, false, Self::run_end(reason)),
        ]
    }

    pub(crate) fn run_end(reason: EndReason) -> Body {
        Body::RunFinished(RunFinished { reason, note: None, result: None, by: None })
    }

    pub(crate) fn observation(kind: ObservationKind, failure: Option<Failure>) -> Observation {
        Observation {
            kind,
            failure,
            refusal: None,
            content: None,
            fingerprint: None,
            labels: Labels::none(),
            cut: false,
        }
    }

    /// Whether the whole record is what its events say, and each grant in it was leave.
    pub(crate) fn verifies(&self, store: &MemoryStore) -> bool {
        let options = Options { keys: &[&self.ring], ..Options::default() };
        let Ok(mut ledger) = store.begin() else { return false };
        verify(ledger.as_mut(), options).is_ok_and(|report| report.breaks.is_empty())
    }
}

fn reviewers(verdict: &Verdict) -> Option<Reviewers> {
    match verdict {
        Verdict::Ask { reviewers, .. } => Some(reviewers.clone()),
        Verdict::Allow { .. } | Verdict::Deny { .. } | Verdict::Abort { .. } => None,
    }
}

fn spec() -> ToolSpec {
    ToolSpec {
        name: TOOL.to_owned(),
        description: "Sends.".to_owned(),
        input_schema: portcullis_canon::Value::Object(Object::new()),
        effect: EffectClass::RemoteMutation,
        source: false,
        sink: true,
        authority: Vec::new(),
        deadline_ms: 1_000,
        terminal: true,
        fixed: Object::new(),
        max_result_bytes: 1_024,
        target: None,
        probe: None,
        idempotency_key: None,
    }
}
