//! The trial finds what it claims to find: tools, probes and people that keep it, and some that break each part.

use std::sync::Mutex;

use portcullis_audit::{Options, verify};
use portcullis_canon::{Limits as JsonLimits, Object, parse};
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::{Ledgers, ToolFailure, ToolOutput};
use portcullis_domain::question::Card;
use portcullis_domain::run::EndReason;
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_engine::{Progress, Reconciled};
use portcullis_policy::ClassTable;
use portcullis_store::memory::MemoryStore;

use super::*;
use crate::doubles::FaultyStore;

/// What the tool does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    /// What it says.
    Honestly,
    /// The effect, and then says that there was none.
    Denies,
    /// The effect, and never answers.
    Hangs,
    /// The effect, and panics.
    Panics,
}

#[derive(Clone, Copy)]
struct Pay {
    effect: EffectClass,
    does: Does,
    blocks: bool,
}

const HONEST: Pay = Pay { effect: EffectClass::LocalMutation, does: Does::Honestly, blocks: false };

struct Payer {
    pay: Pay,
    paid: Arc<Mutex<Vec<String>>>,
}

impl ToolSource for Payer {
    fn specs(&self) -> Vec<ToolSpec> {
        vec![ToolSpec {
            name: "pay".to_owned(),
            description: "Pays somebody.".to_owned(),
            input_schema: parse(br#"{"type":"object"}"#, &JsonLimits::BARE).unwrap(),
            effect: self.pay.effect,
            source: false,
            sink: self.pay.effect.changes_something(),
            authority: Vec::new(),
            deadline_ms: 60_000,
            terminal: false,
            fixed: Object::new(),
            max_result_bytes: 4_096,
            target: None,
            probe: None,
            idempotency_key: None,
        }]
    }

    fn blocks(&self) -> bool {
        self.pay.blocks
    }

    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            let to = permit.arguments().get("to").cloned().unwrap_or_default();
            self.paid.lock().unwrap().push(to.to_canonical_string());
            match self.pay.does {
                Does::Honestly => Ok(ToolOutput { content: b"{}".to_vec(), labels: None }),
                Does::Denies => Err(ToolFailure::NothingHappened { message: "no".to_owned() }),
                Does::Hangs => std::future::pending().await,
                Does::Panics => panic!("as planned"),
            }
        })
    }
}

/// Two payments, each to be made once.
const PAYMENTS: [&str; 3] = [
    r#"{"kind":"tool_call","tool":"pay","arguments":{"to":1}}"#,
    r#"{"kind":"tool_call","tool":"pay","arguments":{"to":2}}"#,
    r#"{"kind":"complete"}"#,
];

/// Pays two people, each once.
fn trial(pay: Pay) -> Trial<MemoryStore> {
    let subject = move || {
        let paid = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&paid);
        Subject::new(vec![Arc::new(Payer { pay, paid })], move || seen.lock().unwrap().clone())
    };
    Trial::new(MemoryStore::new, subject)
        .policy(Arc::new(ClassTable::default()))
        .script(PAYMENTS)
        .check(|store: &MemoryStore, keys| {
            let options = Options { keys: &[keys], ..Options::default() };
            let report = verify(store.begin().unwrap().as_mut(), options).unwrap();
            if report.intact { Vec::new() } else { vec![format!("{:?}", report.breaks)] }
        })
}

fn doubles(report: &Report) -> Vec<String> {
    report.of(Kind::Double).map(|finding| finding.point.to_string()).collect()
}

#[test]
fn an_honest_tool_and_somebody_who_looks_pass_at_every_point() {
    for (effect, blocks) in
        [(EffectClass::LocalMutation, false), (EffectClass::RemoteMutation, true)]
    {
        let pay = Pay { effect, blocks, ..HONEST };
        let report = trial(pay).people(who_looks).run();
        report.assert_kept();
        assert_eq!(report.undisturbed.effects, ["1", "2"]);
        assert_eq!(report.undisturbed.rest, Rest::Ended(EndReason::GoalCompleted));
        for tried in &report.tried {
            assert_eq!(tried.effects.len(), 2, "{}", tried.point);
            assert_eq!(tried.rest, report.undisturbed.rest, "{}", tried.point);
        }
        // Both sides of: the beginning, three appends a step with a call, two for the last; and four effects.
        let records = report.tried.iter().filter(|t| matches!(t.point, Point::Record { .. }));
        let effects = report.tried.iter().filter(|t| matches!(t.point, Point::Effect { .. }));
        assert!(records.count() >= 2 * (1 + 2 * 3 + 2), "{report}");
        assert_eq!(effects.count(), 4, "{report}");
        // What was cut off before its effect was run again by somebody who had looked.
        assert!(report.tried.iter().any(|tried| tried.run_again == 1), "{report}");
    }
}

#[test]
fn a_second_process_that_ends_in_its_recovery_doubles_and_loses_nothing_either() {
    let report = trial(HONEST).people(who_looks).twice().run();
    report.assert_kept();
    let twice: Vec<_> =
        report.tried.iter().filter(|t| matches!(t.point, Point::Twice { .. })).collect();
    // Each of the second processes has points of its own: many more than there are for the first.
    assert!(twice.len() > 100, "{}", twice.len());
    // A decision that ended its process twice is not made a third time: then the run ends, and says so.
    let crashed = Rest::Ended(EndReason::DeciderCrashed);
    let (given_up, done): (Vec<&Tried>, Vec<&Tried>) =
        twice.iter().copied().partition(|tried| tried.rest == crashed);
    assert!(done.iter().all(|tried| tried.effects == ["1", "2"]), "{report}");
    let both = ["1".to_owned(), "2".to_owned()];
    assert!(given_up.iter().all(|tried| both.starts_with(&tried.effects)), "{report}");
    assert!(given_up.iter().any(|tried| tried.effects.is_empty()), "{report}");
    assert!(done.len() > 5 * given_up.len(), "{} {}", done.len(), given_up.len());
    // The call is cut off twice: before its effect, and again when it is run again.
    let name = "before effect 1 (pay), then after effect 1 (pay)";
    assert!(twice.iter().any(|tried| tried.point.to_string() == name), "{report}");
    // Control: without looking, the second end makes a double where the first alone makes none.
    let blind = trial(HONEST).people(who_runs_again).twice().run();
    let doubles = doubles(&blind);
    assert!(doubles.contains(&name.to_owned()), "{doubles:?}");
    assert!(!doubles.contains(&"before effect 1 (pay)".to_owned()), "{doubles:?}");
}

#[test]
fn where_nobody_knows_it_waits_and_is_neither_doubled_nor_lost() {
    let report = trial(HONEST).run();
    report.assert_kept();
    let waiting: Vec<String> = report
        .tried
        .iter()
        .filter(|tried| tried.rest == Rest::Waits)
        .map(|tried| tried.point.to_string())
        .collect();
    assert!(waiting.contains(&"before effect 1 (pay)".to_owned()), "{waiting:?}");
    assert!(waiting.contains(&"after effect 2 (pay)".to_owned()), "{waiting:?}");
    assert!(report.to_string().contains("waits for people after effect 1 (pay)\n"), "{report}");
}

#[test]
fn running_it_again_without_looking_is_a_double_with_its_point() {
    let report = trial(HONEST).people(who_runs_again).run();
    let doubles = doubles(&report);
    assert!(doubles.contains(&"after effect 1 (pay)".to_owned()), "{doubles:?}");
    assert!(doubles.contains(&"after effect 2 (pay)".to_owned()), "{doubles:?}");
    assert!(!doubles.iter().any(|point| point.starts_with("before effect")), "{doubles:?}");
    let first = report.of(Kind::Double).next().unwrap();
    assert_eq!(first.text, "`1` happened 2 times instead of 1, on people's word");
    assert_eq!(report.findings.len(), doubles.len(), "{:?}", report.findings);
}

#[test]
fn what_says_that_it_only_reads_is_run_again_and_found() {
    let pay = Pay { effect: EffectClass::ReadOnly, ..HONEST };
    let report = trial(pay).run();
    let doubles = doubles(&report);
    assert!(doubles.contains(&"after effect 1 (pay)".to_owned()), "{report}");
    // It is seen without any crash, too.
    let claim = report.of(Kind::FalseClaim).next().unwrap();
    assert_eq!(claim.point, Point::Undisturbed);
    assert_eq!(claim.text, "`pay` says that it only reads, and this happened: 1");
}

#[test]
fn what_denies_its_effect_is_found() {
    let report = trial(Pay { does: Does::Denies, ..HONEST }).run();
    let claim = report.of(Kind::FalseClaim).next().unwrap();
    assert_eq!(claim.text, "`pay` says that nothing happened, and this happened: 1");
    // Nothing else is wrong with it, and the control has no such finding.
    assert_eq!(trial(HONEST).run().of(Kind::FalseClaim).count(), 0);
}

/// Answers the same, whatever there is to see.
struct Blind(Reconciled);

impl Reconcile for Blind {
    fn reconcile(&self, _: &Card) -> BoxFuture<'_, Reconciled> {
        Box::pin(std::future::ready(self.0.clone()))
    }
}

#[test]
fn a_blind_probe_loses_or_doubles() {
    let blind = |answer: Reconciled| {
        let subject = move || {
            let paid = Arc::new(Mutex::new(Vec::new()));
            let seen = Arc::clone(&paid);
            let payer = Arc::new(Payer { pay: HONEST, paid });
            Subject::new(vec![payer], move || seen.lock().unwrap().clone())
                .with_probe(Arc::new(Blind(answer.clone())))
        };
        Trial { subject: Arc::new(subject), ..trial(HONEST) }.run()
    };
    let output = ToolOutput { content: b"{}".to_vec(), labels: None };
    let lost = blind(Reconciled::Happened(output));
    let points: Vec<_> = lost.of(Kind::Loss).map(|finding| finding.point.to_string()).collect();
    assert!(points.contains(&"before effect 1 (pay)".to_owned()), "{lost}");
    assert_eq!(lost.of(Kind::Double).count(), 0, "{lost}");
    let doubled = blind(Reconciled::DidNotHappen);
    assert!(doubles(&doubled).contains(&"after effect 1 (pay)".to_owned()), "{doubled}");
    assert_eq!(doubled.of(Kind::Loss).count(), 0, "{doubled}");
}

#[test]
fn a_tool_that_never_answers_or_panics_takes_no_time_and_waits() {
    for does in [Does::Hangs, Does::Panics] {
        let report = trial(Pay { does, ..HONEST }).run();
        report.assert_kept();
        assert_eq!(report.undisturbed.rest, Rest::Waits);
        assert_eq!(report.undisturbed.effects, ["1"]);
    }
}

#[test]
fn a_loop_of_ones_own_is_tried_as_well() {
    let call = r#"{"kind":"tool_call","tool":"pay","arguments":{"to":1}}"#;
    let trial = trial(HONEST).people(who_looks).own_loop(move |mut held| async move {
        let mut progress = held.step().await?;
        loop {
            progress = match progress {
                Progress::Waiting(question) => return Ok(Driven::Waiting(question)),
                Progress::Child(child) => return Ok(Driven::Child(child)),
                Progress::Ended(reason) => return Ok(Driven::Ended(reason)),
                Progress::Allowed => held.execute().await?,
                Progress::Observed => held.step().await?,
                Progress::Open => {
                    let done =
                        held.view(true).await?.history.iter().any(|s| s.outcome == "tool_result");
                    let next = if done { r#"{"kind":"complete"}"# } else { call };
                    held.propose(next.as_bytes().to_vec()).await?
                }
            };
        }
    });
    let report = trial.run();
    report.assert_kept();
    assert_eq!(report.undisturbed.effects, ["1"]);
    assert!(report.tried.len() >= 10, "{report}");
}

/// A store whose answer is lost once: what it was told is stored, and the run cannot know.
#[test]
fn a_lost_answer_of_the_store_doubles_nothing() {
    for number in 1..=8 {
        let fired = Arc::new(AtomicU64::new(0));
        let (count, honest) = (Arc::clone(&fired), trial(HONEST));
        let fresh = move |at: Timestamp, entropy: &dyn Entropy| {
            FaultyStore::new(Arc::new(MemoryStore::new(at, entropy))).losing_answer(number)
        };
        let report = Trial::new(fresh, move || (honest.subject)())
            .policy(Arc::new(ClassTable::default()))
            .script(PAYMENTS)
            .people(who_looks)
            .check(move |store: &FaultyStore, _| {
                count.fetch_add(store.fired(), Ordering::SeqCst);
                Vec::new()
            })
            .run();
        // In the undisturbed run for certain, and in every other one that came so far.
        assert!(fired.load(Ordering::SeqCst) > 1, "{number}");
        for tried in report.tried.iter().chain([&report.undisturbed]) {
            let mut paid = tried.effects.clone();
            paid.sort();
            paid.dedup();
            assert_eq!(paid.len(), tried.effects.len(), "{number}: {}", tried.point);
        }
    }
}

#[test]
fn what_cannot_be_tried_says_so() {
    let none = Trial { policy: None, ..trial(HONEST) }.run();
    assert_eq!(none.findings[0].text, "the trial has no policy");
    assert!(std::panic::catch_unwind(|| none.assert_kept()).is_err());
    let broken = trial(HONEST).check(|_, _| vec!["a break".to_owned()]).run();
    assert_eq!(broken.of(Kind::NotIntact).count(), 1 + broken.tried.len());
    let hung = trial(HONEST).own_loop(|_| std::future::pending()).run();
    assert!(hung.findings[0].text.starts_with("nothing goes on"), "{:?}", hung.findings);
}
