//! What `approve`, `reject` and `answer` share: show the whole question, ask, sign, record.

mod alike;
mod counts;

use std::io;

use portcullis_audit::keys::{Keyring, SigningKey};
use portcullis_canon::{Digest, Limits, parse};
use portcullis_domain::approval::{Answer, Statement};
use portcullis_domain::content::Content;
use portcullis_domain::id::QuestionId;
use portcullis_domain::question::{QuestionKind, QuestionStatus};
use portcullis_domain::run::{EndReason, RunStatus};
use portcullis_domain::scope::Scope;
use portcullis_domain::tool::EffectClass;
use portcullis_engine::Parts;
use portcullis_engine::operator::{self, Answered, SignedAnswer};

use self::counts::Answerer;
use crate::args::Globals;
use crate::assemble;
use crate::drive;
use crate::exit::Exit;
use crate::failure::{Code, Failure};
use crate::launch::{self, Launch};
use crate::lookup::{self, Asked, QuestionArg, Typed};
use crate::output::prompt::{self, Said};
use crate::output::screen::{Tone, toned};
use crate::output::{Out, card, screen};
use crate::reading::Reading;
use crate::wire::{AlikeJson, DecidedJson};

/// The longest note in bytes.
const MAX_NOTE_BYTES: usize = 16 << 10;

/// How a person says yes where no terminal can ask.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Consent {
    /// Decide only on the question with this digest, as it was printed
    #[arg(long, value_name = "sha256:…")]
    pub(crate) digest: Option<Digest>,
    /// Decide without asking
    #[arg(long)]
    pub(crate) yes: bool,
    /// Say why, at most 16 KiB; it is recorded and the agent may read it
    #[arg(long, value_name = "TEXT", value_parser = note)]
    pub(crate) note: Option<String>,
}

fn note(text: &str) -> Result<String, String> {
    match text.len() {
        0 => Err("an empty note says nothing".to_owned()),
        1..=MAX_NOTE_BYTES => Ok(text.to_owned()),
        _ => Err("a note has at most 16 KiB".to_owned()),
    }
}

/// What is decided, and on what.
pub(crate) struct Decision {
    pub(crate) on: QuestionArg,
    pub(crate) answer: Answer,
    pub(crate) result: Option<String>,
    pub(crate) consent: Consent,
    /// Whether the answer is given to every open question about the same call.
    pub(crate) alike: bool,
}

/// A question that was decided with another one, and what its own answer led to.
type Also = (Asked, Result<Answered, Failure>);

/// Shows the question, asks, signs the answer and records it.
pub(crate) async fn decide(decision: Decision, globals: &Globals) -> Result<Exit, Failure> {
    if globals.json && !decision.consent.yes && decision.consent.digest.is_none() {
        return Err(Failure::undecided("with --json nobody is asked, and nothing was decided")
            .hint("name the digest with `--digest`, or say `--yes`"));
    }
    if decision.alike && globals.config_path.is_some() {
        return Err(Failure::usage(
            "with --alike each run goes by the reviewers that it was begun with",
        )
        .hint("answer without -c"));
    }
    check_result(decision.result.as_deref())?;
    let (asked, others) = find(&decision, globals).await?;
    let mut out = Out::new();
    if !globals.json {
        show(&mut out, &asked, &others, globals).map_err(|error| Failure::output(&error))?;
    }
    consent(&decision, asked.question.digest)?;
    let (answered, also) = record(&decision, &asked, others, globals).await?;
    let written = if globals.json {
        out.json(&wire(&decision, &asked, answered, &also))
    } else {
        tell(&mut out, globals, &decision, &asked, answered)
            .and_then(|()| also.iter().try_for_each(|also| tell_also(&mut out, also)))
    };
    written.and_then(|()| out.flush()).map_err(|error| Failure::output(&error))?;
    Ok(if also.iter().all(|(_, answered)| answered.is_ok()) { Exit::Done } else { Exit::Refused })
}

/// Says yes to a question about a call that only reads, for an operator who said so before it was asked; signed and
/// recorded as any yes. False when it is about something else, or when more people have to say yes.
pub(crate) async fn yes_to_reading(on: QuestionId, globals: &Globals) -> Result<bool, Failure> {
    let decision = Decision {
        on: QuestionArg::Question(Typed::Whole(on)),
        answer: Answer::Approve,
        result: None,
        consent: Consent { digest: None, yes: true, note: Some(YES_TO.to_owned()) },
        alike: false,
    };
    let (asked, others) = match find(&decision, globals).await {
        // About an outcome, or answered meanwhile by somebody else.
        Err(failure) if matches!(failure.code(), Code::State) => return Ok(false),
        found => found?,
    };
    let effect = asked.step.admitted.as_ref().map(|admitted| admitted.effect);
    if effect != Some(EffectClass::ReadOnly) {
        return Ok(false);
    }
    let (answered, _) = record(&decision, &asked, others, globals).await?;
    Ok(matches!(answered, Answered::Granted))
}

/// The note of a yes that was said beforehand.
const YES_TO: &str = "said beforehand, with --yes-to read_only";

/// One JSON value in strict form, checked before anything is opened.
fn check_result(result: Option<&str>) -> Result<(), Failure> {
    match result.map(|result| parse(result.as_bytes(), &Limits::BARE)) {
        None | Some(Ok(_)) => Ok(()),
        Some(Err(error)) => {
            let sentence = format!("the result is not one JSON value in strict form: {error}");
            Err(Failure::usage(sentence).hint("a text is written in quotes: --result '\"done\"'"))
        }
    }
}

/// The question as it is stored now, if this answer can be given to it, and those that are decided with it.
async fn find(decision: &Decision, globals: &Globals) -> Result<(Asked, Vec<Asked>), Failure> {
    let reading = Reading::open(globals)?;
    let (db, scope) = (reading.db(), &reading.scope);
    let (run, question) = lookup::question(db, scope, &decision.on).await?;
    if question.status != QuestionStatus::Open || Some(question.id) != run.question {
        return Err(lookup::not_open(question.status));
    }
    if run.status != RunStatus::Waiting {
        let sentence = format!("the run is {}", run.status.as_str());
        return Err(Failure::new(Code::State, sentence));
    }
    let fits = match decision.answer {
        Answer::Approve | Answer::Reject => question.kind == QuestionKind::Approval,
        Answer::Happened | Answer::DidNotHappen | Answer::RunAgain => {
            question.kind == QuestionKind::UnknownOutcome
        }
    };
    if !fits {
        return Err(wrong_kind(question.kind));
    }
    let asked = lookup::asked(db, scope, run, question).await?;
    let others = match decision.alike {
        true => alike::alike(db, scope, &asked, reading.now()).await?,
        false => Vec::new(),
    };
    Ok((asked, others))
}

fn wrong_kind(kind: QuestionKind) -> Failure {
    match kind {
        QuestionKind::Approval => Failure::new(
            Code::State,
            "the question is whether a call may happen, not whether it did",
        )
        .hint("use `portcullis approve` or `portcullis reject`"),
        QuestionKind::UnknownOutcome => {
            Failure::new(Code::State, "the question is whether a call happened, not whether it may")
                .hint("use `portcullis answer QUESTION happened|did-not-happen|run-again`")
        }
    }
}

fn show(out: &mut Out, asked: &Asked, others: &[Asked], globals: &Globals) -> io::Result<()> {
    for (at, row) in card::render(&asked.sheet(), screen::columns()).iter().enumerate() {
        if at == 0 {
            out.line(&toned(row, Tone::Strong, globals.plain))?;
        } else {
            out.line(row)?;
        }
    }
    for row in alike::rows(others) {
        out.line(&row)?;
    }
    out.flush()
}

/// Whether this very question may be decided. Everything that is not a clear yes decides nothing.
fn consent(decision: &Decision, shown: Digest) -> Result<(), Failure> {
    if let Some(digest) = decision.consent.digest {
        if digest == shown {
            return Ok(());
        }
        return Err(Failure::new(
            Code::State,
            "the question has changed since that digest was printed, and nothing was decided",
        )
        .hint("read it again, and decide on the digest that it has now"));
    }
    if decision.consent.yes {
        return Ok(());
    }
    let prompt = match decision.answer {
        Answer::Approve => "Approve this call?",
        Answer::Reject => "Reject this call?",
        Answer::Happened => "Record that it happened?",
        Answer::DidNotHappen => "Record that it did not happen?",
        Answer::RunAgain => "Run exactly this call again?",
    };
    let said = prompt::yes(prompt).map_err(|error| Failure::output(&error))?;
    match said {
        Said::Yes => Ok(()),
        Said::Other => Err(Failure::undecided("the answer was not yes, and nothing was decided")),
        Said::Nothing => Err(Failure::undecided("the input ended, and nothing was decided")),
        Said::NoTerminal => {
            Err(Failure::undecided("there is no terminal to ask at, and nothing was decided")
                .hint("name the digest that was printed with `--digest`, or say `--yes`"))
        }
    }
}

/// Signs one answer to all, and records it for each. What keeps the first from counting keeps all.
async fn record(
    decision: &Decision,
    asked: &Asked,
    others: Vec<Asked>,
    globals: &Globals,
) -> Result<(Answered, Vec<Also>), Failure> {
    let place = Place::of(asked, globals)?;
    let answerer = place.answerer(asked, globals);
    answerer.first_time()?;
    let seal = |text: &String| seal(text, &place.parts);
    let note = decision.consent.note.as_ref().map(seal);
    let result = decision.result.as_ref().map(seal);
    let all = std::iter::once(asked).chain(&others);
    let statement = Statement {
        covers: all.map(|asked| asked.question.digest).collect(),
        answer: decision.answer,
        key: place.key.id(),
        at: place.parts.clock.now(),
        note: note.as_ref().map(Content::reference),
        result: result.as_ref().map(Content::reference),
    };
    let signature = place.key.sign(&statement);
    let signed = |asked: &Asked| SignedAnswer {
        run: asked.run.id,
        question: asked.question.id,
        shown: asked.question.digest,
        statement: statement.clone(),
        signature,
        note: note.clone(),
        result: result.clone(),
    };
    let scope = Scope::of_file_owner();
    let answered = operator::answer(&place.parts, &scope, signed(asked)).await;
    let answered = answered.map_err(|error| answerer.refusal(error))?;
    let mut also = Vec::with_capacity(others.len());
    for other in others {
        let led_to = match Place::of(&other, globals) {
            Err(failure) => Err(failure),
            Ok(place) => {
                let answered = operator::answer(&place.parts, &scope, signed(&other)).await;
                answered.map_err(|error| place.answerer(&other, globals).refusal(error))
            }
        };
        also.push((other, led_to));
    }
    Ok((answered, also))
}

/// Where a run's answers are judged: the reviewers that it was begun with, since an answer that its own rules do not know
/// would never count.
struct Place {
    key: SigningKey,
    ring: Keyring,
    elsewhere: Option<String>,
    parts: Parts,
}

impl Place {
    fn of(asked: &Asked, globals: &Globals) -> Result<Self, Failure> {
        let launch = Launch::recall(&globals.place.launches(), asked.run.id)?;
        let config = launch::configuration(globals, launch.as_ref())?;
        let key = assemble::reviewer_key(globals, &config)?;
        let ring = assemble::ring(&config, &globals.place)?;
        let launch = launch.filter(|_| globals.config_path.is_some());
        let elsewhere = launch.and_then(|launch| launch.elsewhere(&config));
        Ok(Self { key, ring, elsewhere, parts: assemble::operator_parts(globals, &config)? })
    }

    fn answerer<'a>(&'a self, asked: &'a Asked, globals: &'a Globals) -> Answerer<'a> {
        let name = globals.key.as_deref().unwrap_or(&globals.user);
        let (key, elsewhere) = (self.key.id(), self.elsewhere.clone());
        Answerer { name, key, ring: &self.ring, asked, elsewhere }
    }
}

fn seal(text: &str, parts: &Parts) -> Content {
    Content::seal(text.as_bytes().to_vec(), parts.entropy.as_ref())
}

fn tell(
    out: &mut Out,
    globals: &Globals,
    decision: &Decision,
    asked: &Asked,
    answered: Answered,
) -> io::Result<()> {
    let takes_up = takes_up(globals, asked);
    out.line("")?;
    match answered {
        Answered::Granted if decision.answer == Answer::RunAgain => {
            out.line(&format!("recorded; exactly this call is run again, once: {takes_up}"))
        }
        Answered::Granted => out.line(&format!("approved; {takes_up}")),
        Answered::MoreNeeded { people } => {
            let who = if people == 1 { "1 more person has" } else { "more people have" };
            let count = if people == 1 { String::new() } else { format!("{people} ") };
            out.line(&format!("recorded; {count}{who} to say yes"))
        }
        Answered::GoesOn => out.line(&format!("recorded; the run goes on: {takes_up}")),
        Answered::Ended(reason) => {
            let status = reason.status().as_str();
            out.line(&format!("recorded; the run has ended: {status}, {}", reason.as_str()))
        }
    }
}

/// How the run goes on. One that no `run` of this user began is its host's own.
fn takes_up(globals: &Globals, asked: &Asked) -> String {
    match Launch::recall(&globals.place.launches(), asked.run.id) {
        Ok(None) => {
            "its run was not begun with `portcullis run` of this user, so the program that began it goes on with it"
                .to_owned()
        }
        Ok(Some(_)) | Err(_) => {
            let resume = drive::command(globals, &format!("resume {}", asked.run.id));
            format!("resume with `{resume}`")
        }
    }
}

/// What became of a question that was decided with the one that was shown.
fn tell_also(out: &mut Out, (asked, answered): &Also) -> io::Result<()> {
    let became = match answered {
        Ok(answered) => became(*answered),
        Err(failure) => format!("not decided: {}", failure.sentence()),
    };
    out.line(&format!("{}: {became}", asked.question.id))
}

/// What an answer led to, in words.
fn became(answered: Answered) -> String {
    match answered {
        Answered::Granted => "approved; its run can be resumed".to_owned(),
        Answered::MoreNeeded { people: 1 } => "recorded; 1 more person has to say yes".to_owned(),
        Answered::MoreNeeded { people } => {
            format!("recorded; {people} more people have to say yes")
        }
        Answered::GoesOn => "recorded; its run can be resumed".to_owned(),
        Answered::Ended(reason) => {
            let why = match reason {
                EndReason::ApprovalRejected => "a no ends it".to_owned(),
                EndReason::ApprovalExpired => "its question was past its time".to_owned(),
                other => other.as_str().replace('_', " "),
            };
            format!("recorded; its run has ended: {why}")
        }
    }
}

fn led_to(answered: Answered) -> (&'static str, Option<u32>, Option<&'static str>) {
    match answered {
        Answered::Granted => ("granted", None, None),
        Answered::MoreNeeded { people } => ("more_needed", Some(people), None),
        Answered::GoesOn => ("goes_on", None, None),
        Answered::Ended(reason) => ("ended", None, Some(reason.as_str())),
    }
}

fn wire(decision: &Decision, asked: &Asked, answered: Answered, also: &[Also]) -> DecidedJson {
    let (led_to, people_needed, reason) = led_to(answered);
    let alike = also.iter().map(|(asked, answered)| {
        let told = answered.as_ref().map(|answered| self::led_to(*answered));
        AlikeJson {
            question: asked.question.id,
            run: asked.run.id,
            digest: asked.question.digest,
            led_to: told.as_ref().map_or("refused", |told| told.0),
            people_needed: told.as_ref().ok().and_then(|told| told.1),
            reason: told.as_ref().ok().and_then(|told| told.2),
            error: answered.as_ref().err().map(Failure::sentence),
        }
    });
    let alike = alike.collect();
    DecidedJson {
        question: asked.question.id,
        run: asked.run.id,
        digest: asked.question.digest,
        answer: decision.answer.as_str(),
        led_to,
        people_needed,
        reason,
        alike,
    }
}
