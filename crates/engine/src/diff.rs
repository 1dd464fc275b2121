//! Comparing two runs: what they were begun with, step by step what was proposed, decided and done, and how they ended.
//!
//! Both are read back from their events, as in [`crate::recheck`]; digests of two runs cannot be compared, since each run has a
//! salt of its own, so the contents are. Steps stand beside each other by their place. Not compared is what never is the
//! same: ids, times, durations, the agent's stated reasons, and who drove or answered.
//!
//! Memory holds one page of events and one step of each run.
//!
//! ```
//! use portcullis_domain::id::RunId;
//! use portcullis_domain::ports::{Store, StoreError};
//! use portcullis_domain::scope::Scope;
//! use portcullis_engine::diff::Diff;
//!
//! async fn parted(
//!     store: &dyn Store,
//!     scope: &Scope,
//!     one: RunId,
//!     other: RunId,
//! ) -> Result<Option<u64>, StoreError> {
//!     let mut diff = Diff::of(store, scope, one, other);
//!     while let Some(section) = diff.next().await? {
//!         for difference in &section.differences {
//!             println!("{:?} {}{}", section.place, difference.part.as_str(), difference.at);
//!         }
//!     }
//!     Ok(diff.totals().parted)
//! }
//! ```

mod parts;
mod places;

use portcullis_canon::Value;
use portcullis_domain::id::{RunId, StepId};
use portcullis_domain::ports::{Store, StoreError};
use portcullis_domain::scope::Scope;
use portcullis_domain::step::Step;

use crate::retrace::Source;
use parts::{Held, Parts, Story};
use places::places;

pub use crate::retrace::{Broken, Obstacle, Recorded};

/// The most places of one part that are listed.
const MAX_PLACES: usize = 16;

/// What of a run or of a step is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The task.
    Goal,
    /// Who asked for it.
    Owner,
    /// The agent, and whether it is confined.
    Agent,
    /// The bounds.
    Limits,
    /// The frozen set: each tool's name and the digest of its spec.
    Tools,
    /// The identity of the policy: at the start of a run; of a step only where it is another than at the start.
    Policy,
    /// What the proposal is, and where it says it comes from.
    Kind,
    /// The tool.
    Tool,
    /// The digest of the spec that the call was judged with, where it is another than in the frozen set.
    Spec,
    /// The canonical arguments.
    Arguments,
    /// A proposal that is no admitted call.
    Proposal,
    /// The verdict.
    Verdict,
    /// The status of a step, what kind of thing came back, and why.
    Outcome,
    /// What came back, or the result of a run.
    Result,
    /// The status of a run, and why it ended.
    End,
    /// What is said of its end.
    Note,
}

impl Part {
    /// Every part, in the order in which they are compared.
    pub const ALL: [Self; 16] = [
        Self::Goal,
        Self::Owner,
        Self::Agent,
        Self::Limits,
        Self::Tools,
        Self::Kind,
        Self::Tool,
        Self::Spec,
        Self::Arguments,
        Self::Proposal,
        Self::Verdict,
        Self::Policy,
        Self::Outcome,
        Self::Result,
        Self::End,
        Self::Note,
    ];

    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Goal => "goal",
            Self::Owner => "owner",
            Self::Agent => "agent",
            Self::Limits => "limits",
            Self::Tools => "tools",
            Self::Policy => "policy",
            Self::Kind => "kind",
            Self::Tool => "tool",
            Self::Spec => "spec",
            Self::Arguments => "arguments",
            Self::Proposal => "proposal",
            Self::Verdict => "verdict",
            Self::Outcome => "outcome",
            Self::Result => "result",
            Self::End => "end",
            Self::Note => "note",
        }
    }
}

/// Which of the two runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The first.
    One,
    /// The second.
    Other,
}

impl Side {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Other => "other",
        }
    }
}

/// One thing that the two do not have alike. A text that is too large to be parsed stands as `{"bytes": N}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Of what.
    pub part: Part,
    /// Where in it: a JSON pointer, empty for the whole.
    pub at: String,
    /// What the first has; nothing when it has nothing there.
    pub one: Option<Value>,
    /// What the second has.
    pub other: Option<Value>,
}

/// One thing that cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// Of what.
    pub part: Part,
    /// Which run does not give it.
    pub side: Side,
    /// Why not.
    pub why: Obstacle,
}

/// Where in the two runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// What they were begun with.
    Beginning,
    /// The steps at this place, from zero.
    Step(u64),
    /// How they ended, or where they stand.
    End,
}

/// What one place of the two runs comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Which place.
    pub place: Where,
    /// The step of the first run, at the place of a step; nothing when it has none there.
    pub one: Option<StepId>,
    /// The step of the second.
    pub other: Option<StepId>,
    /// The tool, where either names one.
    pub tool: Option<String>,
    /// What they do not have alike; of one part at most sixteen places.
    pub differences: Vec<Difference>,
    /// What cannot be compared.
    pub unknown: Vec<Unknown>,
}

impl Section {
    /// True when all was compared and nothing differs.
    #[must_use]
    pub const fn is_same(&self) -> bool {
        self.differences.is_empty() && self.unknown.is_empty()
    }
}

/// What comparing found, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Places of steps that both have, all alike.
    pub same: u64,
    /// Places of steps that both have and that differ.
    pub different: u64,
    /// Places of steps that both have, in which nothing differs and not all could be compared.
    pub uncompared: u64,
    /// Steps that only the first has.
    pub only_one: u64,
    /// Steps that only the second has.
    pub only_other: u64,
    /// The first step at which they part.
    pub parted: Option<u64>,
    /// Things that cannot be compared.
    pub unknown: u64,
    /// True when beginning or end differ.
    pub around: bool,
    /// Where the record of the first does not hold; nothing behind it was looked at.
    pub broken_one: Option<Broken>,
    /// Where the record of the second does not hold.
    pub broken_other: Option<Broken>,
}

impl Totals {
    /// True when all was compared, nothing differs, and both records hold.
    #[must_use]
    pub const fn is_same(&self) -> bool {
        self.parted.is_none()
            && self.unknown == 0
            && !self.around
            && self.broken_one.is_none()
            && self.broken_other.is_none()
    }

    fn count(&mut self, section: &Section) {
        let unknown = u64::try_from(section.unknown.len()).unwrap_or(u64::MAX);
        self.unknown = self.unknown.saturating_add(unknown);
        let Where::Step(index) = section.place else {
            self.around |= !section.differences.is_empty();
            return;
        };
        let counter = match (section.one, section.other) {
            (Some(_), None) => &mut self.only_one,
            (None, Some(_)) => &mut self.only_other,
            _ if section.is_same() => &mut self.same,
            _ if section.differences.is_empty() => &mut self.uncompared,
            _ => &mut self.different,
        };
        *counter = counter.saturating_add(1);
        if !section.differences.is_empty() {
            self.parted = self.parted.or(Some(index));
        }
    }
}

/// What comes next.
enum Next {
    Beginning,
    Step(u64),
    Nothing,
}

/// Two runs beside each other.
pub struct Diff<'a> {
    one: Story<'a>,
    other: Story<'a>,
    next: Next,
    totals: Totals,
}

impl<'a> Diff<'a> {
    /// Begins at the start of both. Nothing is read yet.
    #[must_use]
    pub fn of(store: &'a dyn Store, scope: &'a Scope, one: RunId, other: RunId) -> Self {
        let source = Source { store, scope };
        Self {
            one: Story::of(source, one),
            other: Story::of(source, other),
            next: Next::Beginning,
            totals: Totals::default(),
        }
    }

    /// What was counted so far; whole once [`Diff::next`] has nothing more.
    #[must_use]
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The run that has no event at all, if one has none; known once the beginning was compared.
    #[must_use]
    pub fn absent(&self) -> Option<Side> {
        match (self.one.is_there(), self.other.is_there()) {
            (false, _) => Some(Side::One),
            (true, false) => Some(Side::Other),
            (true, true) => None,
        }
    }

    /// Compares the next place: the beginning, each step, the end; then nothing.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be read. A damaged record is counted.
    pub async fn next(&mut self) -> Result<Option<Section>, StoreError> {
        let section = match self.next {
            Next::Nothing => return Ok(None),
            Next::Beginning => {
                self.next = Next::Step(0);
                let (one, other) = (self.one.beginning().await?, self.other.beginning().await?);
                section(Where::Beginning, (None, None), &one, &other)
            }
            Next::Step(index) => self.step(index).await?,
        };
        self.totals.count(&section);
        Ok(Some(section))
    }

    async fn step(&mut self, index: u64) -> Result<Section, StoreError> {
        let (one, other) = (self.one.step().await?, self.other.step().await?);
        if one.is_none() && other.is_none() {
            self.next = Next::Nothing;
            self.totals.broken_one = self.one.broken();
            self.totals.broken_other = self.other.broken();
            let (one, other) = (self.one.end().await?, self.other.end().await?);
            return Ok(section(Where::End, (None, None), &one, &other));
        }
        self.next = Next::Step(index.saturating_add(1));
        let one_parts = self.one.parts_of(one.as_ref()).await?;
        let other_parts = self.other.parts_of(other.as_ref()).await?;
        let steps = (one.as_ref(), other.as_ref());
        Ok(section(Where::Step(index), steps, &one_parts, &other_parts))
    }
}

fn section(
    place: Where,
    steps: (Option<&Step>, Option<&Step>),
    one: &Parts,
    other: &Parts,
) -> Section {
    let tool = |step: Option<&Step>| Some(step?.admitted.as_ref()?.tool.clone());
    let mut found = Section {
        place,
        one: steps.0.map(|step| step.id),
        other: steps.1.map(|step| step.id),
        tool: tool(steps.0).or_else(|| tool(steps.1)),
        differences: Vec::new(),
        unknown: Vec::new(),
    };
    for part in Part::ALL {
        let (one, other) = (one.get(&part), other.get(&part));
        for (side, held) in [(Side::One, one), (Side::Other, other)] {
            if let Some(Err(why)) = held {
                found.unknown.push(Unknown { part, side, why: *why });
            }
        }
        let known = (one.map(Result::as_ref).transpose(), other.map(Result::as_ref).transpose());
        if let (Ok(one), Ok(other)) = known {
            compare(part, one, other, &mut found.differences);
        }
    }
    found
}

fn compare(part: Part, one: Option<&Held>, other: Option<&Held>, into: &mut Vec<Difference>) {
    let listed = match (one, other) {
        (one, other) if one == other => return,
        (Some(Held::Value(one)), Some(Held::Value(other))) => places(one, other, MAX_PLACES),
        (one, other) => vec![(String::new(), one.map(Held::shown), other.map(Held::shown))],
    };
    let difference = |(at, one, other)| Difference { part, at, one, other };
    into.extend(listed.into_iter().map(difference));
}
