//! A small history with every type of event, written through the store's own door.

use std::sync::Arc;
use std::time::Duration;

use portcullis_audit::keys::{KeyEntry, Keyring, SigningKey};
use portcullis_canon::{Digest, Kind, Object, Value};
use portcullis_domain::approval::{Answer, Statement};
use portcullis_domain::budget::{Amounts, BudgetScope, Caps, Day, HowSettled};
use portcullis_domain::child;
use portcullis_domain::content::{Content, ContentRef};
use portcullis_domain::event::{
    Advice, ApprovalUsed, Body, BudgetOpened, BudgetReserved, BudgetSettled, ChildAwaited,
    LeaseAcquired, LeaseCause, LeaseReleased, OutcomeLate, ProbeCall, ProbeFinished, ProbeStarted,
    QuestionAnswered, QuestionAsked, QuestionClosed, ReadAs, RunCreated, RunFinished, StepAdvised,
    StepFinished, StepJudged, StepOpened, StepProposed, StepRestarted, StepStarted, ThreadCounted,
    ThreadLabelled, ThreadOpened,
};
use portcullis_domain::fold::RunState;
use portcullis_domain::id::{AttemptId, QuestionId, RunId, StepId, ThreadId};
use portcullis_domain::label::{Labels, Origin};
use portcullis_domain::lease::{Epoch, Holder, ProcessIdentity};
use portcullis_domain::limits::Limits;
use portcullis_domain::observation::{Failure, Observation, ObservationKind};
use portcullis_domain::ports::{
    Append, Condition, Durability, Entropy, NewEvent, Store, TakeLease,
};
use portcullis_domain::proposal::{ProposalKind, ProposalOrigin};
use portcullis_domain::question::{Card, QuestionKind, QuestionStatus, Terms};
use portcullis_domain::recovery::{Found, Probe};
use portcullis_domain::refusal::Refusal;
use portcullis_domain::run::{EndReason, FrozenTool, RunStatus};
use portcullis_domain::scope::Scope;
use portcullis_domain::step::{Admitted, StepStatus};
use portcullis_domain::stream::Stream;
use portcullis_domain::tally::{Counted, Counting, ThreadLimits, Trace};
use portcullis_domain::time::Timestamp;
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_domain::verdict::{Facts, OnRejection, Reviewers, Verdict};
use portcullis_testkit::block_on;

/// Pseudo-random bytes that differ from call to call and are the same in each run.
#[derive(Default)]
pub(crate) struct Drawn(std::sync::atomic::AtomicU64);

impl Entropy for Drawn {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(32) {
            let count = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let digest = Digest::of(Kind::File, &count.to_be_bytes());
            chunk.copy_from_slice(&digest.as_bytes()[..chunk.len()]);
        }
    }
}

/// Writes histories into a store.
pub(crate) struct Scene {
    store: Arc<dyn Store>,
    scope: Scope,
    entropy: Drawn,
    at: Timestamp,
    pub(crate) ann: SigningKey,
    pub(crate) bob: SigningKey,
}

/// The instant at which each scene begins.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_790_000_000_000_000);

/// A call that a step is about.
struct Call {
    admitted: Admitted,
    card: Content,
}

impl Scene {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        let entropy = Drawn::default();
        let (ann, bob) = (SigningKey::generate(&entropy), SigningKey::generate(&entropy));
        Self { store, scope: Scope::of_file_owner(), entropy, at: START, ann, bob }
    }

    /// The keys of the two people who answer. The runs are a third one's.
    pub(crate) fn ring(&self) -> Keyring {
        Keyring::new([
            KeyEntry::new(self.ann.public(), "ann", ["operator"]),
            KeyEntry::new(self.bob.public(), "bob", ["operator"]),
        ])
        .unwrap()
    }

    /// Two runs and every type of event.
    pub(crate) fn play(&mut self) {
        let first = self.create(None);
        self.allowed_call(first);
        self.granted_call(first);
        self.rejected_call(first);
        self.unknown_outcome(first);
        self.resolved_call(first);
        let second = self.create(Some(first));
        self.model_call(second);
        self.expired_call(second);
        self.family();
        self.advised();
        self.complete(first);
        self.late(first);
        self.erase(first);
    }

    fn tick(&mut self) -> Timestamp {
        self.at = self.at.after(Duration::from_millis(7));
        self.at
    }

    fn content(&self, text: &str) -> Content {
        Content::seal(text.as_bytes().to_vec(), &self.entropy)
    }

    pub(crate) fn state(&self, run: RunId) -> RunState {
        block_on(self.store.run(&self.scope, run)).unwrap().unwrap()
    }

    fn salt(&self, state: &RunState) -> Vec<u8> {
        let salt = block_on(self.store.content(&self.scope, state.run.salt.digest));
        salt.unwrap().unwrap().into_bytes()
    }

    fn append(
        &mut self,
        condition: Condition,
        events: Vec<(Stream, Option<StepId>, Body)>,
        contents: Vec<Content>,
        specs: Vec<Vec<u8>>,
    ) {
        let at = self.tick();
        let events = events
            .into_iter()
            .map(|(stream, step, body)| NewEvent { stream, step, at, body })
            .collect();
        let durability = Durability::Synced;
        let append = Append { condition, events, contents, specs, durability };
        block_on(self.store.append(&self.scope, append)).unwrap();
    }

    fn driver(&self, run: RunId) -> Condition {
        let state = self.state(run);
        Condition::Driver {
            run,
            seq: state.run.seq,
            epoch: state.run.epoch,
            take: None,
            live_at: None,
            label_seq: None,
        }
    }

    fn drive(&mut self, run: RunId, step: Option<StepId>, bodies: Vec<Body>, new: Vec<Content>) {
        let events = bodies.into_iter().map(|body| (run.into(), step, body)).collect();
        self.append(self.driver(run), events, new, Vec::new());
    }

    fn term(&self) -> TakeLease {
        TakeLease {
            now: self.at,
            until: self.at.after(Duration::from_hours(1)),
            holder_dead: false,
        }
    }

    fn holder(&self) -> Holder {
        let mut nonce = [0; 16];
        self.entropy.fill(&mut nonce);
        let process =
            ProcessIdentity { boot_id: "0".repeat(8), pid_namespace: 1, pid: 7, start_ticks: 9 };
        Holder { process, nonce: nonce.iter().map(|b| format!("{b:02x}")).collect() }
    }

    fn spec() -> ToolSpec {
        ToolSpec {
            name: "files.create".to_owned(),
            description: "Creates a file.".to_owned(),
            input_schema: Value::Object(Object::new()),
            effect: EffectClass::LocalMutation,
            source: false,
            sink: true,
            authority: vec!["/path".to_owned()],
            deadline_ms: 1_000,
            terminal: false,
            fixed: Object::new(),
            max_result_bytes: 1_000,
            target: None,
            probe: None,
            idempotency_key: None,
        }
    }

    /// The digest of the spec that most calls are judged with.
    pub(crate) fn plain_spec(&self) -> Digest {
        Self::spec().digest()
    }

    fn other_spec() -> ToolSpec {
        ToolSpec { name: "files.read".to_owned(), effect: EffectClass::ReadOnly, ..Self::spec() }
    }

    fn create(&mut self, parent: Option<RunId>) -> RunId {
        let run = RunId::draw(self.at, &self.entropy);
        let thread = ThreadId::draw(self.at, &self.entropy);
        let (goal, salt) = (self.content("tidy this folder"), self.content("salt"));
        let specs = [Self::spec(), Self::other_spec()];
        let created = RunCreated {
            owner: "cat".to_owned(),
            thread,
            parent,
            root: parent.unwrap_or(run),
            goal: goal.reference(),
            salt: salt.reference(),
            // One of the two needs the later version of `run.created`.
            limits: Limits { max_model_calls: parent.map(|_| 9), ..Limits::default() },
            tools: specs
                .iter()
                .map(|spec| FrozenTool { name: spec.name.clone(), spec: spec.digest() })
                .collect(),
            policy: Digest::of(Kind::Policy, b"policy"),
            agent: "scripted".to_owned(),
            unconfined_agent: false,
        };
        let acquired = self.acquired(Epoch(1), LeaseCause::Begin);
        let events = vec![
            (thread.into(), None, Body::ThreadOpened(ThreadOpened { owner: "cat".to_owned() })),
            (run.into(), None, Body::RunCreated(created)),
            (run.into(), None, acquired),
        ];
        let condition = Condition::Driver {
            run,
            seq: 0,
            epoch: Epoch::NONE,
            take: Some(self.term()),
            live_at: None,
            label_seq: None,
        };
        let specs = specs.iter().map(ToolSpec::canonical).collect();
        self.append(condition, events, vec![goal, salt], specs);
        run
    }

    /// A run that starts two others, of which one completes and the other is ended with it.
    fn family(&mut self) {
        let parent = self.create(None);
        let first = self.started_run(parent);
        let result = self.content("{}");
        let done = RunFinished {
            reason: EndReason::GoalCompleted,
            note: None,
            result: Some(result.reference()),
            by: None,
        };
        self.end_waiting(first, done, vec![result]);
        self.take(parent);
        let (step, content) = (self.state(parent).step().unwrap().id, self.content("{\"x\":1}"));
        let finished = StepFinished {
            status: StepStatus::Done,
            read: None,
            observation: Some(Self::result(content.reference())),
            active_us: 3,
        };
        self.drive(parent, Some(step), vec![Body::StepFinished(finished)], vec![content]);
        let second = self.started_run(parent);
        for (run, reason) in
            [(parent, EndReason::OperatorCancelled), (second, EndReason::ParentEnded)]
        {
            self.end_waiting(
                run,
                RunFinished { reason, note: None, result: None, by: None },
                Vec::new(),
            );
        }
    }

    /// A run whose one call a host makes by itself.
    fn advised(&mut self) {
        let run = self.create(None);
        let step = self.open(run);
        let call = self.call(run, None).admitted;
        let allow = Verdict::Allow { rules: vec!["class".to_owned()] };
        let epoch = self.state(run).run.epoch;
        let advice = Advice::Allow;
        let advised = StepAdvised { call: call.call, epoch, advice, active_us: 4 };
        let state = self.state(run);
        let trace = Some(Trace { request: call.request, key: Some(state.run.salt) });
        let counted = ThreadCounted {
            run,
            counted: Counted::Call(Counting { changes: true, trace }),
            limits: ThreadLimits { max_calls: Some(9), ..ThreadLimits::NONE },
        };
        let ended =
            RunFinished { reason: EndReason::GoalCompleted, note: None, result: None, by: None };
        let events = vec![
            (run.into(), Some(step), self.judged(run, &call, allow)),
            (run.into(), Some(step), Body::StepAdvised(advised)),
            (state.run.thread.into(), Some(step), Body::ThreadCounted(counted)),
            (run.into(), None, Body::RunFinished(ended)),
        ];
        self.append(self.driver(run), events, Vec::new(), Vec::new());
    }

    /// Ends a run that nobody drives.
    fn end_waiting(&mut self, run: RunId, body: RunFinished, contents: Vec<Content>) {
        let condition = Condition::Operator {
            run,
            statuses: vec![RunStatus::Running, RunStatus::Waiting],
            question: None,
        };
        let events = vec![(run.into(), None, Body::RunFinished(body))];
        self.append(condition, events, contents, Vec::new());
    }

    /// A run that a call of the parent's next step is.
    fn started_run(&mut self, parent: RunId) -> RunId {
        let step = self.open(parent);
        let call = self.call(parent, None);
        let allow = Verdict::Allow { rules: vec!["class".to_owned()] };
        let run = child::id(parent, step);
        let epoch = self.state(parent).run.epoch;
        let bodies = vec![
            self.judged(parent, &call.admitted, allow),
            self.started(parent, call.admitted.call),
            Body::ChildAwaited(ChildAwaited { child: run, epoch, active_us: 3 }),
        ];
        self.drive(parent, Some(step), bodies, Vec::new());
        let above = self.state(parent).run;
        let (goal, salt) = (self.content("a part"), self.content("salt of a part"));
        let created = RunCreated {
            owner: above.owner,
            thread: above.thread,
            parent: Some(parent),
            root: above.root,
            goal: goal.reference(),
            salt: salt.reference(),
            limits: above.limits,
            tools: above.tools,
            policy: above.policy,
            agent: above.agent,
            unconfined_agent: false,
        };
        let condition = Condition::Driver {
            run,
            seq: 0,
            epoch: Epoch::NONE,
            take: None,
            live_at: None,
            label_seq: None,
        };
        let events = vec![(run.into(), None, Body::RunCreated(created))];
        self.append(condition, events, vec![goal, salt], Vec::new());
        run
    }

    /// A call of a model by a run with a parent, in the two runs' budgets and the day's; of a second one only the hold.
    fn model_call(&mut self, run: RunId) {
        let state = self.state(run);
        let tenant = state.run.tenant.clone();
        let day = BudgetScope::Day { owner: state.run.owner.clone(), day: Day::of(self.at) };
        let parent = state.run.parent.unwrap();
        let scopes = [day, BudgetScope::Run { run }, BudgetScope::Run { run: parent }];
        let step = StepId::draw(self.at, &self.entropy);
        let opened = StepOpened { index: state.run.step_count, batch: 1, batch_index: 0 };
        self.drive(run, Some(step), vec![Body::StepOpened(opened)], Vec::new());
        let projected =
            Amounts { calls: 1, input_tokens: 900, output_tokens: 100, cost_micros: 40 };
        let used = Amounts { input_tokens: 1_000, ..projected };
        for first in [true, false] {
            let attempt = AttemptId::draw(self.at, &self.entropy);
            let (mut held, mut settled) = (Vec::new(), Vec::new());
            for scope in &scopes {
                let stream = Stream::from(scope.id(&tenant));
                let own = *scope == BudgetScope::Run { run };
                let caps = Caps { calls: own.then_some(9), ..Caps::default() };
                let scope = scope.clone();
                let opened = Body::BudgetOpened(BudgetOpened { scope, caps });
                let reserved = Body::BudgetReserved(BudgetReserved {
                    attempt,
                    run,
                    epoch: state.run.epoch,
                    model: "fake:small".to_owned(),
                    bytes: 4_000,
                    projected,
                    priced: true,
                    deadline_ms: 120_000,
                    caps: None,
                });
                held.extend(first.then_some((stream, None, opened)));
                held.push((stream, Some(step), reserved));
                let body = BudgetSettled {
                    attempt,
                    how: HowSettled::Answered,
                    charged: projected,
                    excess: used.beyond(projected),
                };
                settled.push((stream, Some(step), Body::BudgetSettled(body)));
            }
            let mut live = self.driver(run);
            if let Condition::Driver { live_at, .. } = &mut live {
                *live_at = Some(self.at);
            }
            self.append(live, held, Vec::new(), Vec::new());
            if first {
                self.append(Condition::Late, settled, Vec::new(), Vec::new());
            }
        }
        let read = ReadAs { kind: ProposalKind::Fail, origin: ProposalOrigin::Model };
        let proposal = self.content(r#"{"kind":"fail","message":"no"}"#);
        let bodies = vec![
            Body::StepProposed(StepProposed { proposal: proposal.reference() }),
            Body::StepFinished(StepFinished {
                status: StepStatus::Done,
                read: Some(read),
                observation: None,
                active_us: 5,
            }),
        ];
        self.drive(run, Some(step), bodies, vec![proposal]);
    }

    fn acquired(&self, epoch: Epoch, cause: LeaseCause) -> Body {
        Body::LeaseAcquired(LeaseAcquired { epoch, holder: self.holder(), cause })
    }

    /// A driver takes a run up that nobody holds.
    fn take(&mut self, run: RunId) {
        let state = self.state(run);
        let condition = Condition::Driver {
            run,
            seq: state.run.seq,
            epoch: state.run.epoch,
            take: Some(self.term()),
            live_at: None,
            label_seq: None,
        };
        let acquired = self.acquired(state.run.epoch.next(), LeaseCause::Free);
        self.append(condition, vec![(run.into(), None, acquired)], Vec::new(), Vec::new());
    }

    fn open(&mut self, run: RunId) -> StepId {
        let step = StepId::draw(self.at, &self.entropy);
        let index = self.state(run).run.step_count;
        let proposal = self.content(r#"{"kind":"tool_call","tool":"files.create"}"#);
        let bodies = vec![
            Body::StepOpened(StepOpened { index, batch: 1, batch_index: 0 }),
            Body::StepProposed(StepProposed { proposal: proposal.reference() }),
        ];
        self.drive(run, Some(step), bodies, vec![proposal]);
        step
    }

    fn call(&self, run: RunId, reviewers: Option<Reviewers>) -> Call {
        let state = self.state(run);
        let spec = Self::spec();
        let mut arguments = Object::new();
        arguments.insert("path", format!("{}.txt", state.run.step_count).as_str());
        let card = Card {
            capability: spec.name.clone(),
            tool: spec.name.clone(),
            arguments,
            spec: spec.digest(),
            effect: spec.effect,
            source: spec.source,
            sink: spec.sink,
            authority: spec.authority.clone(),
            target: None,
            sandbox: None,
            rules: vec!["class local_mutation: ask".to_owned()],
            reviewers,
        };
        let call = card.call_digest(&self.salt(&state));
        let request = Digest::of(Kind::Arguments, call.as_bytes());
        let admitted = Admitted {
            tool: spec.name.clone(),
            spec: spec.digest(),
            effect: spec.effect,
            request,
            call,
        };
        Call { admitted, card: Content::seal(card.value().to_canonical(), &self.entropy) }
    }

    fn judged(&self, run: RunId, admitted: &Admitted, verdict: Verdict) -> Body {
        let state = self.state(run);
        let facts = Facts {
            tenant: state.run.tenant.clone(),
            owner: state.run.owner.clone(),
            origin: ProposalOrigin::Model,
            steps: state.run.step_count,
            failures: state.run.failures,
            denials: state.run.denials,
            active_us: state.run.active_us,
            labels: Labels::of(Origin::Owner),
            label_seq: 0,
        };
        Body::StepJudged(StepJudged {
            origin: ProposalOrigin::Model,
            admitted: admitted.clone(),
            verdict,
            policy: state.run.policy,
            facts,
        })
    }

    fn started(&self, run: RunId, call: Digest) -> Body {
        let epoch = self.state(run).run.epoch;
        Body::StepStarted(StepStarted { call, epoch, deadline_ms: 1_000, start: 1 })
    }

    fn result(content: ContentRef) -> Observation {
        Observation {
            kind: ObservationKind::ToolResult,
            failure: None,
            refusal: None,
            content: Some(content),
            fingerprint: Some(Digest::of(Kind::Observation, b"result")),
            labels: Labels::of(Origin::external("files.create")),
            cut: false,
        }
    }

    fn finished(status: StepStatus, observation: Option<Observation>) -> Body {
        Body::StepFinished(StepFinished { status, read: None, observation, active_us: 11 })
    }

    fn allowed_call(&mut self, run: RunId) {
        let step = self.open(run);
        let call = self.call(run, None);
        let rules = vec!["class local_mutation: allow".to_owned()];
        let bodies = vec![
            self.judged(run, &call.admitted, Verdict::Allow { rules }),
            self.started(run, call.admitted.call),
        ];
        self.drive(run, Some(step), bodies, Vec::new());
        let result = self.content(r#"{"made":true}"#);
        let state = self.state(run);
        let labels = Labels::of(Origin::external("files.create"));
        let labelled = Body::ThreadLabelled(ThreadLabelled { labels, run, step });
        let finished = Self::finished(StepStatus::Done, Some(Self::result(result.reference())));
        let events =
            vec![(run.into(), Some(step), finished), (state.run.thread.into(), None, labelled)];
        self.append(self.driver(run), events, vec![result], Vec::new());
        self.drive(run, None, vec![self.released(run)], Vec::new());
        self.take(run);
    }

    fn released(&self, run: RunId) -> Body {
        Body::LeaseReleased(LeaseReleased { epoch: self.state(run).run.epoch })
    }

    /// Asks about a new step and lets the run wait.
    fn ask(&mut self, run: RunId, count: u32, on_rejection: OnRejection) -> (StepId, QuestionId) {
        let step = self.open(run);
        let reviewers = Reviewers { role: "operator".to_owned(), count };
        let call = self.call(run, Some(reviewers.clone()));
        let verdict = Verdict::Ask {
            reason: Refusal::ClassAsks,
            rules: vec!["class local_mutation: ask".to_owned()],
            reviewers: reviewers.clone(),
            on_rejection,
        };
        let judged = self.judged(run, &call.admitted, verdict);
        let (id, asked) =
            self.asked(run, step, QuestionKind::Approval, &call, reviewers, on_rejection);
        self.drive(run, Some(step), vec![judged, asked], vec![call.card]);
        (step, id)
    }

    fn asked(
        &self,
        run: RunId,
        step: StepId,
        kind: QuestionKind,
        call: &Call,
        reviewers: Reviewers,
        on_rejection: OnRejection,
    ) -> (QuestionId, Body) {
        let question = QuestionId::draw(self.at, &self.entropy);
        let expires_at = Some(self.at.after(Duration::from_mins(10)));
        let grant_ttl_ms = Some(60_000);
        let terms = Terms {
            instance: self.store.instance(),
            tenant: self.scope.tenant(),
            run,
            step,
            question,
            kind,
            call: call.admitted.call,
            expires_at,
            reviewers: &reviewers,
            uses: 1,
            grant_ttl_ms,
        };
        let unknown = kind == QuestionKind::UnknownOutcome;
        let asked = QuestionAsked {
            question,
            kind,
            digest: terms.digest(),
            call: call.admitted.call,
            card: call.card.reference(),
            reviewers,
            on_rejection,
            uses: 1,
            expires_at,
            grant_ttl_ms,
            cause: unknown.then_some(Failure::Crash),
            detail: None,
            active_us: 5,
        };
        (question, Body::QuestionAsked(asked))
    }

    fn approve(&mut self, run: RunId, person: &str) {
        self.answer(run, person, Answer::Approve, None, None);
    }

    /// An answer, and the end of its step if it is one.
    fn answer(
        &mut self,
        run: RunId,
        person: &str,
        answer: Answer,
        result: Option<Content>,
        end: Option<Body>,
    ) {
        let question = self.state(run).question.unwrap();
        let note = self.content("as agreed");
        let key = if person == "ann" { &self.ann } else { &self.bob };
        let statement = Statement {
            covers: vec![question.digest],
            answer,
            key: key.id(),
            at: self.at,
            note: Some(note.reference()),
            result: result.as_ref().map(Content::reference),
        };
        let signature = key.sign(&statement);
        let person = person.to_owned();
        let answered = QuestionAnswered { question: question.id, person, statement, signature };
        let condition = Condition::Operator {
            run,
            statuses: vec![RunStatus::Waiting],
            question: Some((question.id, question.digest)),
        };
        let bodies = std::iter::once(Body::QuestionAnswered(answered)).chain(end);
        let events = bodies.map(|body| (run.into(), Some(question.step), body)).collect();
        let contents = [Some(note), result].into_iter().flatten().collect();
        self.append(condition, events, contents, Vec::new());
    }

    /// Two people agree, the grant is used, the call happens.
    fn granted_call(&mut self, run: RunId) {
        let (step, question) = self.ask(run, 2, OnRejection::EndRun);
        self.approve(run, "ann");
        self.approve(run, "bob");
        self.take(run);
        let call = self.state(run).question.unwrap().call;
        let used = Body::ApprovalUsed(ApprovalUsed { question });
        let started = self.started(run, call);
        self.drive(run, Some(step), vec![used, started], Vec::new());
        let result = self.content(r#"{"made":true}"#);
        let finished = Self::finished(StepStatus::Done, Some(Self::result(result.reference())));
        self.drive(run, Some(step), vec![finished], vec![result]);
    }

    fn rejected_call(&mut self, run: RunId) {
        self.ask(run, 1, OnRejection::Observe);
        let denied = Observation {
            kind: ObservationKind::Denied,
            refusal: Some(Refusal::Rejected),
            content: None,
            fingerprint: None,
            labels: Labels::none(),
            ..Self::result(self.content("").reference())
        };
        let end = Self::finished(StepStatus::Failed, Some(denied));
        self.answer(run, "bob", Answer::Reject, None, Some(end));
        self.take(run);
    }

    /// A call whose outcome nobody knows, until a person says that it happened.
    fn unknown_outcome(&mut self, run: RunId) {
        let step = self.open(run);
        let call = self.call(run, None);
        let rules = vec!["class local_mutation: allow".to_owned()];
        let bodies = vec![
            self.judged(run, &call.admitted, Verdict::Allow { rules }),
            self.started(run, call.admitted.call),
        ];
        self.drive(run, Some(step), bodies, Vec::new());
        let reviewers = Reviewers { role: "operator".to_owned(), count: 1 };
        let (_, asked) = self.asked(
            run,
            step,
            QuestionKind::UnknownOutcome,
            &call,
            reviewers,
            OnRejection::Observe,
        );
        self.drive(run, Some(step), vec![asked], vec![call.card]);
        let result = self.content(r#"{"made":"by hand"}"#);
        let named = result.reference();
        // The content that the answer brought is named a second time.
        let finished = Self::finished(StepStatus::Done, Some(Self::result(named)));
        self.answer(run, "ann", Answer::Happened, Some(result), Some(finished));
        self.take(run);
    }

    /// A call whose outcome nobody knows until its probe says it, after it was started again with its key.
    fn resolved_call(&mut self, run: RunId) {
        let step = self.open(run);
        let keyed = ToolSpec {
            probe: Some(Probe { tool: "files.read".to_owned(), arguments: None }),
            idempotency_key: Some("key".to_owned()),
            ..Self::spec()
        };
        let call = self.call(run, None);
        let admitted = Admitted { spec: keyed.digest(), ..call.admitted };
        let allow = || Verdict::Allow { rules: vec!["class local_mutation: allow".to_owned()] };
        let judged = self.judged(run, &admitted, allow());
        let Body::StepJudged(StepJudged { policy, facts, .. }) = judged.clone() else { return };
        let started = self.started(run, admitted.call);
        let events =
            [judged, started].map(|body| (run.into(), Some(step), body)).into_iter().collect();
        self.append(self.driver(run), events, Vec::new(), vec![keyed.canonical()]);
        let epoch = self.state(run).run.epoch;
        let restarted = StepRestarted {
            call: admitted.call,
            epoch,
            deadline_ms: 1_000,
            start: 2,
            cause: Failure::Crash,
            verdict: allow(),
            policy,
            facts: facts.clone(),
        };
        self.drive(run, Some(step), vec![Body::StepRestarted(restarted)], Vec::new());

        let asked = self.probe_call(run);
        let probe = ProbeCall {
            admitted: asked.admitted,
            verdict: allow(),
            policy,
            facts,
            card: asked.card.reference(),
            deadline_ms: 1_000,
        };
        let probing = ProbeStarted { epoch, cause: Failure::Crash, call: Some(probe) };
        self.drive(run, Some(step), vec![Body::ProbeStarted(probing)], vec![asked.card]);
        let said = self.content(r#"{"happened":true}"#);
        let found = ProbeFinished {
            found: Found::Happened,
            observation: Some(Self::result(said.reference())),
        };
        let result = self.content("null");
        let finished = Self::finished(StepStatus::Done, Some(Self::result(result.reference())));
        let bodies = vec![Body::ProbeFinished(found), finished];
        self.drive(run, Some(step), bodies, vec![said, result]);
    }

    /// What the probe of a call is.
    fn probe_call(&self, run: RunId) -> Call {
        let spec = Self::other_spec();
        let call = self.call(run, None);
        let shown: Card =
            portcullis_canon::from_slice(call.card.bytes(), &portcullis_canon::Limits::ENVELOPE)
                .unwrap();
        let (tool, effect) = (spec.name.clone(), spec.effect);
        let card = Card { tool: tool.clone(), spec: spec.digest(), effect, ..shown };
        let admitted = Admitted {
            tool,
            spec: spec.digest(),
            effect,
            call: card.call_digest(&self.salt(&self.state(run))),
            ..call.admitted
        };
        Call { admitted, card: Content::seal(card.to_canonical(), &self.entropy) }
    }

    /// A question that nobody answers, and a run that ends with it.
    fn expired_call(&mut self, run: RunId) {
        let (_, id) = self.ask(run, 1, OnRejection::EndRun);
        let due = self.state(run).question.unwrap().expires_at.unwrap();
        self.at = due.after(Duration::from_secs(1));
        let condition =
            Condition::Sweep { run, question: id, status: QuestionStatus::Open, now: self.at, due };
        let closed = QuestionClosed { question: id, status: QuestionStatus::Expired };
        let ended =
            RunFinished { reason: EndReason::ApprovalExpired, note: None, result: None, by: None };
        let events = vec![
            (run.into(), None, Body::QuestionClosed(closed)),
            (run.into(), None, Body::RunFinished(ended)),
        ];
        self.append(condition, events, Vec::new(), Vec::new());
    }

    fn complete(&mut self, run: RunId) {
        let step = self.open(run);
        let (note, result) = (self.content("all tidy"), self.content(r#"{"files":3}"#));
        let read = ReadAs { kind: ProposalKind::Complete, origin: ProposalOrigin::Model };
        let finished = StepFinished {
            status: StepStatus::Done,
            read: Some(read),
            observation: None,
            active_us: 3,
        };
        let ended = RunFinished {
            reason: EndReason::GoalCompleted,
            note: Some(note.reference()),
            result: Some(result.reference()),
            by: None,
        };
        let events = vec![
            (run.into(), Some(step), Body::StepFinished(finished)),
            (run.into(), None, Body::RunFinished(ended)),
        ];
        self.append(self.driver(run), events, vec![note, result], Vec::new());
    }

    fn late(&mut self, run: RunId) {
        let step = self.state(run).batch[0].id;
        let content = self.content("too late");
        let observation = Observation {
            kind: ObservationKind::ToolError,
            failure: Some(Failure::Timeout),
            ..Self::result(content.reference())
        };
        let late = Body::OutcomeLate(OutcomeLate { epoch: Epoch(1), observation });
        let events = vec![(run.into(), Some(step), late)];
        self.append(Condition::Late, events, vec![content], Vec::new());
    }

    fn erase(&mut self, run: RunId) {
        let goal = self.state(run).run.goal.digest;
        let at = self.tick();
        block_on(self.store.erase(&self.scope, goal, "ann", at)).unwrap();
    }

    /// One more run, so that a record goes on.
    pub(crate) fn more(&mut self) {
        let run = self.create(None);
        self.allowed_call(run);
        self.complete(run);
    }
}
