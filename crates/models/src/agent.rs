//! An agent that asks a model: from views to requests, from replies to proposals.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use portcullis_canon::{Object, Value, sanitize};
use portcullis_domain::ports::{
    AdvertisedTool, Agent, AgentFailure, BoxFuture, ModelCall, ModelFailure, ModelHandle,
    ModelOutcome, ModelReply, Projection, SeenStep, Stop, ToolUse, View, Watch,
};
use portcullis_domain::run::EndReason;

use crate::dialect::{Dialect, Frame, Head, HeadError};
use crate::names::wire_name;
use crate::render::{FenceSeed, Profile, Said, StepResult, Transcript};

/// The most calls of one batch, as the protocol has it.
const MAX_BATCH: usize = 16;

/// The most bytes of a stated reason.
const MAX_REASON: usize = 500;

/// The tool of ours with which a model says that the task cannot be done.
const GIVE_UP: &str = "give_up";

/// How a model is asked.
#[derive(Clone, Debug)]
pub struct AgentSetup {
    /// What its provider speaks.
    pub dialect: Dialect,
    /// Its name at the provider.
    pub model: String,
    /// How steps are rendered.
    pub profile: Profile,
    /// What marks of outside content are drawn from.
    pub seed: FenceSeed,
    /// What the operator adds to the system text.
    pub system: Option<String>,
    /// The cap on each reply, in tokens; less where the handle allows less.
    pub max_output_tokens: u64,
    /// Whether the provider is to enforce schemas while the model writes.
    pub strict_tools: bool,
    /// Further members of each request; see [`Head::extra`].
    pub extra: Object,
    /// The tools that only read, by advertised name. Calls of one reply go together when all are among them.
    pub read_only: BTreeSet<String>,
    /// Who watches replies being made.
    pub watch: Option<Watch>,
}

impl AgentSetup {
    /// Whether thinking is signed. A message of the model without it would not be taken then, and none is made up.
    fn signs(&self) -> bool {
        self.dialect == Dialect::Anthropic && self.extra.contains_key("thinking")
    }
}

/// A reply under way: its tool uses, and what came of those that were proposed.
#[derive(Debug)]
struct Plan {
    said: Said,
    uses: VecDeque<Planned>,
    /// What came of the first of them.
    done: Vec<(Planned, SeenStep)>,
    /// The request that the last proposal answered.
    proposed_at: u64,
    together: bool,
}

#[derive(Debug)]
struct Planned {
    id: String,
    /// As it is advertised; a name that is not, as the model spelled it.
    tool: String,
    arguments: Object,
}

/// What the model is told of a reply that nothing came of.
#[derive(Debug)]
struct Remark {
    said: Option<String>,
    text: String,
}

/// What the views of one run gave, once there was one.
#[derive(Debug)]
struct Conversation {
    transcript: Transcript,
    frame: Frame,
    tools: Arc<[AdvertisedTool]>,
    by_wire: BTreeMap<String, String>,
}

/// Proposes what a model asks for.
///
/// It holds no key and reaches no network: it has a [`ModelHandle`], which accounts, or is lent one for each proposal. A reply is proposed as it is: what is
/// wrong with a call is the gate's to say. Of several calls in one reply those that only read go together; others are
/// proposed one by one, in order, without asking the model in between.
pub struct ModelAgent {
    handle: Option<Arc<dyn ModelHandle>>,
    setup: AgentSetup,
    conversation: Option<Conversation>,
    plan: Option<Plan>,
    remark: Option<Remark>,
    /// Steps below this request were taken in.
    seen: u64,
    answered: Option<(u64, Vec<u8>)>,
}

impl ModelAgent {
    /// An agent for a loop of one's own, which asks through `handle`. A driver's own handle goes before it.
    #[must_use]
    pub fn new(handle: Arc<dyn ModelHandle>, setup: AgentSetup) -> Self {
        Self { handle: Some(handle), ..Self::driven(setup) }
    }

    /// An agent that asks through the handle which its driver lends it for each proposal; without one it fails.
    #[must_use]
    pub fn driven(setup: AgentSetup) -> Self {
        Self {
            handle: None,
            setup,
            conversation: None,
            plan: None,
            remark: None,
            seen: 0,
            answered: None,
        }
    }

    async fn answer(
        &mut self,
        view: View,
        handle: &dyn ModelHandle,
    ) -> Result<Vec<u8>, AgentFailure> {
        if let Some((request, bytes)) = &self.answered
            && *request == view.request
        {
            return Ok(bytes.clone());
        }
        let asked = self.setup.max_output_tokens;
        self.setup.max_output_tokens = handle.output_cap().map_or(asked, |cap| cap.min(asked));
        self.meet(&view)?;
        self.take_in(&view);
        let bytes = match self.planned(view.request) {
            Some(bytes) => bytes,
            None => self.ask(&view, handle).await?,
        };
        self.answered = Some((view.request, bytes.clone()));
        Ok(bytes)
    }

    /// Makes the frame, at first and when the tools are others.
    fn meet(&mut self, view: &View) -> Result<(), AgentFailure> {
        if self.conversation.as_ref().is_some_and(|c| Arc::ptr_eq(&c.tools, &view.tools)) {
            return Ok(());
        }
        let head = self.head(&view.tools);
        let frame = self.setup.dialect.frame(&head).map_err(|error| unusable_head(&error))?;
        let by_wire = view.tools.iter().map(|t| (wire_name(&t.name), t.name.clone())).collect();
        let transcript = match self.conversation.take() {
            Some(conversation) => conversation.transcript,
            None => {
                let (dialect, profile) = (self.setup.dialect, self.setup.profile);
                let mut transcript =
                    Transcript::new(dialect, profile, self.setup.seed.clone(), &view.goal);
                transcript.leave_out(view.omitted);
                transcript
            }
        };
        let tools = Arc::clone(&view.tools);
        self.conversation = Some(Conversation { transcript, frame, tools, by_wire });
        Ok(())
    }

    fn head(&self, tools: &[AdvertisedTool]) -> Head {
        let mut tools = tools.to_vec();
        if !tools.iter().any(|tool| tool.name == GIVE_UP) {
            tools.push(give_up());
        }
        Head {
            model: self.setup.model.clone(),
            system: self.setup.profile.system(self.setup.system.as_deref()),
            tools: tools.into(),
            max_output_tokens: self.setup.max_output_tokens,
            strict_tools: self.setup.strict_tools,
            extra: self.setup.extra.clone(),
        }
    }

    /// Takes in what the view shows that is new.
    fn take_in(&mut self, view: &View) {
        let new = |step: &&SeenStep| step.request >= self.seen && step.request < view.request;
        let new: Vec<SeenStep> = view.history.iter().filter(new).cloned().collect();
        if view.request > self.seen {
            if let Some(remark) = self.remark.take() {
                if let Some(conversation) = &mut self.conversation {
                    conversation.transcript.push_remark(remark.said, &remark.text);
                }
            } else if self.plan.is_some() {
                self.take_in_results(view.request, new);
            } else {
                for step in new {
                    self.take_in_former(step);
                }
            }
        }
        self.seen = view.request;
    }

    /// A step that another process proposed.
    fn take_in_former(&mut self, step: SeenStep) {
        let Some(conversation) = &mut self.conversation else { return };
        let Some(tool) = step.tool.as_deref() else {
            let remark = format!("[{}] A reply of yours could not be used.", step.outcome);
            conversation.transcript.push_remark(None, &sanitize::line(&remark));
            return;
        };
        let arguments = step.arguments.as_ref().and_then(Value::as_object).cloned();
        let result = StepResult {
            id: format!("step_{}", step.request),
            tool,
            arguments: arguments.unwrap_or_default(),
            request: step.request,
            index: 0,
            outcome: &step.outcome,
            content: &step.content,
            external: step.external,
        };
        if self.setup.signs() {
            conversation.transcript.push_told(&result);
        } else {
            conversation.transcript.push(Said::default(), &[result]);
        }
    }

    fn take_in_results(&mut self, request: u64, new: Vec<SeenStep>) {
        let Some(plan) = &mut self.plan else { return };
        let steps = request.saturating_sub(plan.proposed_at);
        if plan.together {
            plan.together = false;
            if steps != u64::try_from(plan.uses.len()).unwrap_or(u64::MAX) {
                // Nothing of the batch was done: its calls are proposed one by one.
                return;
            }
            for at in plan.proposed_at..request {
                plan.take(at, &new);
            }
        } else {
            plan.take(plan.proposed_at, &new);
        }
        let stopped = plan.done.last().is_none_or(|(_, step)| step.outcome != "tool_result");
        if (stopped || plan.uses.is_empty())
            && let (Some(plan), Some(conversation)) = (self.plan.take(), &mut self.conversation)
        {
            plan.tell(&mut conversation.transcript);
        }
    }

    /// The proposal of the next tool use of a reply under way.
    fn planned(&mut self, request: u64) -> Option<Vec<u8>> {
        let plan = self.plan.as_mut()?;
        let reason = if plan.done.is_empty() { plan.said.text.clone() } else { String::new() };
        let next = plan.uses.front()?;
        plan.proposed_at = request;
        let advertised = self.conversation.as_ref()?.by_wire.contains_key(GIVE_UP);
        if next.tool == GIVE_UP && !advertised {
            let message = next.arguments.get("message").and_then(Value::as_str);
            return Some(fail(request, message.unwrap_or("the model gave up")));
        }
        let mut call = call_of(next, &reason);
        call.insert("kind", "tool_call");
        Some(proposal(request, call))
    }

    async fn ask(
        &mut self,
        view: &View,
        handle: &dyn ModelHandle,
    ) -> Result<Vec<u8>, AgentFailure> {
        let Some(conversation) = &self.conversation else { return Err(lost()) };
        let body = conversation.transcript.body(&conversation.frame);
        let bytes = u64::try_from(body.len()).unwrap_or(u64::MAX);
        let call = ModelCall {
            request: view.request,
            body: body.into(),
            projection: Projection::of(bytes, self.setup.max_output_tokens),
            labels: view.labels.clone(),
            watch: self.setup.watch.clone(),
        };
        match handle.call(call).await {
            ModelOutcome::Reply(reply) => Ok(self.replied(view.request, reply)),
            ModelOutcome::Failed(failure) if failure.fault.is_misspoken() => {
                Ok(self.misspoke(view.request, &failure))
            }
            ModelOutcome::Failed(failure) => Err(AgentFailure {
                reason: EndReason::ModelUnavailable,
                message: failure.to_string(),
            }),
            ModelOutcome::Stopped { reason, message } => Err(AgentFailure { reason, message }),
        }
    }

    /// A reply that says nothing that could be proposed. The gate records and counts it, and the model is told.
    fn misspoke(&mut self, request: u64, failure: &ModelFailure) -> Vec<u8> {
        let text = format!(
            "[{}] Your last reply could not be used, and nothing was done: {}.",
            failure.fault.as_str(),
            failure.message
        );
        self.remark = Some(Remark { said: None, text });
        unusable(request, failure.fault.as_str())
    }

    fn replied(&mut self, request: u64, reply: ModelReply) -> Vec<u8> {
        match reply.stop {
            Stop::EndTurn => complete(request, &reply.text),
            Stop::Refusal if reply.text.trim().is_empty() => fail(request, "the model refused"),
            Stop::Refusal => fail(request, &format!("the model refused: {}", reply.text)),
            Stop::ContextFull => fail(request, "the model had no room left for an answer"),
            Stop::MaxTokens => {
                let text = "[max_tokens] Your last reply was cut off at the cap on its length, and nothing of it was done. Make it shorter.";
                let said = (!self.setup.signs()).then_some(reply.text);
                self.remark = Some(Remark { said, text: text.to_owned() });
                unusable(request, Stop::MaxTokens.as_str())
            }
            Stop::ToolUse => self.plan_uses(request, reply),
        }
    }

    fn plan_uses(&mut self, request: u64, reply: ModelReply) -> Vec<u8> {
        let by_wire = self.conversation.as_ref().map(|c| &c.by_wire);
        let given = reply.verbatim.is_some();
        let planned = |(index, tool_use): (usize, ToolUse)| Planned {
            id: if given { tool_use.id } else { format!("step_{request}_{index}") },
            tool: by_wire.and_then(|n| n.get(&tool_use.name)).cloned().unwrap_or(tool_use.name),
            arguments: tool_use.arguments,
        };
        let uses: VecDeque<Planned> = reply.uses.into_iter().enumerate().map(planned).collect();
        let reads = |u: &Planned| self.setup.read_only.contains(&u.tool) && u.tool != GIVE_UP;
        let together = (2..=MAX_BATCH).contains(&uses.len()) && uses.iter().all(reads);
        let said = Said { text: reply.text, verbatim: reply.verbatim };
        let batch = together.then(|| batch(request, &said.text, &uses));
        self.plan = Some(Plan { said, uses, done: Vec::new(), proposed_at: request, together });
        // A plan has a tool use, since a reply without one does not stop for tools.
        batch.or_else(|| self.planned(request)).unwrap_or_else(|| unusable(request, "empty_reply"))
    }
}

impl Plan {
    /// What came of the next tool use, which was proposed at `request`.
    fn take(&mut self, request: u64, new: &[SeenStep]) {
        let Some(planned) = self.uses.pop_front() else { return };
        let seen = new.iter().find(|step| step.request == request).cloned();
        let step = seen.unwrap_or_else(|| blank(request, "not_shown"));
        self.done.push((planned, step));
    }

    /// All results, in order, those that were not tried included.
    fn tell(mut self, transcript: &mut Transcript) {
        let request = self.proposed_at;
        let rest = self.uses.drain(..).map(|planned| (planned, blank(request, "not_attempted")));
        self.done.extend(rest);
        let results: Vec<StepResult<'_>> = self
            .done
            .iter()
            .enumerate()
            .map(|(index, (planned, step))| StepResult {
                id: planned.id.clone(),
                tool: &planned.tool,
                arguments: planned.arguments.clone(),
                request: step.request,
                index: u64::try_from(index).unwrap_or(u64::MAX),
                outcome: &step.outcome,
                content: &step.content,
                external: step.external,
            })
            .collect();
        transcript.push(self.said, &results);
    }
}

fn blank(request: u64, outcome: &str) -> SeenStep {
    SeenStep {
        request,
        tool: None,
        arguments: None,
        outcome: outcome.to_owned(),
        content: Value::Null,
        external: false,
    }
}

fn give_up() -> AdvertisedTool {
    let message =
        Object::from_iter([("type", "string"), ("description", "Why, in one or two sentences.")]);
    let schema = Object::from_iter([
        ("type", Value::from("object")),
        ("properties", Value::Object(Object::from_iter([("message", message)]))),
        ("required", ["message"].into_iter().collect::<Value>()),
        ("additionalProperties", Value::from(false)),
    ]);
    AdvertisedTool {
        name: GIVE_UP.to_owned(),
        description: "Ends the task as one that cannot be done.".to_owned(),
        input_schema: Value::Object(schema),
    }
}

fn call_of(planned: &Planned, reason: &str) -> Object {
    let mut call = Object::new();
    call.insert("tool", planned.tool.as_str());
    call.insert("arguments", planned.arguments.clone());
    if !reason.trim().is_empty() {
        call.insert("reason", sanitize::clip(reason, MAX_REASON));
    }
    call
}

fn proposal(request: u64, mut object: Object) -> Vec<u8> {
    object.insert("request", request);
    object.insert("origin", "model");
    object.to_canonical()
}

fn batch(request: u64, reason: &str, uses: &VecDeque<Planned>) -> Vec<u8> {
    let calls = uses.iter().enumerate();
    let calls =
        calls.map(|(index, planned)| call_of(planned, if index == 0 { reason } else { "" }));
    let calls = calls.collect::<Value>();
    proposal(request, Object::from_iter([("kind", Value::from("tool_calls")), ("calls", calls)]))
}

fn complete(request: u64, text: &str) -> Vec<u8> {
    proposal(request, Object::from_iter([("kind", "complete"), ("result", text)]))
}

fn fail(request: u64, message: &str) -> Vec<u8> {
    proposal(request, Object::from_iter([("kind", "fail"), ("message", message)]))
}

/// A proposal that the gate refuses by its kind: so it is recorded, and costs a step.
fn unusable(request: u64, why: &str) -> Vec<u8> {
    proposal(request, Object::from_iter([("kind", "unusable_reply"), ("reason", why)]))
}

fn unusable_head(error: &HeadError) -> AgentFailure {
    AgentFailure { reason: EndReason::AgentError, message: error.to_string() }
}

fn no_handle() -> AgentFailure {
    let message = "this agent asks a model, and it was lent none".to_owned();
    AgentFailure { reason: EndReason::AgentError, message }
}

fn lost() -> AgentFailure {
    let message = "the conversation was not begun".to_owned();
    AgentFailure { reason: EndReason::AgentError, message }
}

impl Agent for ModelAgent {
    fn propose(&mut self, view: View) -> BoxFuture<'_, Result<Vec<u8>, AgentFailure>> {
        let handle = self.handle.clone();
        Box::pin(async move {
            match handle {
                Some(handle) => self.answer(view, handle.as_ref()).await,
                None => Err(no_handle()),
            }
        })
    }

    fn propose_with<'a>(
        &'a mut self,
        view: View,
        model: &'a dyn ModelHandle,
    ) -> BoxFuture<'a, Result<Vec<u8>, AgentFailure>> {
        Box::pin(self.answer(view, model))
    }
}
