//! Recorded evaluations, asked again: what is the same, what differs, what cannot be asked, and a record that was changed.

use std::sync::Arc;
use std::time::Duration;

use portcullis_canon::Digest;
use portcullis_domain::approval::Answer as Word;
use portcullis_domain::event::{Body, StepJudged};
use portcullis_domain::id::RunId;
use portcullis_domain::ports::{Clock as _, Policy, Store as _};
use portcullis_domain::proposal::ProposalOrigin;
use portcullis_domain::recovery::Probe;
use portcullis_domain::row::Cell;
use portcullis_domain::tally::ThreadLimits;
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_domain::verdict::Verdict;
use portcullis_engine::recheck::{
    Against, Answer, Evaluation, Finding, Obstacle, Recheck, Recorded, Rules, Totals,
};
use portcullis_engine::{Attached, Progress, Tools};
use portcullis_policy::{ClassTable, Outcome};
use portcullis_testkit::block_on;

use crate::world::{Conduct, Does, FakeTools, World, ask, call, turn};

fn every(world: &World, run: RunId, against: Against<'_>) -> (Vec<Evaluation>, Totals) {
    let mut recheck = Recheck::of(&world.store, world.scope(), run, against);
    let mut found = Vec::new();
    while let Some(evaluation) = block_on(recheck.next()).unwrap() {
        found.push(evaluation);
    }
    assert!(recheck.is_there());
    (found, *recheck.totals())
}

/// Against the policy that answered, with the recorded specs.
fn recorded(world: &World, run: RunId) -> (Vec<Evaluation>, Totals) {
    let policy: &dyn Policy = world.policy.as_ref();
    every(world, run, Against { rules: Rules::Recorded(&[policy]), tools: None })
}

fn these(world: &World, run: RunId, policy: &dyn Policy) -> (Vec<Evaluation>, Totals) {
    every(world, run, Against { rules: Rules::These(policy), tools: None })
}

fn today(world: &World, run: RunId, tools: &Tools) -> Vec<Finding> {
    let policy = world.policy.as_ref();
    let against = Against { rules: Rules::These(policy), tools: Some(tools) };
    every(world, run, against).0.into_iter().map(|evaluation| evaluation.finding).collect()
}

fn outcomes(found: &[Evaluation]) -> Vec<&'static str> {
    found.iter().map(|evaluation| evaluation.recorded.outcome()).collect()
}

fn obstacle(world: &World, run: RunId) -> Obstacle {
    let (found, totals) = recorded(world, run);
    assert_eq!((totals.holds(), totals.broken), (false, None));
    match found.as_slice() {
        [Evaluation { finding: Finding::NotRecheckable(why), asked: None, .. }] => *why,
        other => panic!("{other:?}"),
    }
}

/// A run of one allowed call.
fn one_look(world: &World) -> RunId {
    let mut held = world.begin();
    assert_eq!(turn(&mut held, call("look", 1)), Progress::Observed);
    let run = held.run();
    // Let go here, so that nothing is recorded later, beside a test that changes the record.
    block_on(held.close()).unwrap();
    run
}

/// What a limit of the conversation refuses stands in the record with the policy's own verdict, and nobody was asked.
#[test]
fn a_call_that_a_limit_of_its_conversation_refused_has_the_same_verdict_again() {
    let mut world = World::new();
    world.conversation = Some(ThreadLimits { max_changes: Some(1), ..ThreadLimits::NONE });
    let mut held = world.begin();
    for tool in ["write", "write", "send"] {
        assert_eq!(turn(&mut held, call(tool, 1)), Progress::Observed);
        assert_eq!(block_on(held.step()).unwrap(), Progress::Open);
    }
    let run = held.run();
    block_on(held.close()).unwrap();
    assert_eq!(world.count("question.asked"), 0);
    let (found, totals) = recorded(&world, run);
    // The verdict on a call is asked for at its proposal and at its start.
    assert!(totals.holds() && found.len() >= 3, "{found:?}");
    assert!(found.iter().all(|evaluation| evaluation.finding == Finding::Same), "{found:?}");
}

/// A run in which everything happens that a policy is asked about.
fn eventful(world: &World) -> RunId {
    let mut held = world.begin();
    let run = held.run();
    turn(&mut held, call("look", 1));
    turn(&mut held, b"{not json".to_vec());
    turn(&mut held, call("burn", 2));
    ask(&mut held, "send");
    world.answer("ann", &world.question(run), Word::Approve).unwrap();
    let (mut held, progress) = world.take(2, run);
    assert_eq!(progress, Progress::Allowed);
    block_on(held.execute()).unwrap();
    turn(&mut held, br#"{"kind":"complete","result":1}"#.to_vec());
    run
}

#[test]
fn the_policy_that_answered_answers_the_same() {
    let world = World::new();
    let run = eventful(&world);
    let before = world.policy.asked().len();
    let (found, totals) = recorded(&world, run);
    // Proposals that name no call were never a policy's to judge; the granted call was judged twice.
    assert_eq!(outcomes(&found), ["allow", "deny", "ask", "ask"]);
    assert_eq!(totals, Totals { same: 4, ..Totals::default() });
    assert!(totals.holds());
    let asked = world.policy.asked();
    // Exactly as it was handed over then, with the default filled in.
    let again: Vec<_> = asked.iter().skip(before).collect();
    assert_eq!(again.len(), 4);
    for (tool, arguments) in again {
        assert!(asked[..before].contains(&(tool.clone(), arguments.clone())), "{tool}");
        assert!(String::from_utf8_lossy(arguments).contains(r#""to":"nobody""#));
    }
}

/// A tool whose receiver knows a call by its key, and one that can be asked about, each of which was lost once.
fn lost_and_found(tools: &FakeTools) {
    let text = r#"{"type":"object","additionalProperties":false,
        "properties":{"n":{"type":"integer"},"key":{"type":"string","maxLength":64}}}"#;
    let schema = portcullis_canon::parse(text.as_bytes(), &portcullis_canon::Limits::BARE).unwrap();
    tools.add(ToolSpec {
        input_schema: schema,
        authority: Vec::new(),
        idempotency_key: Some("key".to_owned()),
        ..tools.spec("pay", EffectClass::LocalMutation, false)
    });
    let arguments = Some([("n".to_owned(), "/n".to_owned())].into());
    tools.add(ToolSpec {
        probe: Some(Probe { tool: "sent".to_owned(), arguments }),
        ..tools.spec("mail", EffectClass::LocalMutation, false)
    });
    tools.add(tools.spec("sent", EffectClass::ReadOnly, false));
}

#[test]
fn what_recovery_asked_the_policy_is_asked_again_too() {
    let tools = FakeTools::new(false);
    lost_and_found(&tools);
    let world = World::with_tools(tools);
    world.tools.first("pay", Does::Unknown);
    world.tools.first("mail", Does::Unknown);
    world.tools.set("sent", Does::Answer(br#"{"happened":true}"#.to_vec()));
    let mut held = world.begin();
    let run = held.run();
    assert_eq!(turn(&mut held, call("pay", 1)), Progress::Observed);
    assert_eq!(turn(&mut held, call("mail", 7)), Progress::Observed);
    assert_eq!((world.count("step.restarted"), world.count("probe.started")), (1, 1));

    let before = world.policy.asked().len();
    let (found, totals) = recorded(&world, run);
    let tools: Vec<&str> = found.iter().map(|evaluation| evaluation.tool.as_str()).collect();
    assert_eq!(tools, ["pay", "pay", "mail", "sent"], "{found:?}");
    assert_eq!(totals, Totals { same: 4, ..Totals::default() });
    let asked = world.policy.asked();
    // What it was handed then, in the same order. What was asked before a call was used is no evaluation that is recorded.
    let handed = [1, 2, 4, 5].map(|at| asked[at].clone());
    assert_eq!((before, &asked[before..]), (6, handed.as_slice()));

    // Who would not have it read would not have had the probe; who denies changes, neither of the others.
    let rules = ClassTable::default().with(EffectClass::ReadOnly, Outcome::Deny);
    let different = |found: &[Evaluation]| -> Vec<String> {
        let other = found.iter().filter(|e| matches!(e.finding, Finding::Different(_)));
        other.map(|evaluation| evaluation.tool.clone()).collect()
    };
    assert_eq!(different(&these(&world, run, &rules).0), ["sent"]);
    let rules = ClassTable::default().with(EffectClass::LocalMutation, Outcome::Deny);
    assert_eq!(different(&these(&world, run, &rules).0), ["pay", "pay", "mail"]);

    // Today's tools: the same, another description, and a probe that does not take what it was handed.
    let changed = |change: &dyn Fn(&FakeTools)| {
        let tools = FakeTools::new(false);
        lost_and_found(&tools);
        change(&tools);
        today(&world, run, &Tools::register(vec![tools]).unwrap())
    };
    assert!(changed(&|_| ()).iter().all(|finding| *finding == Finding::Same));
    let stricter = changed(&|tools| {
        let text = br#"{"type":"object","properties":{"n":{"type":"integer","maximum":3}}}"#;
        let input_schema = portcullis_canon::parse(text, &portcullis_canon::Limits::BARE).unwrap();
        let sent = tools.spec("sent", EffectClass::ReadOnly, false);
        tools.replace(ToolSpec { input_schema, authority: Vec::new(), ..sent });
    });
    let refused = portcullis_domain::refusal::Refusal::ArgumentsInvalid;
    assert_eq!(stricter[3], Finding::Different(Answer::NotAdmitted(refused)));
    assert!(stricter[..3].iter().all(|finding| *finding == Finding::Same));
}

#[test]
fn other_rules_differ_with_both_verdicts() {
    let world = World::new();
    let run = eventful(&world);
    let rules = ClassTable::default()
        .with(EffectClass::ReadOnly, Outcome::Deny)
        .with(EffectClass::Destructive, Outcome::Allow);
    let (found, totals) = these(&world, run, &rules);
    assert_eq!((totals.same, totals.different, totals.holds()), (2, 2, false));
    let [look, burn, ..] = found.as_slice() else { panic!("{found:?}") };
    let Finding::Different(Answer::Verdict(now)) = &look.finding else { panic!("{look:?}") };
    assert_eq!((look.recorded.outcome(), now.outcome()), ("allow", "deny"));
    assert_eq!(look.recorded.rules(), ["class read_only: allow"]);
    assert_eq!(now.rules(), ["class read_only: deny"]);
    assert_eq!((look.policy, look.asked), (world.policy.id(), Some(rules.id())));
    let Finding::Different(Answer::Verdict(now)) = &burn.finding else { panic!("{burn:?}") };
    assert_eq!((burn.recorded.outcome(), now.outcome()), ("deny", "allow"));
}

#[test]
fn each_evaluation_goes_to_the_policy_that_answered_it() {
    let world = World::new();
    let mut held = world.begin();
    turn(&mut held, call("look", 1));
    let first = ClassTable::default();
    world.policy.set(EffectClass::ReadOnly, Outcome::Deny);
    turn(&mut held, call("look", 2));
    let second = first.clone().with(EffectClass::ReadOnly, Outcome::Deny);
    let both: [&dyn Policy; 2] = [&second, &first];
    let against = Against { rules: Rules::Recorded(&both), tools: None };
    let (_, totals) = every(&world, held.run(), against);
    assert_eq!(totals, Totals { same: 2, ..Totals::default() });
    let against = Against { rules: Rules::Recorded(&both[..1]), tools: None };
    let (found, totals) = every(&world, held.run(), against);
    assert_eq!((totals.same, totals.not_recheckable), (1, 1));
    assert_eq!(found[0].finding, Finding::NotRecheckable(Obstacle::PolicyNotAtHand));
}

#[test]
fn a_call_that_was_asked_about_again_is_made_again_with_those_who_were_asked() {
    let world = World::new();
    let mut held = world.begin();
    let run = held.run();
    ask(&mut held, "send");
    world.answer("ann", &world.question(run), Word::Approve).unwrap();
    world.tools.describe("Sends to everybody.");
    world.policy.set(EffectClass::RemoteMutation, Outcome::Allow);
    assert!(matches!(world.attach(2, run).unwrap(), Attached::Waiting(_)));
    let allowing = ClassTable::default().with(EffectClass::RemoteMutation, Outcome::Allow);
    let known: [&dyn Policy; 2] = [&ClassTable::default(), &allowing];
    let (found, totals) =
        every(&world, run, Against { rules: Rules::Recorded(&known), tools: None });
    assert_eq!(outcomes(&found), ["ask", "allow"]);
    assert_eq!(totals, Totals { same: 2, ..Totals::default() });
}

#[test]
fn a_question_that_nobody_could_answer_is_the_same_question() {
    let world = World::new();
    world.policy.set(EffectClass::RemoteMutation, Outcome::ask("nobody", 1).unwrap());
    let mut held = world.begin();
    assert_eq!(turn(&mut held, call("send", 1)), Progress::Observed);
    let (found, totals) = recorded(&world, held.run());
    assert_eq!((outcomes(&found), totals.same), (vec!["deny"], 1));
}

#[test]
fn a_policy_that_fails_now_as_it_failed_then_is_the_same_and_one_that_was_late_is_not_known() {
    for how in [Conduct::Fails, Conduct::Panics] {
        let world = World::new();
        world.policy.behave(how);
        let run = one_look(&world);
        assert_eq!(recorded(&world, run).1.same, 1, "{how:?}");
        assert_eq!(these(&world, run, &ClassTable::default()).1.different, 1, "{how:?}");
    }
    let world = World::new();
    world.policy.behave(Conduct::Dawdles(Duration::from_secs(2)));
    let run = one_look(&world);
    world.policy.behave(Conduct::Well);
    assert_eq!(obstacle(&world, run), Obstacle::PolicyTimedOut);
}

#[test]
fn todays_tools_are_asked_about_and_what_they_refuse_differs() {
    let world = World::new();
    let run = one_look(&world);
    let tools = |source: Arc<FakeTools>| Tools::register(vec![source]).unwrap();
    assert_eq!(today(&world, run, &tools(Arc::clone(&world.tools))), [Finding::Same]);
    let changed = FakeTools::new(true);
    changed.describe("Looks otherwise.");
    let against = Against {
        rules: Rules::These(world.policy.as_ref()),
        tools: Some(&tools(Arc::clone(&changed))),
    };
    let (found, _) = every(&world, run, against);
    assert_eq!((found[0].spec_changed, &found[0].finding), (true, &Finding::Same));
    let none = Tools::register(Vec::new()).unwrap();
    let found = today(&world, run, &none);
    let refused = portcullis_domain::refusal::Refusal::UnknownTool;
    assert_eq!(found, [Finding::Different(Answer::NotAdmitted(refused))]);
}

#[test]
fn what_was_erased_is_named() {
    let world = World::new();
    let run = one_look(&world);
    let erase = |digest: Digest| {
        block_on(world.store.erase(world.scope(), digest, "ann", world.clock.now())).unwrap();
    };
    assert!(recorded(&world, run).1.holds(), "the control");
    erase(world.step(run, 0).proposal.unwrap().digest);
    assert_eq!(obstacle(&world, run), Obstacle::ContentGone(Recorded::Proposal));
    erase(world.state(run).run.salt.digest);
    assert_eq!(obstacle(&world, run), Obstacle::ContentGone(Recorded::Salt));
}

#[test]
fn what_was_changed_beside_the_events_is_named() {
    let world = World::new();
    let run = one_look(&world);
    let step = world.step(run, 0);
    let (proposal, spec) = (step.proposal.unwrap().digest, step.admitted.unwrap().spec);
    let edit = |bytes: &[u8]| {
        let edited = world.store.tamper(|raw| {
            raw.contents.get_mut(proposal.as_bytes().as_slice()).unwrap().bytes = bytes.to_vec();
        });
        edited.unwrap();
    };
    edit(&call("look", 2));
    assert_eq!(obstacle(&world, run), Obstacle::ContentDamaged(Recorded::Proposal));
    edit(&call("look", 1));
    assert!(recorded(&world, run).1.holds(), "the control");
    let key = spec.as_bytes().to_vec();
    let bytes = world.store.tamper(|raw| raw.specs.get(&key).cloned().unwrap()).unwrap();
    let milder = String::from_utf8(bytes).unwrap().replace("A tool.", "A toy.");
    world.store.tamper(|raw| raw.specs.insert(key.clone(), milder.into_bytes())).unwrap();
    assert_eq!(obstacle(&world, run), Obstacle::SpecDamaged);
    world.store.tamper(|raw| raw.specs.remove(&key)).unwrap();
    assert_eq!(obstacle(&world, run), Obstacle::SpecGone);
}

#[test]
fn no_row_is_believed() {
    let world = World::new();
    let run = eventful(&world);
    let deny = Cell::Text(r#"{"outcome":"deny","reason":"class_denied","rules":[]}"#.to_owned());
    let key = [Cell::Blob(world.step(run, 0).id.as_bytes().to_vec())];
    assert!(world.store.tamper(|raw| raw.set("steps", &key, "verdict", deny)).unwrap());
    world.store.tamper(|raw| raw.rows.values_mut().for_each(Vec::clear)).unwrap();
    assert_eq!(recorded(&world, run).1, Totals { same: 4, ..Totals::default() });
}

#[test]
fn an_event_that_was_changed_ends_what_is_believed() {
    let world = World::new();
    let run = eventful(&world);
    let seqs: Vec<i64> = world
        .store
        .tamper(|raw| {
            raw.events.iter().filter(|e| e.stream_kind == "run").map(|e| e.journal_seq).collect()
        })
        .unwrap();
    let whole = world.store.tamper(|raw| raw.events.clone()).unwrap();
    for seq in seqs {
        let at = usize::try_from(seq).unwrap() - 1;
        for change in 0..4 {
            world
                .store
                .tamper(|raw| {
                    raw.events = whole.clone();
                    match change {
                        0 => raw.events[at].payload.push(b' '),
                        1 => raw.events[at].at += 1,
                        2 => raw.events[at].hash = vec![7; 3],
                        _ => drop(raw.events.remove(at)),
                    }
                })
                .unwrap();
            let (found, totals) = recorded(&world, run);
            // A tail that was cut between two appends leaves a record that holds: only a head shows it.
            let cut = change == 3 && seq == whole.last().unwrap().journal_seq;
            assert_eq!(totals.broken.is_none(), cut, "{seq} {change}: {totals:?}");
            assert!(cut || !totals.holds());
            assert!(found.iter().all(|evaluation| i64::try_from(evaluation.seq).unwrap() < seq));
        }
    }
}

/// What is changed of an evaluation, and how.
type Change<'a> = (&'static str, &'a dyn Fn(&mut StepJudged));

/// Changes the one evaluation of a record, and makes every hash anew.
fn rewrite(world: &World, change: impl Fn(&mut StepJudged)) {
    let events = world.store.tamper(|raw| raw.events.clone()).unwrap();
    let forged = portcullis_testkit::forge::forge(
        events,
        world.store.instance(),
        |_, stored, body| match body {
            Body::StepJudged(mut judged) => {
                change(&mut judged);
                vec![(stored, Body::StepJudged(judged))]
            }
            body => vec![(stored, body)],
        },
        |_| (),
    );
    world.store.tamper(|raw| raw.events = forged.events).unwrap();
}

#[test]
fn a_record_that_was_made_anew_with_another_verdict_differs() {
    let world = World::new();
    let run = one_look(&world);
    rewrite(&world, |judged| judged.policy = ClassTable::empty().id());
    let (found, totals) = these(&world, run, &ClassTable::empty());
    assert_eq!((totals.different, totals.broken), (1, None), "{found:?}");
}

#[test]
fn a_record_that_was_made_anew_about_another_call_is_not_asked_about() {
    let other = Digest::of(portcullis_canon::Kind::Arguments, b"other");
    let call = |judged: &mut StepJudged| judged.admitted.call = other;
    let changes: [Change<'_>; 4] = [
        ("request", &|judged| judged.admitted.request = other),
        ("effect", &|judged| judged.admitted.effect = EffectClass::LocalMutation),
        ("origin", &|judged| judged.origin = ProposalOrigin::Operator),
        ("rules", &|judged| judged.verdict = Verdict::Allow { rules: vec!["mine".to_owned()] }),
    ];
    for (what, change) in changes {
        let world = World::new();
        let run = one_look(&world);
        rewrite(&world, change);
        assert_eq!(obstacle(&world, run), Obstacle::CallDiffers, "{what}");
    }
    // The call digest itself: the intent names it too, and the fold compares the two.
    let world = World::new();
    let mut held = world.begin();
    assert_eq!(turn(&mut held, crate::world::call("burn", 1)), Progress::Observed);
    let run = held.run();
    block_on(held.close()).unwrap();
    rewrite(&world, call);
    assert_eq!(obstacle(&world, run), Obstacle::CallDiffers);
}

#[test]
fn a_run_of_many_pages_is_asked_about_whole() {
    let world = World::new();
    let mut held = world.begin_with(portcullis_domain::limits::Limits {
        max_steps: 400,
        ..portcullis_domain::limits::Limits::default()
    });
    for n in 0..150 {
        assert_eq!(turn(&mut held, call("look", n)), Progress::Observed);
    }
    let (found, totals) = recorded(&world, held.run());
    assert_eq!(totals, Totals { same: 150, ..Totals::default() });
    assert!(found.iter().map(|evaluation| evaluation.index).eq(0..150));
}

#[test]
fn a_run_that_is_not_there_has_nothing() {
    let world = World::new();
    let policy: &dyn Policy = world.policy.as_ref();
    let against = Against { rules: Rules::Recorded(&[policy]), tools: None };
    let absent = RunId::from_bytes([9; 16]);
    let mut recheck = Recheck::of(&world.store, world.scope(), absent, against);
    assert_eq!(block_on(recheck.next()).unwrap(), None);
    assert!(!recheck.is_there() && !recheck.totals().holds());
}
