//! The JSON that `--json` writes: types of their own, documented in `docs/json-output.md`.
//!
//! Text that others wrote is at most [`MAX_TEXT_BYTES`] long, with its whole size beside it.

use portcullis_audit::keys::KeyEntry;
use portcullis_canon::{Digest, Limits, Value, parse, sanitize};
use portcullis_domain::content::ContentRef;
use portcullis_domain::event::Body;
use portcullis_domain::id::{JournalId, QuestionId, RunId, StepId, ThreadId};
use portcullis_domain::ports::{DamagedRow, StoredEvent};
use portcullis_domain::question::{Question, QuestionStatus};
use portcullis_domain::run::Run;
use portcullis_domain::step::Step;
use portcullis_domain::time::Timestamp;
use portcullis_domain::verdict::{Reviewers, Verdict};
use portcullis_engine::diff::{self, Section, Side, Where};
use portcullis_engine::recheck::{Answer, Broken, Evaluation, Finding, Totals};
use serde::Serialize;

use crate::lookup::Words;
use crate::output::card::capped;
use crate::waits::{Asked, Counts, Waits};

/// The most bytes of one text.
pub(crate) const MAX_TEXT_BYTES: usize = 64 << 10;

/// A stored text.
#[derive(Debug, Serialize)]
pub(crate) struct Text {
    /// Its whole size.
    bytes: u64,
    /// The text, or its beginning; null when it cannot be shown.
    text: Option<String>,
    /// `null`, `cut`, `long`, `erased` or `damaged`.
    missing: Option<&'static str>,
}

impl Text {
    pub(crate) fn of(reference: ContentRef, words: &Words) -> Self {
        let (text, missing) = match words {
            Words::Here(bytes) => {
                let text = String::from_utf8_lossy(bytes);
                let missing = (text.len() > MAX_TEXT_BYTES).then_some("cut");
                (Some(sanitize::clip(&text, MAX_TEXT_BYTES)), missing)
            }
            Words::Long => (None, Some("long")),
            Words::Gone => (None, Some("erased")),
            Words::Differs => (None, Some("damaged")),
        };
        Self { bytes: reference.size, text, missing }
    }
}

/// A row, or the place of one that cannot be read.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum RowJson<T> {
    /// The row.
    Whole(T),
    /// A damaged row.
    Damaged {
        /// Its primary key and the first column that does not fit.
        damaged: DamagedJson,
    },
}

/// See [`RowJson::Damaged`].
#[derive(Debug, Serialize)]
pub(crate) struct DamagedJson {
    key: String,
    column: &'static str,
}

impl<T> RowJson<T> {
    pub(crate) fn damaged(row: &DamagedRow) -> Self {
        let key = sanitize::clip(&row.key, MAX_TEXT_BYTES);
        Self::Damaged { damaged: DamagedJson { key, column: row.column } }
    }
}

/// `run` and `resume`: how a run came to rest.
#[derive(Debug, Serialize)]
pub(crate) struct RestJson {
    pub(crate) run: RunId,
    /// The top of its tree: itself, unless another run started it.
    pub(crate) top: RunId,
    /// `waiting`, `stopped`, or how it ended.
    pub(crate) status: &'static str,
    /// Why it ended.
    pub(crate) reason: Option<&'static str>,
    /// The question that it waits for.
    pub(crate) question: Option<QuestionId>,
    /// What the agent says came of it, whole.
    pub(crate) result: Option<String>,
    /// What is said of its end, whole.
    pub(crate) note: Option<String>,
    /// The commands that go on from here.
    pub(crate) next: Vec<String>,
}

/// `runs`.
#[derive(Debug, Serialize)]
pub(crate) struct RunsJson {
    pub(crate) runs: Vec<RowJson<RunJson>>,
    pub(crate) total: u64,
    pub(crate) limit: u32,
    pub(crate) offset: u64,
    pub(crate) truncated: bool,
}

/// One run.
#[derive(Debug, Serialize)]
pub(crate) struct RunJson {
    run: RunId,
    status: &'static str,
    reason: Option<&'static str>,
    owner: String,
    thread: ThreadId,
    parent: Option<RunId>,
    root: RunId,
    agent: String,
    unconfined_agent: bool,
    goal: Text,
    policy: Digest,
    steps: u64,
    failures: u64,
    denials: u64,
    active_us: u64,
    waits: Option<QuestionId>,
    /// What it waits for; null once it ended.
    waits_for: Option<WaitsJson>,
    created_at: Timestamp,
    finished_at: Option<Timestamp>,
    events: u64,
    hash: Digest,
}

impl RunJson {
    /// `standing` is the status, `interrupted` included.
    pub(crate) fn of(run: &Run, standing: &'static str, goal: &Words) -> Self {
        Self {
            run: run.id,
            status: standing,
            reason: run.reason.map(|reason| reason.as_str()),
            owner: sanitize::clip(&run.owner, MAX_TEXT_BYTES),
            thread: run.thread,
            parent: run.parent,
            root: run.root,
            agent: sanitize::clip(&run.agent, MAX_TEXT_BYTES),
            unconfined_agent: run.unconfined_agent,
            goal: Text::of(run.goal, goal),
            policy: run.policy,
            steps: run.step_count,
            failures: run.failures,
            denials: run.denials,
            active_us: run.active_us,
            waits: run.question,
            waits_for: None,
            created_at: run.created_at,
            finished_at: run.finished_at,
            events: run.seq,
            hash: run.hash,
        }
    }

    pub(crate) fn waiting_for(self, waits: Option<&Waits>) -> Self {
        Self { waits_for: waits.map(WaitsJson::of), ..self }
    }
}

/// `show`.
#[derive(Debug, Serialize)]
pub(crate) struct ShowJson {
    pub(crate) run: RunJson,
    pub(crate) note: Option<Text>,
    pub(crate) result: Option<Text>,
    pub(crate) question: Option<QuestionJson>,
    /// The runs that it started, as many as a page has, and how many there are in all.
    pub(crate) children: Vec<RowJson<ChildJson>>,
    pub(crate) children_total: u64,
    pub(crate) steps: Vec<RowJson<StepJson>>,
    pub(crate) steps_total: u64,
    pub(crate) limit: u32,
    pub(crate) offset: u64,
    pub(crate) truncated: bool,
}

/// A run that a run started.
#[derive(Debug, Serialize)]
pub(crate) struct ChildJson {
    pub(crate) run: RunId,
    pub(crate) status: &'static str,
    pub(crate) reason: Option<&'static str>,
}

/// One step.
#[derive(Debug, Serialize)]
pub(crate) struct StepJson {
    step: StepId,
    index: u64,
    batch: u32,
    batch_index: u32,
    status: &'static str,
    kind: Option<&'static str>,
    origin: Option<&'static str>,
    tool: Option<String>,
    effect: Option<&'static str>,
    call: Option<Digest>,
    verdict: Option<Verdict>,
    policy: Option<Digest>,
    question: Option<QuestionId>,
    attempts: u32,
    starts: u32,
    observation: Option<ObservationJson>,
    opened_at: Timestamp,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
}

/// What came back from a step.
#[derive(Debug, Serialize)]
pub(crate) struct ObservationJson {
    kind: &'static str,
    failure: Option<&'static str>,
    refusal: Option<&'static str>,
    cut: bool,
    labels: portcullis_domain::label::Labels,
    content: Option<Text>,
}

impl StepJson {
    /// `content` is the observation's.
    pub(crate) fn of(step: &Step, content: Option<&Words>) -> Self {
        let observation = step.observation.as_ref().map(|observation| ObservationJson {
            kind: observation.kind.as_str(),
            failure: observation.failure.map(|failure| failure.as_str()),
            refusal: observation.refusal.map(|refusal| refusal.as_str()),
            cut: observation.cut,
            labels: observation.labels.clone(),
            content: observation.content.zip(content).map(|(at, words)| Text::of(at, words)),
        });
        let admitted = step.admitted.as_ref();
        Self {
            step: step.id,
            index: step.index,
            batch: step.batch,
            batch_index: step.batch_index,
            status: step.status.as_str(),
            kind: step.kind.map(|kind| kind.as_str()),
            origin: step.origin.map(|origin| origin.as_str()),
            tool: admitted.map(|admitted| sanitize::clip(&admitted.tool, MAX_TEXT_BYTES)),
            effect: admitted.map(|admitted| admitted.effect.as_str()),
            call: admitted.map(|admitted| admitted.call),
            verdict: step.verdict.clone(),
            policy: step.policy,
            question: step.question,
            attempts: step.attempts,
            starts: step.starts,
            observation,
            opened_at: step.opened_at,
            started_at: step.started_at,
            finished_at: step.finished_at,
        }
    }
}

/// `inbox`.
#[derive(Debug, Serialize)]
pub(crate) struct InboxJson {
    pub(crate) questions: Vec<RowJson<QuestionJson>>,
    pub(crate) total: u64,
    pub(crate) limit: u32,
    pub(crate) offset: u64,
    pub(crate) truncated: bool,
}

/// One question.
#[derive(Debug, Serialize)]
pub(crate) struct QuestionJson {
    question: QuestionId,
    run: RunId,
    step: StepId,
    kind: &'static str,
    status: &'static str,
    digest: Digest,
    call: Digest,
    reviewers: Reviewers,
    yes: u32,
    on_rejection: &'static str,
    uses: u32,
    asked_at: Timestamp,
    expires_at: Option<Timestamp>,
    /// Its time is past: an answer comes too late.
    overdue: bool,
    /// It ends within the time before which people are reminded; false beside a list.
    ends_soon: bool,
    card: Option<Value>,
    /// Why there is no card, or that it does not fit its digest.
    missing: Option<&'static str>,
    /// The agent's stated reason: data, never authority.
    stated_reason: Option<String>,
    /// Why it is asked although somebody said yes before.
    asked_again: Option<&'static str>,
    /// Others of this page that ask for the same call.
    alike: Vec<QuestionId>,
    /// The runs from the top of the tree down to the one that asks; empty beside a list.
    path: Vec<RunId>,
}

impl QuestionJson {
    /// Says that it ends soon.
    pub(crate) fn ending_soon(mut self, soon: bool) -> Self {
        self.ends_soon = soon;
        self
    }

    /// Names the runs from the top of the tree to the one that asks.
    pub(crate) fn on_path(mut self, path: Vec<RunId>) -> Self {
        self.path = path;
        self
    }

    /// Names the questions of the same page that ask for the same call.
    pub(crate) fn with_alike(mut self, alike: Vec<QuestionId>) -> Self {
        self.alike = alike;
        self
    }

    /// `card` as it is stored, or why there is none.
    /// `now` says whether it is overdue.
    pub(crate) fn of(
        question: &Question,
        now: Timestamp,
        card: &Words,
        stated_reason: Option<&str>,
        asked_again: Option<&'static str>,
    ) -> Self {
        let (card, missing) = match card {
            Words::Here(bytes) => match parse(bytes, &Limits::ENVELOPE) {
                Ok(value) => (Some(capped(&value, MAX_TEXT_BYTES)), None),
                Err(_) => (None, Some("damaged")),
            },
            Words::Long => (None, Some("long")),
            Words::Gone => (None, Some("erased")),
            Words::Differs => (None, Some("damaged")),
        };
        Self {
            question: question.id,
            run: question.run,
            step: question.step,
            kind: question.kind.as_str(),
            status: question.status.as_str(),
            digest: question.digest,
            call: question.call,
            reviewers: question.reviewers.clone(),
            yes: question.yes,
            on_rejection: question.on_rejection.as_str(),
            uses: question.uses,
            asked_at: question.asked_at,
            expires_at: question.expires_at,
            overdue: question.status == QuestionStatus::Open
                && question.expires_at.is_some_and(|at| at <= now),
            card,
            missing,
            stated_reason: stated_reason.map(|reason| sanitize::clip(reason, MAX_TEXT_BYTES)),
            asked_again,
            alike: Vec::new(),
            ends_soon: false,
            path: Vec::new(),
        }
    }
}

/// A line of `events`.
#[derive(Debug, Serialize)]
pub(crate) struct EventJson {
    seq: i64,
    stream: String,
    stream_seq: i64,
    step: Option<String>,
    at: Option<Timestamp>,
    #[serde(rename = "type")]
    kind: String,
    version: i64,
    payload: Option<Value>,
    /// The payload as text, when it is no JSON.
    invalid_payload: Option<String>,
    hash: String,
}

impl EventJson {
    pub(crate) fn of(event: &StoredEvent) -> Self {
        let limits = Limits::ENVELOPE.with_max_bytes(portcullis_domain::event::MAX_PAYLOAD_BYTES);
        let payload = parse(&event.payload, &limits).ok();
        let invalid = payload.is_none().then(|| String::from_utf8_lossy(&event.payload));
        let at = Timestamp::from_micros(event.at);
        Self {
            seq: event.journal_seq,
            stream: stream(event),
            stream_seq: event.stream_seq,
            step: event.step.as_deref().map(|id| id_text("step", id)),
            at: (at.micros() == event.at).then_some(at),
            kind: sanitize::clip(&event.kind, MAX_TEXT_BYTES),
            version: event.version,
            payload: payload.map(|payload| capped(&payload, MAX_TEXT_BYTES)),
            invalid_payload: invalid.map(|text| sanitize::clip(&text, MAX_TEXT_BYTES)),
            hash: format!("sha256:{}", hex(&event.hash)),
        }
    }
}

/// A stored stream as text: the id with its prefix where the kind has one.
pub(crate) fn stream(event: &StoredEvent) -> String {
    match event.stream_kind.as_str() {
        "run" => id_text("run", &event.stream_id),
        "thread" => id_text("thread", &event.stream_id),
        "system" => id_text("inst", &event.stream_id),
        other => id_text(&sanitize::clip(&sanitize::line(other), 32), &event.stream_id),
    }
}

fn id_text(prefix: &str, id: &[u8]) -> String {
    format!("{prefix}_{}", hex(id))
}

/// Stored bytes as hexadecimal digits, at most 64 bytes of them.
fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().take(64).flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect()
}

/// What a decision led to.
#[derive(Debug, Serialize)]
pub(crate) struct DecidedJson {
    pub(crate) question: QuestionId,
    pub(crate) run: RunId,
    pub(crate) digest: Digest,
    pub(crate) answer: &'static str,
    /// `granted`, `more_needed`, `goes_on` or `ended`.
    pub(crate) led_to: &'static str,
    /// How many more people have to say yes.
    pub(crate) people_needed: Option<u32>,
    /// Why the run ended.
    pub(crate) reason: Option<&'static str>,
    /// What was decided with it.
    pub(crate) alike: Vec<AlikeJson>,
}

/// A question about the same call that was decided with another.
#[derive(Debug, Serialize)]
pub(crate) struct AlikeJson {
    pub(crate) question: QuestionId,
    pub(crate) run: RunId,
    pub(crate) digest: Digest,
    /// As in [`DecidedJson`], or `refused`.
    pub(crate) led_to: &'static str,
    pub(crate) people_needed: Option<u32>,
    pub(crate) reason: Option<&'static str>,
    /// Why it was refused.
    pub(crate) error: Option<String>,
}

/// `cancel`.
#[derive(Debug, Serialize)]
pub(crate) struct CancelledJson {
    pub(crate) run: RunId,
    pub(crate) status: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) by: String,
}

/// A line of `watch`.
#[derive(Debug, Serialize)]
pub(crate) struct WatchJson {
    /// `asked`, `answered`, `closed`, `ended`, `question_ends` or `grant_ends`.
    pub(crate) what: &'static str,
    pub(crate) at: Timestamp,
    pub(crate) run: RunId,
    pub(crate) question: Option<QuestionId>,
    pub(crate) tool: Option<String>,
    pub(crate) who: Option<String>,
    pub(crate) how: Option<&'static str>,
    pub(crate) until: Option<Timestamp>,
}

/// What a run that has not ended waits for.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WaitsJson {
    /// `driver`, `resume`, `people`, `outcome`, `child`, `grant` or `damaged`.
    what: &'static str,
    /// The run that it started and waits for.
    child: Option<RunId>,
    process: Option<u32>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    question: Option<QuestionId>,
    kind: Option<&'static str>,
    role: Option<String>,
    needed: Option<u32>,
    yes: Option<u32>,
    /// For `grant`: whether the answers count; null where that cannot be told.
    counts: Option<bool>,
    overdue: bool,
}

impl WaitsJson {
    pub(crate) fn of(waits: &Waits) -> Self {
        let bare = Self {
            what: waits.as_str(),
            child: None,
            process: None,
            since: None,
            until: None,
            question: None,
            kind: None,
            role: None,
            needed: None,
            yes: None,
            counts: None,
            overdue: false,
        };
        let of = |asked: &Asked, counts: Option<Counts>| Self {
            until: asked.until,
            question: Some(asked.question),
            kind: Some(asked.kind.as_str()),
            role: Some(sanitize::clip(&asked.role, MAX_TEXT_BYTES)),
            needed: Some(asked.needed),
            yes: Some(asked.yes),
            counts: counts.and_then(Counts::told),
            overdue: asked.overdue,
            ..bare.clone()
        };
        match waits {
            Waits::Driver { process, until } => {
                Self { process: Some(*process), until: Some(*until), ..bare }
            }
            Waits::Resume { since } => Self { since: *since, ..bare },
            Waits::Child { child, .. } => Self { child: Some(*child), ..bare },
            Waits::Damaged(question) => Self { question: Some(*question), ..bare },
            Waits::Unnamed => bare,
            Waits::People(asked) | Waits::Outcome(asked) => of(asked, None),
            Waits::Grant(asked, counts) => of(asked, Some(*counts)),
        }
    }
}

/// A line of `explain`: one step.
#[derive(Debug, Serialize)]
pub(crate) struct StepFactsJson {
    pub(crate) step: StepId,
    pub(crate) index: Option<u64>,
    /// What was decided about it; null where the record does not hold.
    pub(crate) decision: Option<&'static str>,
    /// The refusal or the failure behind it.
    pub(crate) because: Option<&'static str>,
    /// Who answered its latest question, and what.
    pub(crate) people: Vec<SaidJson>,
    /// What the step waits for now.
    pub(crate) waits_for: Option<WaitsJson>,
    pub(crate) facts: Vec<FactJson>,
}

/// Somebody's answer.
#[derive(Debug, Serialize)]
pub(crate) struct SaidJson {
    person: String,
    answer: &'static str,
}

impl SaidJson {
    pub(crate) fn of(person: &str, answer: &'static str) -> Self {
        Self { person: sanitize::clip(person, MAX_TEXT_BYTES), answer }
    }
}

/// One recorded fact about a step.
#[derive(Debug, Serialize)]
pub(crate) struct FactJson {
    seq: u64,
    at: Timestamp,
    #[serde(rename = "type")]
    kind: &'static str,
    payload: Option<Value>,
    /// What is recorded of a refusal or an error: rule and place, note, message.
    detail: Option<Value>,
    /// What the configured keys say of an answer's signature.
    signature: Option<&'static str>,
}

impl FactJson {
    pub(crate) fn of(
        seq: u64,
        at: Timestamp,
        body: &Body,
        detail: Option<&Value>,
        signature: Option<&'static str>,
    ) -> Self {
        let payload = body.payload().ok();
        let payload = payload.and_then(|payload| parse(&payload, &Limits::ENVELOPE).ok());
        Self {
            seq,
            at,
            kind: body.name(),
            payload: payload.map(|payload| capped(&payload, MAX_TEXT_BYTES)),
            detail: detail.map(|detail| capped(detail, MAX_TEXT_BYTES)),
            signature,
        }
    }
}

/// `verify`.
#[derive(Debug, Serialize)]
pub(crate) struct VerifyJson<'a> {
    pub(crate) report: &'a portcullis_audit::Report,
    /// Whose keys the answers were judged with.
    pub(crate) reviewers: Vec<JudgesJson>,
    /// What may be behind breaks of this kind.
    pub(crate) hint: Option<String>,
    /// Each break as a sentence, in the order of the report's.
    pub(crate) sentences: Vec<String>,
    /// Where each journal ends.
    pub(crate) heads: Vec<HeadJson>,
}

/// A place where reviewers are named.
#[derive(Debug, Serialize)]
pub(crate) struct JudgesJson {
    pub(crate) from: String,
    /// How many keys it names, unless it is not used.
    pub(crate) keys: Option<usize>,
    /// Why it is not used.
    pub(crate) why: Option<String>,
}

/// A line of `recheck`: one evaluation.
#[derive(Debug, Serialize)]
pub(crate) struct EvaluationJson {
    run: RunId,
    seq: u64,
    step: StepId,
    index: u64,
    tool: String,
    /// `same`, `different` or `not_recheckable`.
    finding: &'static str,
    /// Why it cannot be asked again.
    why: Option<&'static str>,
    recorded: Verdict,
    /// What becomes of the call now, where that differs.
    now: Option<Value>,
    policy: Digest,
    /// The policy that was asked now.
    asked: Option<Digest>,
    spec_changed: bool,
}

impl EvaluationJson {
    pub(crate) fn of(run: RunId, evaluation: &Evaluation) -> Self {
        let (finding, why, now) = match &evaluation.finding {
            Finding::Same => ("same", None, None),
            Finding::Different(answer) => ("different", None, Some(answer_value(answer))),
            Finding::NotRecheckable(why) => ("not_recheckable", Some(why.as_str()), None),
        };
        Self {
            run,
            seq: evaluation.seq,
            step: evaluation.step,
            index: evaluation.index,
            tool: sanitize::clip(&evaluation.tool, MAX_TEXT_BYTES),
            finding,
            why,
            recorded: evaluation.recorded.clone(),
            now,
            policy: evaluation.policy,
            asked: evaluation.asked,
            spec_changed: evaluation.spec_changed,
        }
    }
}

/// A verdict as everywhere, or `not_admitted` with a reason.
fn answer_value(answer: &Answer) -> Value {
    match answer {
        Answer::Verdict(verdict) => portcullis_canon::to_value(verdict).unwrap_or_default(),
        Answer::NotAdmitted(refusal) => {
            let mut object = portcullis_canon::Object::new();
            object.insert("outcome", "not_admitted");
            object.insert("reason", refusal.as_str());
            object.insert("rules", Vec::<Value>::new());
            Value::Object(object)
        }
    }
}

/// The last line of `recheck` for a run, and for all.
#[derive(Debug, Serialize)]
pub(crate) struct RecheckedJson {
    run: Option<RunId>,
    same: u64,
    different: u64,
    not_recheckable: u64,
    broken: Option<BrokenJson>,
    holds: bool,
}

impl RecheckedJson {
    pub(crate) fn of(run: Option<RunId>, totals: &Totals) -> Self {
        Self {
            run,
            same: totals.same,
            different: totals.different,
            not_recheckable: totals.not_recheckable,
            broken: totals.broken.as_ref().map(BrokenJson::of),
            holds: totals.holds(),
        }
    }
}

/// A line of `diff`: one place of both runs.
#[derive(Debug, Serialize)]
pub(crate) struct SectionJson {
    /// `beginning`, `step` or `end`.
    place: &'static str,
    index: Option<u64>,
    one: Option<StepId>,
    other: Option<StepId>,
    tool: Option<String>,
    differences: Vec<DifferenceJson>,
    unknown: Vec<UnknownJson>,
}

/// One thing that two runs do not have alike.
#[derive(Debug, Serialize)]
struct DifferenceJson {
    part: &'static str,
    at: String,
    one: Option<Value>,
    other: Option<Value>,
    /// Which of them has something there, when the other has nothing.
    only: Option<&'static str>,
}

/// One thing that cannot be compared.
#[derive(Debug, Serialize)]
struct UnknownJson {
    part: &'static str,
    side: &'static str,
    why: &'static str,
}

impl SectionJson {
    pub(crate) fn of(section: &Section) -> Self {
        let (place, index) = match section.place {
            Where::Beginning => ("beginning", None),
            Where::Step(index) => ("step", Some(index)),
            Where::End => ("end", None),
        };
        let value = |value: &Option<Value>| value.as_ref().map(|v| capped(v, MAX_TEXT_BYTES));
        let differences = section.differences.iter().map(|found| DifferenceJson {
            part: found.part.as_str(),
            at: sanitize::clip(&found.at, MAX_TEXT_BYTES),
            one: value(&found.one),
            other: value(&found.other),
            only: match (&found.one, &found.other) {
                (Some(_), None) => Some(Side::One.as_str()),
                (None, Some(_)) => Some(Side::Other.as_str()),
                _ => None,
            },
        });
        let unknown = section.unknown.iter().map(|found| UnknownJson {
            part: found.part.as_str(),
            side: found.side.as_str(),
            why: found.why.as_str(),
        });
        Self {
            place,
            index,
            one: section.one,
            other: section.other,
            tool: section.tool.as_deref().map(|tool| sanitize::clip(tool, MAX_TEXT_BYTES)),
            differences: differences.collect(),
            unknown: unknown.collect(),
        }
    }
}

/// The last line of `diff`.
#[derive(Debug, Serialize)]
pub(crate) struct ComparedJson {
    is_same: bool,
    parted: Option<u64>,
    steps_same: u64,
    steps_different: u64,
    steps_uncompared: u64,
    only_one: u64,
    only_other: u64,
    not_compared: u64,
    broken_one: Option<BrokenJson>,
    broken_other: Option<BrokenJson>,
}

impl ComparedJson {
    pub(crate) fn of(totals: &diff::Totals) -> Self {
        Self {
            is_same: totals.is_same(),
            parted: totals.parted,
            steps_same: totals.same,
            steps_different: totals.different,
            steps_uncompared: totals.uncompared,
            only_one: totals.only_one,
            only_other: totals.only_other,
            not_compared: totals.unknown,
            broken_one: totals.broken_one.as_ref().map(BrokenJson::of),
            broken_other: totals.broken_other.as_ref().map(BrokenJson::of),
        }
    }
}

/// Where the record of a run stops to be one.
#[derive(Debug, Serialize)]
pub(crate) struct BrokenJson {
    seq: i64,
    why: String,
}

impl BrokenJson {
    pub(crate) fn of(broken: &Broken) -> Self {
        Self { seq: broken.seq, why: broken.why.to_string() }
    }
}

/// Where a journal ends, as `verify --head SEQ:HASH` takes it.
#[derive(Debug, Serialize)]
pub(crate) struct HeadJson {
    pub(crate) journal: JournalId,
    pub(crate) head: String,
}

/// `init`.
#[derive(Debug, Serialize)]
pub(crate) struct InitJson {
    /// In the order in which they were looked at.
    pub(crate) places: Vec<PlaceJson>,
    /// What would keep a run under these rules from beginning.
    pub(crate) notes: Vec<String>,
}

/// A folder or file that a first run needs.
#[derive(Debug, Serialize)]
pub(crate) struct PlaceJson {
    /// `state`, `configuration`, `key`, `database` or `rules`.
    pub(crate) what: &'static str,
    pub(crate) path: String,
    /// Made just now; kept as it was otherwise.
    pub(crate) made: bool,
}

/// A line of `key list`, and what the other commands on keys write.
#[derive(Debug, Serialize)]
pub(crate) struct KeyJson<'a> {
    person: &'a str,
    id: String,
    key: String,
    roles: &'a [String],
    not_before: Option<Timestamp>,
    not_after: Option<Timestamp>,
    revoked: bool,
}

impl<'a> KeyJson<'a> {
    pub(crate) fn of(entry: &'a KeyEntry) -> Self {
        Self {
            person: &entry.person,
            id: entry.key.id().to_string(),
            key: entry.key.to_string(),
            roles: &entry.roles,
            not_before: entry.not_before,
            not_after: entry.not_after,
            revoked: entry.revoked,
        }
    }
}

/// `demo`.
#[derive(Debug, Serialize)]
pub(crate) struct DemoJson {
    pub(crate) folder: String,
    pub(crate) run: RunId,
    pub(crate) steps: Vec<DemoStepJson>,
    /// The file that the approved call made, if it is there.
    pub(crate) change: Option<String>,
    /// What `verify` says of the demo's record.
    pub(crate) intact: bool,
    /// The command that shows the run.
    pub(crate) next: String,
}

/// What the demo's agent asked for, and what became of it.
#[derive(Debug, Serialize)]
pub(crate) struct DemoStepJson {
    pub(crate) index: u64,
    pub(crate) agent: &'static str,
    pub(crate) outcome: String,
}
