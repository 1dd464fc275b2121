//! Steps as messages, rendered once each.
//!
//! A [`Transcript`] grows by one step at a time. What was rendered is kept as bytes: the last few steps with their whole
//! results, those before with a line in place of a long result, and of very long runs the oldest not at all. The same
//! steps with the same seed give the same bytes, however they came.

mod fence;
mod profile;

use std::collections::VecDeque;
use std::sync::Arc;

use portcullis_canon::{Object, Value};

use crate::dialect::{Dialect, Frame, Turn, TurnResult, named_use};

pub use fence::FenceSeed;
pub use profile::Profile;

/// What the model said before a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// In words.
    pub text: String,
    /// What has to be given back as it came.
    pub verbatim: Option<Arc<[u8]>>,
}

/// One tool use and what came of it.
#[derive(Clone, Debug)]
pub struct StepResult<'s> {
    /// The id of the tool use.
    pub id: String,
    /// The tool, as it is advertised.
    pub tool: &'s str,
    /// The arguments.
    pub arguments: Object,
    /// The request of the step, which keys the fence.
    pub request: u64,
    /// Its place among the results of one reply.
    pub index: u64,
    /// The stable name of what came of it; `not_attempted` where nothing was tried.
    pub outcome: &'s str,
    /// What came back.
    pub content: &'s Value,
    /// Whether that comes from outside.
    pub external: bool,
}

/// One step in both forms.
#[derive(Debug)]
struct Entry {
    said: String,
    full: String,
    short: String,
    results: usize,
    steps: u64,
}

/// A conversation as bytes.
#[derive(Debug)]
pub struct Transcript {
    dialect: Dialect,
    profile: Profile,
    seed: FenceSeed,
    opening: String,
    /// Steps that are not shown.
    left_out: u64,
    /// The remark about them.
    remark: String,
    /// Older steps in their last form, joined by commas.
    settled: String,
    /// Bytes, without commas, and steps of each of them.
    lengths: VecDeque<(usize, u64)>,
    recent: VecDeque<Entry>,
}

impl Transcript {
    /// A conversation about this goal.
    #[must_use]
    pub fn new(dialect: Dialect, profile: Profile, seed: FenceSeed, goal: &str) -> Self {
        let opening = dialect.turn(&Turn::User(profile.opening(goal)));
        Self {
            dialect,
            profile,
            seed,
            opening,
            left_out: 0,
            remark: String::new(),
            settled: String::new(),
            lengths: VecDeque::new(),
            recent: VecDeque::new(),
        }
    }

    /// So many earlier steps are not known here.
    pub fn leave_out(&mut self, steps: u64) {
        if steps > 0 {
            self.left_out = self.left_out.saturating_add(steps);
            self.remark = self.dialect.turn(&Turn::User(self.profile.left_out(self.left_out)));
        }
    }

    /// A reply that asked for tools, with what came of all of them.
    pub fn push(&mut self, said: Said, results: &[StepResult<'_>]) {
        let uses = results.iter().map(|r| named_use(r.id.clone(), r.tool, r.arguments.clone()));
        let uses = uses.collect();
        let said = Turn::Assistant { text: said.text, uses, verbatim: said.verbatim };
        let (mut full, mut short) = (Vec::new(), Vec::new());
        for result in results {
            let (whole, rest) = self.profile.result(result, &self.seed);
            let told = |text| TurnResult {
                id: result.id.clone(),
                name: crate::names::wire_name(result.tool),
                text,
                failed: result.outcome != "tool_result",
            };
            full.push(told(whole));
            short.push(told(rest));
        }
        self.enter(Entry {
            said: self.dialect.turn(&said),
            full: self.dialect.turn(&Turn::Results(full)),
            short: self.dialect.turn(&Turn::Results(short)),
            results: results.len(),
            steps: u64::try_from(results.len()).unwrap_or(u64::MAX),
        });
    }

    /// A call of an earlier process, told instead of given back: for models whose own words cannot be made up.
    pub fn push_told(&mut self, result: &StepResult<'_>) {
        let (whole, rest) = self.profile.result(result, &self.seed);
        let arguments = Value::Object(result.arguments.clone()).to_canonical_string();
        let call = self.profile.told(result.tool, &arguments);
        let told = |text| self.dialect.turn(&Turn::User(format!("{call}\n{text}")));
        let (full, short) = (told(whole), told(rest));
        self.enter(Entry { said: String::new(), full, short, results: 1, steps: 1 });
    }

    /// A reply of which nothing came, and what we say about it.
    pub fn push_remark(&mut self, said: Option<String>, remark: &str) {
        let said = said.filter(|text| !text.trim().is_empty());
        let said = said.map(|text| Turn::Assistant { text, uses: Vec::new(), verbatim: None });
        let remark = self.dialect.turn(&Turn::User(remark.to_owned()));
        let said = said.map(|turn| self.dialect.turn(&turn)).unwrap_or_default();
        self.enter(Entry { said, full: remark.clone(), short: remark, results: 0, steps: 1 });
    }

    fn enter(&mut self, entry: Entry) {
        self.recent.push_back(entry);
        let mut shown: usize = self.recent.iter().map(|entry| entry.results).sum();
        while shown > self.profile.recent_results() && self.recent.len() > 1 {
            let Some(old) = self.recent.pop_front() else { break };
            shown = shown.saturating_sub(old.results);
            self.settle(&old);
        }
    }

    fn settle(&mut self, old: &Entry) {
        let parts: Vec<&str> =
            [old.said.as_str(), old.short.as_str()].into_iter().filter(|p| !p.is_empty()).collect();
        let text = parts.join(",");
        if !self.settled.is_empty() {
            self.settled.push(',');
        }
        self.settled.push_str(&text);
        self.lengths.push_back((text.len(), old.steps));
        if self.settled.len() > self.profile.max_settled_bytes() {
            self.forget();
        }
    }

    /// Leaves out the oldest half, so that it happens seldom and what a provider cached stays of use.
    fn forget(&mut self) {
        let keep = self.profile.max_settled_bytes() / 2;
        let (mut gone, mut steps) = (0_usize, 0_u64);
        while self.settled.len().saturating_sub(gone) > keep {
            let Some((length, of)) = self.lengths.pop_front() else { break };
            gone = gone.saturating_add(length).saturating_add(1);
            steps = steps.saturating_add(of);
        }
        self.settled = self.settled.get(gone..).unwrap_or_default().to_owned();
        self.leave_out(steps);
    }

    /// The whole request.
    #[must_use]
    pub fn body(&self, frame: &Frame) -> Vec<u8> {
        let mut turns: Vec<&str> = vec![&self.opening, &self.remark, &self.settled];
        for entry in &self.recent {
            turns.extend([entry.said.as_str(), entry.full.as_str()]);
        }
        frame.around(&turns)
    }
}
