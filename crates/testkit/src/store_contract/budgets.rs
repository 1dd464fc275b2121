//! Cases: what is held and settled for calls of models, and that no cap is ever crossed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use portcullis_domain::budget::{Amounts, BudgetScope, Cap, Caps, HowSettled, MAX_GENERATIONS};
use portcullis_domain::event::{Body, LeaseCause};
use portcullis_domain::id::{AttemptId, BudgetId, RunId};
use portcullis_domain::limits::Limits;
use portcullis_domain::ports::{Append, Condition, Durability, Entropy, Page, StoreError};
use portcullis_domain::run::EndReason;
use portcullis_domain::scope::Tenant;

use super::{Backend, Subject, everything, fold, ok, plain, refused, scope};
use crate::block_on;
use crate::ports::SeededEntropy;
use crate::scenario::{Scenario, amounts};

/// A run with an open step.
fn begun(seed: u64, store: &dyn Subject, change: impl FnOnce(&mut Scenario)) -> Scenario {
    let mut run = Scenario::new(seed, store.instance());
    change(&mut run);
    run.thread_opened();
    run.run_created();
    run.lease_acquired(LeaseCause::Begin);
    run.step_opened();
    ok(store, run.taking(false));
    run
}

fn tokens(cap: u64) -> Limits {
    Limits { max_total_tokens: Some(cap), ..Limits::default() }
}

fn spent(budget: BudgetId, cap: Cap) -> StoreError {
    StoreError::BudgetSpent { budget, cap }
}

fn used(store: &dyn Subject, budget: BudgetId) -> Amounts {
    block_on(store.budget(&scope(), budget)).unwrap().map_or(Amounts::NONE, |row| row.used())
}

/// What is held counts like what is spent, and what is not charged is free again.
pub fn a_hold_needs_room(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = begun(1, &*store, |run| run.limits = tokens(100));
    let first = run.holds(amounts(60), true);
    ok(&*store, run.live());
    let full = spent(run.own_budget(), Cap::Tokens);
    run.holds(amounts(41), false);
    refused(&*store, run.live(), &full);
    let second = run.holds(amounts(40), false);
    ok(&*store, run.live());
    run.settles(second, HowSettled::NotServed, Amounts { calls: 1, ..Amounts::NONE });
    ok(&*store, run.late());
    run.settles(first, HowSettled::Ambiguous, amounts(60));
    ok(&*store, run.late());
    run.holds(amounts(41), false);
    refused(&*store, run.live(), &full);
    run.holds(amounts(40), false);
    ok(&*store, run.live());
    fold::check(&*store);
}

/// Each cap is judged by itself, and named.
pub fn each_cap_is_named(backend: &dyn Backend) {
    let store = plain(backend);
    let limits = [
        (Cap::Calls, Limits { max_model_calls: Some(1), ..Limits::default() }),
        (Cap::Tokens, tokens(15)),
        (Cap::Cost, Limits { max_estimated_cost_micros: Some(15), ..Limits::default() }),
    ];
    for (seed, (cap, limits)) in (1..).zip(limits) {
        let mut run = begun(seed, &*store, |run| {
            run.limits = limits;
            run.owner = format!("owner-{seed}");
        });
        run.holds(amounts(10), true);
        ok(&*store, run.live());
        run.holds(amounts(10), false);
        let budget = run.own_budget();
        refused(&*store, run.live(), &spent(budget, cap));
    }
}

/// An append brings an attempt into all budgets that it debits, and out of all of them, or nowhere.
pub fn an_attempt_is_in_all_its_budgets(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = begun(1, &*store, |_| {});
    let attempt = run.attempt();
    let own = run.debited(&[]).pop().unwrap();
    run.budget_opened(own.clone(), Caps::default());
    run.reserved(run.own_budget(), attempt, amounts(10));
    refused(&*store, run.live(), &StoreError::NotAdmitted);

    // Opened, and nothing held in it.
    run.budget_opened(own, Caps::default());
    refused(&*store, run.live(), &StoreError::NotAdmitted);

    let attempt = run.holds(amounts(10), true);
    ok(&*store, run.live());
    run.settled(run.own_budget(), attempt, HowSettled::Ambiguous, amounts(10), Amounts::NONE);
    refused(&*store, run.late(), &StoreError::NotAdmitted);

    // Not one charge here and another there.
    run.settled(run.own_budget(), attempt, HowSettled::Ambiguous, amounts(10), Amounts::NONE);
    let nothing = Amounts { calls: 1, ..Amounts::NONE };
    run.settled(run.day_budget(), attempt, HowSettled::NotServed, nothing, Amounts::NONE);
    refused(&*store, run.late(), &StoreError::NotAdmitted);

    run.settles(attempt, HowSettled::Ambiguous, amounts(10));
    ok(&*store, run.late());
    run.settles(attempt, HowSettled::Ambiguous, amounts(10));
    refused(&*store, run.late(), &StoreError::NotFound("hold"));
    fold::check(&*store);
}

/// A run that another one started spends what that one has, so that it can never have more.
pub fn a_child_debits_its_parents(backend: &dyn Backend) {
    let store = plain(backend);
    let parent = begun(1, &*store, |run| run.limits = tokens(100));
    let mut child = begun(2, &*store, |run| run.parent = Some(parent.run));
    let attempt = child.holds(amounts(10), true);
    refused(&*store, child.live(), &StoreError::NotAdmitted);
    // Its own word about the caps of the one above does not count.
    let above = BudgetScope::Run { run: parent.run };
    let hold = |child: &mut Scenario, caps: Caps, attempt: AttemptId, amount: u64| {
        for scope in child.debited(&[parent.run]) {
            let own = if scope == above { caps } else { Caps::default() };
            child.budget_opened(scope, own);
        }
        for budget in [child.day_budget(), child.own_budget(), parent.own_budget()] {
            child.reserved(budget, attempt, amounts(amount));
        }
        child.live()
    };
    let wide = hold(&mut child, Caps::default(), attempt, 10);
    refused(&*store, wide, &StoreError::NotAdmitted);
    let caps = Caps::of(&parent.limits);
    let large = hold(&mut child, caps, attempt, 101);
    refused(&*store, large, &spent(parent.own_budget(), Cap::Tokens));
    ok(&*store, hold(&mut child, caps, attempt, 60));
    for budget in [child.day_budget(), child.own_budget(), parent.own_budget()] {
        assert_eq!(used(&*store, budget).tokens(), 60);
    }
    let mut parent = parent;
    let held = parent.attempt();
    for budget in [parent.day_budget(), parent.own_budget()] {
        parent.reserved(budget, held, amounts(41));
    }
    let full = spent(parent.own_budget(), Cap::Tokens);
    refused(&*store, parent.live(), &full);
    fold::check(&*store);
}

/// Only the holder of a lease that runs, for a step of its own, can have something held. What is held is settled without.
pub fn only_the_holder_can_hold(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = begun(1, &*store, |_| {});
    run.holds(amounts(10), true);
    refused(&*store, run.driver(Durability::Synced), &StoreError::NotAdmitted);
    run.holds(amounts(10), true);
    refused(&*store, run.late(), &StoreError::NotAdmitted);

    let own = run.step;
    run.step = begun(2, &*store, |run| run.owner = "another".to_owned()).step;
    run.holds(amounts(10), true);
    refused(&*store, run.live(), &StoreError::NotAdmitted);
    run.step = own;

    let attempt = run.holds(amounts(10), true);
    ok(&*store, run.live());
    run.lease_released();
    ok(&*store, run.driver(Durability::Synced));
    run.holds(amounts(10), false);
    refused(&*store, run.live(), &StoreError::LeaseLost);
    run.settles(attempt, HowSettled::Abandoned, amounts(10));
    ok(&*store, run.late());

    run.lease_acquired(LeaseCause::Free);
    ok(&*store, run.taking(false));
    run.tick(crate::scenario::TERM);
    run.holds(amounts(10), false);
    refused(&*store, run.live(), &StoreError::LeaseLost);
    fold::check(&*store);
}

/// The charge is at most what was held. What was used beyond it is kept apart, and leaves less for what comes.
pub fn a_charge_is_at_most_what_was_held(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = begun(1, &*store, |run| run.limits = tokens(100));
    let attempt = run.holds(amounts(20), true);
    ok(&*store, run.live());
    let (held, more) = (amounts(20), amounts(22));
    let excess = Amounts { calls: 0, ..amounts(8) };
    let one = Amounts { calls: 1, ..Amounts::NONE };
    for (how, charged, excess) in [
        (HowSettled::Answered, more, Amounts::NONE),
        (HowSettled::Ambiguous, amounts(18), Amounts::NONE),
        (HowSettled::Ambiguous, held, excess),
        (HowSettled::NotServed, held, Amounts::NONE),
        (HowSettled::Abandoned, one, Amounts::NONE),
        // Not a part of what was held while something goes beyond it.
        (HowSettled::Answered, amounts(18), excess),
        (HowSettled::Answered, held, amounts(8)),
        (HowSettled::Useless, Amounts::NONE, Amounts::NONE),
    ] {
        for budget in [run.day_budget(), run.own_budget()] {
            run.settled(budget, attempt, how, charged, excess);
        }
        refused(&*store, run.late(), &StoreError::NotAdmitted);
    }
    for budget in [run.day_budget(), run.own_budget()] {
        run.settled(budget, attempt, HowSettled::Answered, held, excess);
    }
    ok(&*store, run.late());
    let row = block_on(store.budget(&scope(), run.own_budget())).unwrap().unwrap();
    assert_eq!((row.spent, row.excess), (held, excess));
    run.holds(amounts(73), false);
    let full = spent(run.own_budget(), Cap::Tokens);
    refused(&*store, run.live(), &full);
    run.holds(amounts(72), false);
    ok(&*store, run.live());
    fold::check(&*store);
}

/// A day's caps are what its latest hold says; a run's stand in its limits.
pub fn only_a_days_caps_change(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = begun(1, &*store, |_| {});
    run.holds(amounts(50), true);
    ok(&*store, run.live());
    let narrow = Caps { tokens: Some(60), ..Caps::default() };
    let under = |run: &mut Scenario, day: Option<Caps>, own: Option<Caps>, tokens: u64| {
        run.holds(amounts(tokens), false);
        let (day_budget, own_budget) = (run.day_budget(), run.own_budget());
        let mut append = run.live();
        for event in &mut append.events {
            let Body::BudgetReserved(body) = &mut event.body else { continue };
            if event.stream == day_budget.into() {
                body.caps = day;
            } else if event.stream == own_budget.into() {
                body.caps = own;
            }
        }
        append
    };
    let over = under(&mut run, Some(narrow), None, 11);
    refused(&*store, over, &spent(run.day_budget(), Cap::Tokens));
    ok(&*store, under(&mut run, Some(narrow), None, 10));
    let over = under(&mut run, None, None, 1);
    refused(&*store, over, &spent(run.day_budget(), Cap::Tokens));
    ok(&*store, under(&mut run, Some(Caps::default()), None, 1));
    let own = under(&mut run, None, Some(narrow), 1);
    refused(&*store, own, &StoreError::NotAdmitted);
    fold::check(&*store);
}

/// What has no price is not held against a cap on cost, and is counted where there is none.
pub fn what_has_no_price_meets_no_cap_on_cost(backend: &dyn Backend) {
    let store = plain(backend);
    let free = Amounts { cost_micros: 0, ..amounts(10) };
    let unpriced = |run: &mut Scenario| {
        run.holds(free, true);
        let mut append = run.live();
        for event in &mut append.events {
            if let Body::BudgetReserved(body) = &mut event.body {
                body.priced = false;
            }
        }
        append
    };
    let cap = Limits { max_estimated_cost_micros: Some(0), ..Limits::default() };
    let mut capped = begun(1, &*store, |run| run.limits = cap);
    let append = unpriced(&mut capped);
    refused(&*store, append, &StoreError::NotAdmitted);
    // Priced at nothing, on purpose.
    capped.holds(free, true);
    ok(&*store, capped.live());
    let mut open = begun(2, &*store, |run| run.owner = "another".to_owned());
    let append = unpriced(&mut open);
    ok(&*store, append);
    let row = block_on(store.budget(&scope(), open.own_budget())).unwrap().unwrap();
    assert_eq!(row.unpriced, 1);
    fold::check(&*store);
}

/// The list that recovery works by.
pub fn what_holds_something_is_listed(backend: &dyn Backend) {
    let store = plain(backend);
    let mut run = begun(1, &*store, |_| {});
    let listed = || {
        let page = Page { offset: 0, limit: 10 };
        let rows = block_on(store.held_budgets(&scope(), page)).unwrap();
        let ids = rows.rows.into_iter().map(|row| row.unwrap().id).collect::<Vec<_>>();
        assert_eq!(rows.total, u64::try_from(ids.len()).unwrap());
        ids
    };
    assert_eq!(listed(), []);
    let attempt = run.holds(amounts(10), true);
    ok(&*store, run.live());
    assert_eq!(listed(), [run.day_budget(), run.own_budget()]);
    run.settles(attempt, HowSettled::Ambiguous, amounts(10));
    ok(&*store, run.late());
    assert_eq!(listed(), []);
    let other = BudgetId::from_bytes([9; 16]);
    assert_eq!(block_on(store.budget(&scope(), other)).unwrap(), None);
}

/// How many of the holds that 64 threads try in one budget are admitted.
fn admitted(store: &dyn Subject, seed: u64, cap: Option<u64>) -> (u64, Amounts) {
    const THREADS: u64 = 64;
    let mut run = begun(seed, store, |run| {
        run.owner = format!("owner-{seed}");
        run.limits = Limits { max_total_tokens: cap, ..Limits::default() };
    });
    run.holds(amounts(10), true);
    ok(store, run.live());
    let appends: Vec<Append> = (0..THREADS)
        .map(|_| {
            run.holds(amounts(10), false);
            run.live()
        })
        .collect();
    let full = spent(run.own_budget(), Cap::Tokens);
    let taken = AtomicU64::new(1);
    std::thread::scope(|threads| {
        for append in appends {
            let (taken, full) = (&taken, &full);
            threads.spawn(move || match block_on(store.append(&scope(), append)) {
                Ok(_) => {
                    taken.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => assert_eq!(error, *full),
            });
        }
    });
    (taken.into_inner(), used(store, run.own_budget()))
}

/// 64 threads hold at once in one budget, and each cap is kept to the last token. The control: without one, all hold.
pub fn many_at_once_cross_no_cap(backend: &dyn Backend) {
    let store = plain(backend);
    let (free, used) = admitted(&*store, 1, None);
    assert_eq!((free, used.tokens()), (65, 650), "the control crosses what is the cap below");
    let (kept, used) = admitted(&*store, 2, Some(305));
    assert_eq!((kept, used.tokens()), (30, 300));
    fold::check(&*store);
}

/// One run of a random tree, with the runs above it, nearest first.
struct Node {
    run: Scenario,
    above: Vec<RunId>,
    ended: bool,
    /// What is under way: attempt, its step, what is held, and in which budgets.
    open: Vec<(AttemptId, portcullis_domain::id::StepId, Amounts, Vec<BudgetId>)>,
}

struct Dice(SeededEntropy);

impl Dice {
    fn roll(&self, sides: u64) -> u64 {
        let mut bytes = [0_u8; 8];
        self.0.fill(&mut bytes);
        u64::from_le_bytes(bytes) % sides
    }
}

/// Random trees of runs: holds, retries, settlements, crashes between the two, several children at once, clocks that jump
/// days to and fro. At no event is more spent than a cap, by a sum that knows nothing of the fold.
pub fn random_trees_cross_no_cap(backend: &dyn Backend) {
    let store = plain(backend);
    let mut tries = [0_u64; 2];
    for seed in 0..6 {
        let done = grow(&*store, seed);
        tries = [tries[0] + done[0], tries[1] + done[1]];
    }
    assert!(tries[0] > 60, "too little was held: {tries:?}");
    assert!(tries[1] > 30, "too little was refused: {tries:?}");
    assert_ledger(&*store);
    fold::check(&*store);
}

/// Plays one tree; gives how many holds were admitted and refused.
fn grow(store: &dyn Subject, seed: u64) -> [u64; 2] {
    let dice = Dice(SeededEntropy::new(seed.wrapping_mul(7_919).wrapping_add(3)));
    let mut opened: BTreeMap<BudgetId, ()> = BTreeMap::new();
    let mut nodes: Vec<Node> = Vec::new();
    let mut done = [0, 0];
    for turn in 0..70_u64 {
        let grows = nodes.is_empty() || (nodes.len() < 6 && dice.roll(8) == 0);
        if grows {
            let node = sprout(store, seed * 1_000 + turn, &dice, &nodes, seed);
            nodes.push(node);
            continue;
        }
        let place = usize::try_from(dice.roll(u64::try_from(nodes.len()).unwrap())).unwrap();
        let node = &mut nodes[place];
        match dice.roll(10) {
            0..=4 if !node.ended => {
                let admitted = hold(store, node, &dice, &mut opened);
                done[usize::from(!admitted)] += 1;
            }
            5..=7 => settle(store, node, &dice),
            8 if !node.ended => crash(store, node, &dice),
            _ if dice.roll(6) == 0 && !node.ended && node.run.open => {
                let ended = node.run.run;
                end(store, node, EndReason::OperatorCancelled);
                let below = |node: &&mut Node| !node.ended && node.above.contains(&ended);
                for node in nodes.iter_mut().filter(below) {
                    end(store, node, EndReason::ParentEnded);
                }
            }
            _ => {}
        }
    }
    done
}

fn end(store: &dyn Subject, node: &mut Node, reason: EndReason) {
    node.run.run_finished(reason);
    let condition = Condition::Operator {
        run: node.run.run,
        statuses: vec![portcullis_domain::run::RunStatus::Running],
        question: None,
    };
    let append = node.run.append(condition, Durability::Synced);
    ok(store, append);
    node.ended = true;
}

fn sprout(store: &dyn Subject, seed: u64, dice: &Dice, nodes: &[Node], tree: u64) -> Node {
    let limits = Limits {
        max_model_calls: (dice.roll(2) == 0).then(|| 1 + dice.roll(12)),
        max_total_tokens: (dice.roll(2) == 0).then(|| 200 + dice.roll(3_000)),
        max_estimated_cost_micros: (dice.roll(2) == 0).then(|| 200 + dice.roll(3_000)),
        ..Limits::default()
    };
    let parents: Vec<&Node> = nodes
        .iter()
        .filter(|node| !node.ended && node.above.len() + 2 <= MAX_GENERATIONS)
        .collect();
    let parent = (!parents.is_empty()).then(|| {
        parents[usize::try_from(dice.roll(u64::try_from(parents.len()).unwrap())).unwrap()]
    });
    let above: Vec<RunId> = parent
        .map(|node| std::iter::once(node.run.run).chain(node.above.iter().copied()).collect())
        .unwrap_or_default();
    let mut run = Scenario::new(seed + 500_000, store.instance());
    run.limits = limits;
    run.owner = format!("tree-{tree}");
    run.parent = above.first().copied();
    run.root = above.last().copied();
    run.thread_opened();
    run.run_created();
    run.lease_acquired(LeaseCause::Begin);
    run.step_opened();
    ok(store, run.taking(false));
    Node { run, above, ended: false, open: Vec::new() }
}

/// Tries to hold; the clock may stand on another day than before.
fn hold(
    store: &dyn Subject,
    node: &mut Node,
    dice: &Dice,
    opened: &mut BTreeMap<BudgetId, ()>,
) -> bool {
    let run = &mut node.run;
    let now = run.at;
    if dice.roll(5) == 0 {
        // A jump: the lease is what it was, so it is taken anew at the time that the clock shows now.
        let days = Duration::from_hours(24 * (1 + dice.roll(3)));
        run.at = if dice.roll(2) == 0 {
            now.after(days)
        } else {
            let back = i64::try_from(days.as_micros()).unwrap();
            portcullis_domain::time::Timestamp::from_micros(now.micros() - back)
        };
        run.lease_released();
        ok(store, run.driver(Durability::Synced));
        run.lease_acquired(LeaseCause::Free);
        ok(store, run.taking(false));
    }
    let attempt = run.attempt();
    let projected = amounts(20 + dice.roll(300));
    let scopes = run.debited(&node.above);
    let ids: Vec<BudgetId> = scopes.iter().map(|scope| scope.id(&Tenant::local())).collect();
    let mut fresh = Vec::new();
    for (scope, id) in scopes.into_iter().zip(&ids) {
        if !opened.contains_key(id) {
            let caps = match &scope {
                BudgetScope::Day { .. } => Caps { tokens: Some(2_500), ..Caps::default() },
                BudgetScope::Run { run } => {
                    let state = block_on(store.run(&self::scope(), *run)).unwrap().unwrap();
                    Caps::of(&state.run.limits)
                }
            };
            run.budget_opened(scope, caps);
            fresh.push(*id);
        }
        run.reserved(*id, attempt, projected);
    }
    let append = run.live();
    match block_on(store.append(&self::scope(), append)) {
        Ok(_) => {
            opened.extend(fresh.into_iter().map(|id| (id, ())));
            node.open.push((attempt, run.step, projected, ids));
            true
        }
        Err(StoreError::BudgetSpent { .. }) => false,
        Err(error) => panic!("{error:?}"),
    }
}

fn settle(store: &dyn Subject, node: &mut Node, dice: &Dice) {
    if node.open.is_empty() {
        return;
    }
    let place = usize::try_from(dice.roll(u64::try_from(node.open.len()).unwrap())).unwrap();
    let (attempt, step, projected, ids) = node.open.remove(place);
    let part = |amount: u64| amount * (dice.roll(3)) / 2;
    let (how, charged, excess) = match dice.roll(4) {
        0 => (HowSettled::NotServed, Amounts { calls: 1, ..Amounts::NONE }, Amounts::NONE),
        1 => (HowSettled::Ambiguous, projected, Amounts::NONE),
        _ => {
            let used = Amounts {
                calls: 1,
                input_tokens: part(projected.input_tokens),
                output_tokens: part(projected.output_tokens),
                cost_micros: part(projected.cost_micros),
            };
            (HowSettled::Answered, used.within(projected), used.beyond(projected))
        }
    };
    let was = std::mem::replace(&mut node.run.step, step);
    for budget in ids {
        node.run.settled(budget, attempt, how, charged, excess);
    }
    node.run.step = was;
    let append = node.run.late();
    ok(store, append);
}

/// The holder dies: the next one settles what it left before it goes on.
fn crash(store: &dyn Subject, node: &mut Node, dice: &Dice) {
    node.run.lease_acquired(LeaseCause::HolderDead);
    let append = node.run.taking(true);
    ok(store, append);
    if dice.roll(3) == 0 {
        return;
    }
    for (attempt, step, projected, ids) in std::mem::take(&mut node.open) {
        let was = std::mem::replace(&mut node.run.step, step);
        for budget in ids {
            node.run.settled(budget, attempt, HowSettled::Abandoned, projected, Amounts::NONE);
        }
        node.run.step = was;
        let append = node.run.late();
        ok(store, append);
    }
}

/// Adds up what the events say, one after another, and holds each sum against the caps: nothing of the fold is used.
fn assert_ledger(store: &dyn Subject) {
    let mut caps: BTreeMap<Vec<u8>, Caps> = BTreeMap::new();
    let mut sums: BTreeMap<Vec<u8>, [u128; 3]> = BTreeMap::new();
    let mut held: BTreeMap<(Vec<u8>, AttemptId), Amounts> = BTreeMap::new();
    for event in everything(store).0 {
        let stream = event.stream_id.clone();
        let version = u32::try_from(event.version).unwrap();
        match Body::read(&event.kind, version, &event.payload).unwrap() {
            Body::BudgetOpened(body) => drop(caps.insert(stream, body.caps)),
            Body::BudgetReserved(body) => {
                held.insert((stream, body.attempt), body.projected);
            }
            Body::BudgetSettled(body) => {
                let hold = held.remove(&(stream.clone(), body.attempt)).unwrap();
                assert!(body.charged.fits(&hold));
                let sum = sums.entry(stream.clone()).or_default();
                let charged = [
                    body.charged.calls,
                    body.charged.input_tokens + body.charged.output_tokens,
                    body.charged.cost_micros,
                ];
                for (sum, more) in sum.iter_mut().zip(charged) {
                    *sum += u128::from(more);
                }
                let caps = caps[&stream];
                for (sum, cap) in sum.iter().zip([caps.calls, caps.tokens, caps.cost_micros]) {
                    assert!(cap.is_none_or(|cap| *sum <= u128::from(cap)), "{sum} > {cap:?}");
                }
            }
            _ => {}
        }
    }
    assert!(!sums.is_empty());
}
