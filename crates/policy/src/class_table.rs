//! The class table: what happens to a call of each effect class.

use std::collections::BTreeMap;

use portcullis_canon::{Digest, Kind, Object, Value};
use portcullis_domain::ports::{Policy, PolicyFailure, ProposedCall};
use portcullis_domain::refusal::Refusal;
use portcullis_domain::tool::EffectClass;
use portcullis_domain::verdict::{Facts, OnRejection, PolicyId, Reviewers, Verdict};

/// The most people that one question may need.
/// The most people that a rule can ask.
pub const MAX_REVIEWERS: u32 = 16;

/// What happens to the calls of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// They happen.
    Allow,
    /// People decide.
    Ask {
        /// Who, and how many of them.
        reviewers: Reviewers,
        /// What a no does.
        on_rejection: OnRejection,
    },
    /// They do not happen.
    Deny,
    /// They do not happen, and the run ends.
    Abort,
}

/// A role or a count that cannot be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a question needs a role of 1 to 64 letters, digits, `-` or `_`, and 1 to {MAX_REVIEWERS} people"
)]
pub struct RoleError;

impl Outcome {
    /// Asks `count` different people of `role`; a no ends the run.
    ///
    /// # Errors
    /// [`RoleError`] when the role is no name or the count is out of range.
    pub fn ask(role: &str, count: u32) -> Result<Self, RoleError> {
        let named = (1..=64).contains(&role.len())
            && role.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        if !named || !(1..=MAX_REVIEWERS).contains(&count) {
            return Err(RoleError);
        }
        let reviewers = Reviewers { role: role.to_owned(), count };
        Ok(Self::Ask { reviewers, on_rejection: OnRejection::EndRun })
    }

    /// The same, but a no becomes an observation and the run goes on.
    #[must_use]
    pub fn observing_rejection(self) -> Self {
        match self {
            Self::Ask { reviewers, .. } => {
                Self::Ask { reviewers, on_rejection: OnRejection::Observe }
            }
            other => other,
        }
    }

    /// The rule's normal form for one class.
    fn rule(&self, class: EffectClass) -> String {
        let class = class.as_str();
        match self {
            Self::Allow => format!("class {class}: allow"),
            Self::Ask { reviewers, on_rejection } => {
                format!(
                    "class {class}: ask {} of {}, no: {}",
                    reviewers.count,
                    reviewers.role,
                    on_rejection.as_str()
                )
            }
            Self::Deny => format!("class {class}: deny"),
            Self::Abort => format!("class {class}: abort"),
        }
    }
}

/// One outcome per effect class. A class that is not in it is denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassTable {
    outcomes: BTreeMap<EffectClass, Outcome>,
    id: PolicyId,
}

impl Default for ClassTable {
    /// Reading and local changes are allowed, remote changes ask the role `operator`, destruction is denied.
    fn default() -> Self {
        let reviewers = Reviewers { role: "operator".to_owned(), count: 1 };
        Self::empty()
            .with(EffectClass::ReadOnly, Outcome::Allow)
            .with(EffectClass::LocalMutation, Outcome::Allow)
            .with(
                EffectClass::RemoteMutation,
                Outcome::Ask { reviewers, on_rejection: OnRejection::EndRun },
            )
            .with(EffectClass::Destructive, Outcome::Deny)
    }
}

impl ClassTable {
    /// The table that denies everything.
    #[must_use]
    pub fn empty() -> Self {
        let outcomes = BTreeMap::new();
        let id = identity(&outcomes);
        Self { outcomes, id }
    }

    /// The table with another outcome for one class.
    #[must_use]
    pub fn with(mut self, class: EffectClass, outcome: Outcome) -> Self {
        self.outcomes.insert(class, outcome);
        self.id = identity(&self.outcomes);
        self
    }

    /// Each role that the table can ask, with the most people that it asks for.
    #[must_use]
    pub fn roles(&self) -> BTreeMap<&str, u32> {
        let mut roles = BTreeMap::new();
        for outcome in self.outcomes.values() {
            if let Outcome::Ask { reviewers, .. } = outcome {
                let count = roles.entry(reviewers.role.as_str()).or_insert(0);
                *count = reviewers.count.max(*count);
            }
        }
        roles
    }
}

impl Policy for ClassTable {
    fn id(&self) -> PolicyId {
        self.id
    }

    fn decide(&self, call: &ProposedCall<'_>, _facts: &Facts) -> Result<Verdict, PolicyFailure> {
        let class = call.tool.effect;
        let Some(outcome) = self.outcomes.get(&class) else {
            return Ok(Verdict::Deny { reason: Refusal::ClassUnmapped, rules: Vec::new() });
        };
        let rules = vec![outcome.rule(class)];
        Ok(match outcome.clone() {
            Outcome::Allow => Verdict::Allow { rules },
            Outcome::Ask { reviewers, on_rejection } => {
                Verdict::Ask { reason: Refusal::ClassAsks, rules, reviewers, on_rejection }
            }
            Outcome::Deny => Verdict::Deny { reason: Refusal::ClassDenied, rules },
            Outcome::Abort => Verdict::Abort { reason: Refusal::PolicyAborted, rules },
        })
    }
}

fn identity(outcomes: &BTreeMap<EffectClass, Outcome>) -> PolicyId {
    let rules: Object = outcomes
        .iter()
        .map(|(class, outcome)| (class.as_str().to_owned(), Value::from(outcome.rule(*class))))
        .collect();
    let mut policy = Object::new();
    policy.insert("classes", rules);
    Digest::of_value(Kind::Policy, &Value::Object(policy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_domain::label::Labels;
    use portcullis_domain::proposal::ProposalOrigin;
    use portcullis_domain::scope::Tenant;
    use portcullis_domain::tool::ToolSpec;

    #[track_caller]
    fn check(table: &ClassTable, effect: EffectClass, outcome: &str, reason: Option<Refusal>) {
        let tool = ToolSpec {
            name: "t".to_owned(),
            description: String::new(),
            input_schema: Value::Bool(true),
            effect,
            source: false,
            sink: false,
            authority: vec![],
            deadline_ms: 1,
            terminal: false,
            fixed: Object::new(),
            max_result_bytes: 1,
            target: None,
            probe: None,
            idempotency_key: None,
        };
        let facts = Facts {
            tenant: Tenant::local(),
            owner: "owner".to_owned(),
            origin: ProposalOrigin::Model,
            steps: 0,
            failures: 0,
            denials: 0,
            active_us: 0,
            labels: Labels::none(),
            label_seq: 0,
        };
        let verdict =
            table.decide(&ProposedCall { tool: &tool, arguments: &Object::new() }, &facts).unwrap();
        assert_eq!((verdict.outcome(), verdict.reason()), (outcome, reason), "{effect:?}");
    }

    #[test]
    fn the_default_allows_local_work_asks_for_remote_changes_and_denies_destruction() {
        let table = ClassTable::default();
        check(&table, EffectClass::ReadOnly, "allow", None);
        check(&table, EffectClass::LocalMutation, "allow", None);
        check(&table, EffectClass::RemoteMutation, "ask", Some(Refusal::ClassAsks));
        check(&table, EffectClass::Destructive, "deny", Some(Refusal::ClassDenied));
    }

    #[test]
    fn a_class_without_a_rule_is_denied() {
        for class in EffectClass::ALL {
            check(&ClassTable::empty(), class, "deny", Some(Refusal::ClassUnmapped));
        }
    }

    #[test]
    fn the_identity_follows_every_part_of_every_rule() {
        let ask = |role, count| Outcome::ask(role, count).unwrap();
        let outcomes = [
            Outcome::Allow,
            Outcome::Deny,
            Outcome::Abort,
            ask("a", 1),
            ask("a", 2),
            ask("b", 1),
            ask("a", 1).observing_rejection(),
        ];
        let ids: std::collections::BTreeSet<_> = outcomes
            .iter()
            .flat_map(|o| {
                EffectClass::ALL.map(|class| ClassTable::empty().with(class, o.clone()).id())
            })
            .collect();
        assert_eq!(ids.len(), outcomes.len() * EffectClass::ALL.len());
    }

    #[test]
    fn roles_are_names_and_counts_are_bounded() {
        for (role, count) in [("", 1), ("a b", 1), ("a", 0), ("a", 17)] {
            assert_eq!(Outcome::ask(role, count), Err(RoleError), "{role} {count}");
        }
        let table = ClassTable::empty()
            .with(EffectClass::ReadOnly, Outcome::ask("a", 2).unwrap())
            .with(EffectClass::Destructive, Outcome::ask("a", 1).unwrap());
        assert_eq!(table.roles(), BTreeMap::from([("a", 2)]));
    }
}
