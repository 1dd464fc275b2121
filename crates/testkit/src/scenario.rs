//! The history of one run, fact by fact, as appends for a store.
//!
//! A [`Scenario`] gathers facts and hands them out as one append whenever a test asks for it. It keeps
//! count of the stream as a driver would, so each append is admitted when the ones before were.
//!
//! ```
//! use portcullis_domain::id::InstanceId;
//! use portcullis_domain::ports::Durability;
//! use portcullis_testkit::scenario::Scenario;
//!
//! let mut run = Scenario::new(1, InstanceId::from_bytes([1; 16]));
//! let begin = run.begin();
//! assert_eq!(begin.events.len(), 3);
//! run.step_opened();
//! run.proposed(br#"{"kind":"fail","message":"no"}"#);
//! assert_eq!(run.driver(Durability::Written).events.len(), 2);
//! ```

mod budgets;
mod conversation;

use std::time::Duration;

pub use budgets::amounts;
pub use conversation::CALL;
use portcullis_canon::{Digest, Kind, Object, Value};
use portcullis_domain::approval::{Answer, KeyId, Signature, Statement};
use portcullis_domain::budget::HowSettled;
use portcullis_domain::child;
use portcullis_domain::content::{Content, ContentRef};
use portcullis_domain::event::{
    Advice, ApprovalUsed, Body, ChildAwaited, LeaseAcquired, LeaseCause, LeaseReleased,
    OutcomeLate, ProbeCall, ProbeFinished, ProbeStarted, QuestionAnswered, QuestionAsked,
    QuestionClosed, ReadAs, RunCreated, RunFinished, StepAdvised, StepFinished, StepJudged,
    StepOpened, StepProposed, StepRestarted, StepStarted, ThreadLabelled, ThreadOpened,
};
use portcullis_domain::id::{InstanceId, QuestionId, RunId, StepId, ThreadId};
use portcullis_domain::label::{Labels, Origin};
use portcullis_domain::lease::{Epoch, Holder};
use portcullis_domain::limits::Limits;
use portcullis_domain::observation::{Failure, Observation, ObservationKind};
use portcullis_domain::ports::{Append, Condition, Durability, NewEvent, TakeLease};
use portcullis_domain::proposal::{ProposalKind, ProposalOrigin};
use portcullis_domain::question::{QuestionKind, QuestionStatus, Terms};
use portcullis_domain::recovery::{Found, Probe};
use portcullis_domain::refusal::Refusal;
use portcullis_domain::run::{EndReason, FrozenTool, RunStatus};
use portcullis_domain::scope::Tenant;
use portcullis_domain::step::{Admitted, StepStatus};
use portcullis_domain::stream::Stream;
use portcullis_domain::time::Timestamp;
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_domain::verdict::{Facts, OnRejection, Reviewers, Verdict};

use crate::ports::{FixedProcesses, SeededEntropy};

/// How long a lease of a scenario runs.
pub const TERM: Duration = Duration::from_secs(30);

/// One run in the making.
#[derive(Debug)]
pub struct Scenario {
    seed: u64,
    entropy: SeededEntropy,
    instance: InstanceId,
    /// The run.
    pub run: RunId,
    /// Its thread.
    pub thread: ThreadId,
    /// The run that started it.
    pub parent: Option<RunId>,
    /// The top of its tree, where that is not its parent.
    pub root: Option<RunId>,
    /// Whose it is. What an owner's open outcomes keep from starting is another owner's to start.
    pub owner: String,
    /// Its bounds.
    pub limits: Limits,
    /// Its one tool.
    pub tool: ToolSpec,
    /// The wall clock.
    pub at: Timestamp,
    /// Events in the run's stream, those included that were not handed out yet.
    pub seq: u64,
    /// The epoch of the latest lease.
    pub epoch: Epoch,
    /// The latest step.
    pub step: StepId,
    /// The latest call digest.
    pub call: Digest,
    /// The latest question and its digest.
    pub question: Option<(QuestionId, Digest)>,
    /// How long the next question stays open; `None` for one that never expires.
    pub question_ttl: Option<Duration>,
    /// When the latest question expires.
    pub expires_at: Option<Timestamp>,
    /// How many people the latest question needs.
    pub reviewers: u32,
    /// Whether the latest step is not final.
    pub open: bool,
    /// The steps of the latest batch; empty when the latest step is alone.
    pub batch: Vec<StepId>,
    proposal: Option<ContentRef>,
    steps: u64,
    starts: u32,
    labels: u64,
    attempts: u64,
    seen: (u64, Epoch),
    pending: Vec<NewEvent>,
    contents: Vec<Content>,
    specs: Vec<Vec<u8>>,
}

impl Scenario {
    /// A run that has no fact yet; equal seeds give equal histories.
    #[must_use]
    pub fn new(seed: u64, instance: InstanceId) -> Self {
        let entropy = SeededEntropy::new(seed);
        let at = Timestamp::from_micros(1_790_000_000_000_000);
        Self {
            seed,
            instance,
            run: RunId::draw(at, &entropy),
            thread: ThreadId::draw(at, &entropy),
            parent: None,
            root: None,
            owner: "owner".to_owned(),
            limits: Limits::default(),
            tool: tool(),
            at,
            seq: 0,
            epoch: Epoch::NONE,
            step: StepId::draw(at, &entropy),
            call: Digest::ZERO,
            question: None,
            question_ttl: Some(Duration::from_secs(3_600)),
            expires_at: None,
            reviewers: 0,
            open: false,
            batch: Vec::new(),
            proposal: None,
            steps: 0,
            starts: 0,
            labels: 0,
            attempts: 0,
            seen: (0, Epoch::NONE),
            pending: Vec::new(),
            contents: Vec::new(),
            specs: Vec::new(),
            entropy,
        }
    }

    /// Lets time pass.
    pub fn tick(&mut self, by: Duration) {
        self.at = self.at.after(by);
    }

    /// A content of this run; the append that is handed out next brings it.
    pub fn content(&mut self, bytes: &[u8]) -> ContentRef {
        let content = Content::seal(bytes.to_vec(), &self.entropy);
        let reference = content.reference();
        self.contents.push(content);
        reference
    }

    /// Adds any fact of the run's stream.
    pub fn push(&mut self, step: Option<StepId>, body: Body) {
        self.seq += 1;
        self.pending.push(NewEvent { stream: self.run.into(), step, at: self.at, body });
    }

    /// Adds any fact of another stream.
    pub fn push_elsewhere(&mut self, stream: Stream, step: Option<StepId>, body: Body) {
        self.pending.push(NewEvent { stream, step, at: self.at, body });
    }

    // The run as a whole.

    /// `thread.opened`.
    pub fn thread_opened(&mut self) {
        let body = Body::ThreadOpened(ThreadOpened { owner: self.owner.clone() });
        self.push_elsewhere(self.thread.into(), None, body);
    }

    /// `run.created`.
    pub fn run_created(&mut self) {
        let body = RunCreated {
            owner: self.owner.clone(),
            thread: self.thread,
            parent: self.parent,
            root: self.root.or(self.parent).unwrap_or(self.run),
            goal: self.content(b"tidy this folder"),
            salt: self.content(&[7; 32]),
            limits: self.limits.clone(),
            tools: vec![FrozenTool { name: self.tool.name.clone(), spec: self.tool.digest() }],
            policy: Digest::of(Kind::Policy, b"policy"),
            agent: "scripted".to_owned(),
            unconfined_agent: false,
        };
        self.specs.push(self.tool.canonical());
        self.push(None, Body::RunCreated(body));
    }

    /// `lease.acquired`, one epoch further.
    pub fn lease_acquired(&mut self, cause: LeaseCause) {
        self.epoch = self.epoch.next();
        let holder = Holder {
            process: FixedProcesses::identity(4_711),
            nonce: format!("{:032x}", self.epoch.0),
        };
        self.push(None, Body::LeaseAcquired(LeaseAcquired { epoch: self.epoch, holder, cause }));
    }

    /// `lease.released`.
    pub fn lease_released(&mut self) {
        self.push(None, Body::LeaseReleased(LeaseReleased { epoch: self.epoch }));
    }

    /// `run.finished`.
    pub fn run_finished(&mut self, reason: EndReason) {
        let note = Some(self.content(b"that is all"));
        let result = (reason == EndReason::GoalCompleted).then(|| self.content(b"{\"moved\":2}"));
        let by = (reason == EndReason::OperatorCancelled).then(|| "operator".to_owned());
        self.push(None, Body::RunFinished(RunFinished { reason, note, result, by }));
    }

    /// `thread.labelled` with one more outside source.
    pub fn labelled(&mut self) {
        self.labels += 1;
        let labels = Labels::of(Origin::external(&format!("source-{}", self.labels)));
        let body = ThreadLabelled { labels, run: self.run, step: self.step };
        self.push_elsewhere(self.thread.into(), Some(self.step), Body::ThreadLabelled(body));
    }

    // One step.

    /// `step.opened`.
    pub fn step_opened(&mut self) {
        self.step = StepId::draw(self.at, &self.entropy);
        self.starts = 0;
        self.question = None;
        self.open = true;
        self.batch.clear();
        let body = StepOpened { index: self.steps, batch: 1, batch_index: 0 };
        self.steps += 1;
        self.push(Some(self.step), Body::StepOpened(body));
    }

    /// `step.proposed`.
    pub fn proposed(&mut self, raw: &[u8]) {
        let proposal = self.content(raw);
        self.proposal = Some(proposal);
        self.push(Some(self.step), Body::StepProposed(StepProposed { proposal }));
    }

    // A batch: the latest step, with its proposal, is the first of several.

    /// `step.opened` of the one at `place` among `size`.
    pub fn member_opened(&mut self, size: u32, place: u32) {
        if self.batch.is_empty() {
            self.batch.push(self.step);
        }
        self.step = StepId::draw(self.at, &self.entropy);
        self.batch.push(self.step);
        let body = StepOpened { index: self.steps, batch: size, batch_index: place };
        self.steps += 1;
        self.push(Some(self.step), Body::StepOpened(body));
    }

    /// `step.proposed` of the latest step: the proposal of the first one.
    pub fn member_proposed(&mut self) {
        let Some(proposal) = self.proposal else { return };
        self.push(Some(self.step), Body::StepProposed(StepProposed { proposal }));
    }

    /// `step.judged` of one of the batch: a call that reads, under a verdict that lets it happen.
    pub fn member_judged(&mut self, step: StepId) {
        let tool = probe();
        let body = StepJudged {
            origin: ProposalOrigin::Model,
            admitted: Admitted {
                tool: tool.name.clone(),
                spec: tool.digest(),
                effect: tool.effect,
                request: Digest::of(Kind::Arguments, step.as_bytes()),
                call: Digest::of(Kind::Call, step.as_bytes()),
            },
            verdict: allow(),
            policy: Digest::of(Kind::Policy, b"policy"),
            facts: self.facts(),
        };
        self.specs.push(tool.canonical());
        self.push(Some(step), Body::StepJudged(body));
    }

    /// `step.started` of one of the batch.
    pub fn member_started(&mut self, step: StepId) {
        let call = Digest::of(Kind::Call, step.as_bytes());
        let body = StepStarted { call, epoch: self.epoch, deadline_ms: 1_000, start: 1 };
        self.push(Some(step), Body::StepStarted(body));
    }

    /// All that starts a batch of `size`.
    pub fn batch_started(&mut self, size: u32) {
        for place in 1..size {
            self.member_opened(size, place);
            self.member_proposed();
        }
        for step in self.batch.clone() {
            self.member_judged(step);
        }
        for step in self.batch.clone() {
            self.member_started(step);
        }
    }

    /// All that ends a batch.
    pub fn batch_finished(&mut self, kind: ObservationKind) {
        for step in self.batch.clone() {
            self.step = step;
            self.finished(kind);
        }
    }

    /// `step.judged`.
    pub fn judged(&mut self, verdict: Verdict) {
        let request = Digest::of(Kind::Arguments, b"{\"path\":\"a.txt\"}");
        self.call = Digest::of_parts(Kind::Call, &[b"call", &self.steps.to_be_bytes()]);
        let body = StepJudged {
            origin: ProposalOrigin::Model,
            admitted: Admitted {
                tool: self.tool.name.clone(),
                spec: self.tool.digest(),
                effect: self.tool.effect,
                request,
                call: self.call,
            },
            verdict,
            policy: Digest::of(Kind::Policy, b"policy"),
            facts: self.facts(),
        };
        self.push(Some(self.step), Body::StepJudged(body));
    }

    /// `step.started`.
    pub fn started(&mut self) {
        self.starts += 1;
        let body = StepStarted {
            call: self.call,
            epoch: self.epoch,
            deadline_ms: self.tool.deadline_ms,
            start: self.starts,
        };
        self.push(Some(self.step), Body::StepStarted(body));
    }

    fn facts(&self) -> Facts {
        Facts {
            tenant: Tenant::local(),
            owner: self.owner.clone(),
            origin: ProposalOrigin::Model,
            steps: self.steps.saturating_sub(1),
            failures: 0,
            denials: 0,
            active_us: 0,
            labels: Labels::none(),
            label_seq: self.labels,
        }
    }

    /// `step.restarted` under a verdict that lets the call happen.
    pub fn restarted(&mut self) {
        self.starts += 1;
        let body = StepRestarted {
            call: self.call,
            epoch: self.epoch,
            deadline_ms: self.tool.deadline_ms,
            start: self.starts,
            cause: Failure::Crash,
            verdict: allow(),
            policy: Digest::of(Kind::Policy, b"policy"),
            facts: self.facts(),
        };
        self.push(Some(self.step), Body::StepRestarted(body));
    }

    /// `probe.started`: the host is asked, or a tool that reads.
    pub fn probe_started(&mut self, host: bool) {
        let probe = probe();
        let call = (!host).then(|| ProbeCall {
            admitted: Admitted {
                tool: probe.name.clone(),
                spec: probe.digest(),
                effect: probe.effect,
                request: Digest::of(Kind::Arguments, b"{\"path\":\"a.txt\"}"),
                call: Digest::of_parts(Kind::Call, &[b"probe", &self.steps.to_be_bytes()]),
            },
            verdict: allow(),
            policy: Digest::of(Kind::Policy, b"policy"),
            facts: self.facts(),
            card: self.content(b"{\"tool\":\"files.seen\"}"),
            deadline_ms: probe.deadline_ms,
        });
        if call.is_some() {
            self.specs.push(probe.canonical());
        }
        let body = ProbeStarted { epoch: self.epoch, cause: Failure::Crash, call };
        self.push(Some(self.step), Body::ProbeStarted(body));
    }

    /// `probe.finished`.
    pub fn probe_finished(&mut self, found: Found) {
        let observation = self.observation(ObservationKind::ToolResult, b"{\"happened\":true}");
        let body = ProbeFinished { found, observation: Some(observation) };
        self.push(Some(self.step), Body::ProbeFinished(body));
    }

    /// What came back.
    pub fn observation(&mut self, kind: ObservationKind, bytes: &[u8]) -> Observation {
        let denied = kind == ObservationKind::Denied;
        Observation {
            kind,
            failure: None,
            refusal: denied.then_some(Refusal::ClassDenied),
            content: (!denied).then(|| self.content(bytes)),
            fingerprint: (kind == ObservationKind::ToolResult)
                .then(|| Digest::of(Kind::Observation, bytes)),
            labels: Labels::of(Origin::external(&self.tool.name)),
            cut: false,
        }
    }

    /// `step.finished` with an observation of this kind.
    pub fn finished(&mut self, kind: ObservationKind) {
        let observation = Some(self.observation(kind, b"{\"ok\":true}"));
        let status = match kind {
            ObservationKind::ToolResult => StepStatus::Done,
            ObservationKind::Interrupted => StepStatus::Interrupted,
            _ => StepStatus::Failed,
        };
        self.open = false;
        let body = StepFinished { status, read: None, observation, active_us: 250 };
        self.push(Some(self.step), Body::StepFinished(body));
    }

    /// `step.advised`: a host that acts by itself was told.
    pub fn advised(&mut self, advice: Advice) {
        self.open = false;
        let body = StepAdvised { call: self.call, epoch: self.epoch, advice, active_us: 70 };
        self.push(Some(self.step), Body::StepAdvised(body));
    }

    /// The appends of a run whose one call a host makes by itself, from its beginning to its end.
    pub fn advising(&mut self, advice: Advice) -> Vec<Append> {
        let mut appends = vec![self.begin()];
        self.step_opened();
        self.proposed(br#"{"kind":"tool_call","tool":"files.move","arguments":{"path":"e.txt"}}"#);
        appends.push(self.driver(Durability::Written));
        self.judged(match advice {
            Advice::Allow => allow(),
            Advice::Ask => ask(),
        });
        self.advised(advice);
        self.run_finished(EndReason::GoalCompleted);
        appends.push(self.driver(Durability::Synced));
        appends
    }

    /// `step.finished` of a proposal that says that the run is done.
    pub fn finished_complete(&mut self) {
        let read = ReadAs { kind: ProposalKind::Complete, origin: ProposalOrigin::Model };
        self.open = false;
        let body = StepFinished {
            status: StepStatus::Done,
            read: Some(read),
            observation: None,
            active_us: 90,
        };
        self.push(Some(self.step), Body::StepFinished(body));
    }

    /// `outcome.late` of the latest step.
    pub fn outcome_late(&mut self) {
        let observation = self.observation(ObservationKind::ToolResult, b"{\"late\":true}");
        let body = OutcomeLate { epoch: self.epoch, observation };
        self.push(Some(self.step), Body::OutcomeLate(body));
    }

    // Questions.

    /// `question.asked`, for `count` people; it expires one hour later, or as `question_ttl` says.
    pub fn asked(&mut self, kind: QuestionKind, count: u32) {
        let question = QuestionId::draw(self.at, &self.entropy);
        let expires_at = self.question_ttl.map(|ttl| self.at.after(ttl));
        let reviewers = Reviewers { role: "operator".to_owned(), count };
        let grant_ttl_ms = self.limits.grant_ttl_ms;
        let terms = Terms {
            instance: self.instance,
            tenant: &Tenant::local(),
            run: self.run,
            step: self.step,
            question,
            kind,
            call: self.call,
            expires_at,
            reviewers: &reviewers,
            uses: 1,
            grant_ttl_ms,
        };
        let digest = terms.digest();
        let body = QuestionAsked {
            question,
            kind,
            digest,
            call: self.call,
            card: self.content(b"{\"tool\":\"files.move\"}"),
            reviewers,
            on_rejection: OnRejection::EndRun,
            uses: 1,
            expires_at,
            grant_ttl_ms,
            cause: (kind == QuestionKind::UnknownOutcome).then_some(Failure::Crash),
            detail: None,
            active_us: 40,
        };
        self.question = Some((question, digest));
        self.expires_at = expires_at;
        self.reviewers = count;
        self.push(Some(self.step), Body::QuestionAsked(body));
    }

    /// `question.answered` by a person with a key of their own, signed by `sign`.
    pub fn answered_by(
        &mut self,
        person: &str,
        key: KeyId,
        answer: Answer,
        sign: impl FnOnce(&Statement) -> Signature,
    ) {
        let note = Some(self.content(b"looks right"));
        let happened = answer == Answer::Happened;
        let result = happened.then(|| self.content(b"{\"seen\":true}"));
        let covers = self.question.iter().map(|(_, digest)| *digest).collect();
        let statement = Statement { covers, answer, key, at: self.at, note, result };
        let signature = sign(&statement);
        let question = self.question.map_or(QuestionId::from_bytes([0; 16]), |(id, _)| id);
        let person = person.to_owned();
        let body = QuestionAnswered { question, person, statement, signature };
        self.push(Some(self.step), Body::QuestionAnswered(body));
    }

    /// `question.answered` with a signature that nothing checks.
    pub fn answered(&mut self, person: &str, answer: Answer) {
        let key = Digest::of(Kind::Key, person.as_bytes());
        self.answered_by(person, key, answer, |_| Signature([9; 64]));
    }

    /// `question.closed`.
    pub fn closed(&mut self, status: QuestionStatus) {
        let question = self.question.map_or(QuestionId::from_bytes([0; 16]), |(id, _)| id);
        self.push(Some(self.step), Body::QuestionClosed(QuestionClosed { question, status }));
    }

    /// `approval.used`.
    pub fn used(&mut self) {
        let question = self.question.map_or(QuestionId::from_bytes([0; 16]), |(id, _)| id);
        self.push(Some(self.step), Body::ApprovalUsed(ApprovalUsed { question }));
    }

    // Appends.

    /// What was gathered, under any condition.
    pub fn append(&mut self, condition: Condition, durability: Durability) -> Append {
        self.seen = (self.seq, self.epoch);
        Append {
            condition,
            events: std::mem::take(&mut self.pending),
            contents: std::mem::take(&mut self.contents),
            specs: std::mem::take(&mut self.specs),
            durability,
        }
    }

    /// What was gathered, as the driver's append.
    pub fn driver(&mut self, durability: Durability) -> Append {
        let (seq, epoch) = self.seen;
        let condition = Condition::Driver {
            run: self.run,
            seq,
            epoch,
            take: None,
            live_at: None,
            label_seq: None,
        };
        self.append(condition, durability)
    }

    /// What was gathered, as the append of a driver that takes the lease now.
    pub fn taking(&mut self, holder_dead: bool) -> Append {
        let (seq, epoch) = self.seen;
        let take = TakeLease { now: self.at, until: self.at.after(TERM), holder_dead };
        let condition = Condition::Driver {
            run: self.run,
            seq,
            epoch,
            take: Some(take),
            live_at: None,
            label_seq: None,
        };
        self.append(condition, Durability::Synced)
    }

    /// What was gathered, as a person's act on a waiting run.
    pub fn operator(&mut self) -> Append {
        let condition = Condition::Operator {
            run: self.run,
            statuses: vec![RunStatus::Waiting],
            question: self.question,
        };
        self.append(condition, Durability::Synced)
    }

    /// What was gathered, as a late fact.
    pub fn late(&mut self) -> Append {
        self.append(Condition::Late, Durability::Synced)
    }

    /// The first append: thread, run and lease.
    pub fn begin(&mut self) -> Append {
        self.thread_opened();
        self.run_created();
        self.lease_acquired(LeaseCause::Begin);
        self.taking(false)
    }

    /// The appends of a step that reads something and comes back, opening included.
    pub fn whole_step(&mut self) -> Vec<Append> {
        self.step_opened();
        self.proposed(br#"{"kind":"tool_call","tool":"files.move","arguments":{"path":"a.txt"}}"#);
        let recorded = self.driver(Durability::Written);
        self.judged(allow());
        self.started();
        let intent = self.driver(Durability::Synced);
        self.finished(ObservationKind::ToolResult);
        let outcome = self.driver(Durability::Synced);
        self.tick(Duration::from_millis(3));
        vec![recorded, intent, outcome]
    }

    /// The appends of a step that is in the middle of its effect, opening included.
    pub fn executing(&mut self) -> Vec<Append> {
        self.step_opened();
        self.proposed(br#"{"kind":"tool_call","tool":"files.move","arguments":{"path":"c.txt"}}"#);
        let recorded = self.driver(Durability::Written);
        self.judged(allow());
        self.started();
        vec![recorded, self.driver(Durability::Synced)]
    }

    /// Whole runs with an event of each type that a run and its thread can have: this one, one of another thread
    /// in which an unknown outcome resolves by itself, and one that starts another.
    pub fn every_event(&mut self) -> Vec<Append> {
        let mut appends = self.asking();
        let mut resolving = Self::new(self.seed ^ 0x5eed_0000, self.instance);
        resolving.tool = keyed();
        resolving.owner.clone_from(&self.owner);
        resolving.limits.max_total_tokens = Some(100_000);
        appends.extend(resolving.resolving());
        let mut family = Self::new(self.seed ^ 0xfa11_0000, self.instance);
        family.owner.clone_from(&self.owner);
        appends.extend(family.family());
        for (salt, advice) in [(0xad00_0000, Advice::Allow), (0xad01_0000, Advice::Ask)] {
            let mut advising = Self::new(self.seed ^ salt, self.instance);
            advising.owner.clone_from(&self.owner);
            appends.extend(advising.advising(advice));
        }
        let mut conversing = Self::new(self.seed ^ 0xc0de_0000, self.instance);
        conversing.owner.clone_from(&self.owner);
        appends.extend(conversing.conversing());
        appends
    }

    /// A run that waits for one that it started, and both ended by an operator's word.
    fn family(&mut self) -> Vec<Append> {
        let mut appends = vec![self.begin()];
        appends.extend(self.waiting_for_child());
        let mut child = self.child();
        child.run_created();
        appends.push(child.driver(Durability::Synced));
        self.run_finished(EndReason::OperatorCancelled);
        appends.push(self.operator());
        child.run_finished(EndReason::ParentEnded);
        let statuses = vec![RunStatus::Running, RunStatus::Waiting];
        let condition = Condition::Operator { run: child.run, statuses, question: None };
        appends.push(child.append(condition, Durability::Synced));
        appends
    }

    /// The appends of a step whose call is a run of its own, opening included. The lease is let go.
    pub fn waiting_for_child(&mut self) -> Vec<Append> {
        self.step_opened();
        self.proposed(br#"{"kind":"tool_call","tool":"files.move","arguments":{"path":"d.txt"}}"#);
        let recorded = self.driver(Durability::Written);
        self.judged(allow());
        self.started();
        let child = child::id(self.run, self.step);
        let body = ChildAwaited { child, epoch: self.epoch, active_us: 60 };
        self.push(Some(self.step), Body::ChildAwaited(body));
        vec![recorded, self.driver(Durability::Synced)]
    }

    /// The run that the latest step's call is, with no fact yet: it is not to open the thread, which it shares.
    #[must_use]
    pub fn child(&self) -> Self {
        let mut child = Self::new(self.seed ^ 0xc411_d000, self.instance);
        child.run = child::id(self.run, self.step);
        child.thread = self.thread;
        child.parent = Some(self.run);
        child.root = Some(self.root.or(self.parent).unwrap_or(self.run));
        child.owner.clone_from(&self.owner);
        child.limits = self.limits.clone();
        child.tool = self.tool.clone();
        child.at = self.at;
        child
    }

    fn resolving(&mut self) -> Vec<Append> {
        let mut appends = vec![self.begin()];
        appends.extend(self.executing());
        let attempt = self.holds(amounts(2_000), true);
        appends.push(self.live());
        self.settles(attempt, HowSettled::Ambiguous, amounts(2_000));
        appends.push(self.late());
        self.restarted();
        appends.push(self.driver(Durability::Synced));
        self.probe_started(false);
        appends.push(self.driver(Durability::Synced));
        self.probe_finished(Found::Unknown);
        self.probe_started(true);
        appends.push(self.driver(Durability::Synced));
        self.probe_finished(Found::Happened);
        self.finished(ObservationKind::ToolResult);
        self.run_finished(EndReason::GoalCompleted);
        appends.push(self.driver(Durability::Synced));
        appends
    }

    fn asking(&mut self) -> Vec<Append> {
        let mut appends = vec![self.begin()];
        appends.extend(self.whole_step());
        self.labelled();
        self.step_opened();
        self.proposed(br#"{"kind":"tool_call","tool":"files.move","arguments":{"path":"b.txt"}}"#);
        appends.push(self.driver(Durability::Written));
        self.judged(ask());
        self.asked(QuestionKind::Approval, 1);
        appends.push(self.driver(Durability::Synced));
        self.answered("ann", Answer::Approve);
        appends.push(self.operator());
        self.lease_acquired(LeaseCause::Free);
        appends.push(self.taking(false));
        self.judged(ask());
        self.used();
        self.started();
        appends.push(self.driver(Durability::Synced));
        self.asked(QuestionKind::UnknownOutcome, 1);
        appends.push(self.driver(Durability::Synced));
        self.answered("ben", Answer::RunAgain);
        appends.push(self.operator());
        self.lease_acquired(LeaseCause::Free);
        appends.push(self.taking(false));
        self.lease_released();
        appends.push(self.driver(Durability::Synced));
        self.lease_acquired(LeaseCause::Free);
        appends.push(self.taking(false));
        self.judged(ask());
        self.used();
        self.started();
        appends.push(self.driver(Durability::Synced));
        self.asked(QuestionKind::UnknownOutcome, 1);
        appends.push(self.driver(Durability::Synced));
        self.closed(QuestionStatus::Withdrawn);
        self.run_finished(EndReason::OperatorCancelled);
        appends.push(self.operator());
        self.outcome_late();
        appends.push(self.late());
        appends
    }
}

/// The tool of every scenario.
#[must_use]
pub fn tool() -> ToolSpec {
    ToolSpec {
        name: "files.move".to_owned(),
        description: "Moves a file.".to_owned(),
        input_schema: Value::Object(Object::new()),
        effect: EffectClass::LocalMutation,
        source: false,
        sink: true,
        authority: vec!["/path".to_owned()],
        deadline_ms: 10_000,
        terminal: false,
        fixed: Object::new(),
        max_result_bytes: 65_536,
        target: None,
        probe: None,
        idempotency_key: None,
    }
}

/// The same tool, with an idempotency key and a probe.
#[must_use]
pub fn keyed() -> ToolSpec {
    let mut key = Object::new();
    key.insert("type", "string");
    let mut properties = Object::new();
    properties.insert("key", key);
    let mut schema = Object::new();
    schema.insert("properties", properties);
    ToolSpec {
        input_schema: Value::Object(schema),
        probe: Some(Probe { tool: probe().name, arguments: None }),
        idempotency_key: Some("key".to_owned()),
        ..tool()
    }
}

/// The probe of [`keyed`].
#[must_use]
pub fn probe() -> ToolSpec {
    let name = "files.seen".to_owned();
    ToolSpec { name, effect: EffectClass::ReadOnly, sink: false, ..tool() }
}

/// A verdict that lets the call happen.
#[must_use]
pub fn allow() -> Verdict {
    Verdict::Allow { rules: vec!["class local_mutation allow".to_owned()] }
}

/// A verdict that says no.
#[must_use]
pub fn deny() -> Verdict {
    let rules = vec!["class local_mutation deny".to_owned()];
    Verdict::Deny { reason: Refusal::ClassDenied, rules }
}

/// A verdict that asks one operator.
#[must_use]
pub fn ask() -> Verdict {
    Verdict::Ask {
        reason: Refusal::ClassDenied,
        rules: vec!["class local_mutation ask".to_owned()],
        reviewers: Reviewers { role: "operator".to_owned(), count: 1 },
        on_rejection: OnRejection::EndRun,
    }
}
