//! A table check for policies: rows of a call, facts and what is expected, all mismatches reported together.
//!
//! ```
//! use portcullis_domain::refusal::Refusal;
//! use portcullis_domain::tool::EffectClass;
//! use portcullis_policy::ClassTable;
//! use portcullis_testkit::policy_table::{Expect, Row, assert_answers, mismatches};
//!
//! let rows = [
//!     Row::new("a look", EffectClass::ReadOnly, Expect::Allow).by("class read_only: allow"),
//!     Row::new("a mail", EffectClass::RemoteMutation, Expect::ask("operator", 1)),
//!     Row::new("an end", EffectClass::Destructive, Expect::Deny(Refusal::ClassDenied)),
//! ];
//! assert_answers(&ClassTable::default(), &rows);
//!
//! // A table that names no class denies all three, the last for another reason, and all of it is told.
//! assert_eq!(mismatches(&ClassTable::empty(), &rows).len(), 3);
//! ```

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use portcullis_canon::{Object, Schema, Value};
use portcullis_domain::label::Labels;
use portcullis_domain::ports::{Policy, PolicyFailure, ProposedCall};
use portcullis_domain::proposal::ProposalOrigin;
use portcullis_domain::refusal::Refusal;
use portcullis_domain::scope::Tenant;
use portcullis_domain::tool::{EffectClass, ToolSpec};
use portcullis_domain::verdict::{Facts, Verdict};

/// What a policy is expected to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// It happens.
    Allow,
    /// People are asked: this role, and so many of them.
    Ask {
        /// The role.
        role: String,
        /// How many people.
        count: u32,
    },
    /// It does not happen, for this reason.
    Deny(Refusal),
    /// It does not happen and the run ends, for this reason.
    Abort(Refusal),
    /// The policy cannot answer, which the gate takes as a deny.
    Fails(Refusal),
}

impl Expect {
    /// So many people of a role are asked.
    #[must_use]
    pub fn ask(role: &str, count: u32) -> Self {
        Self::Ask { role: role.to_owned(), count }
    }

    fn of(answer: &Result<Verdict, PolicyFailure>) -> Self {
        match answer {
            Ok(Verdict::Allow { .. }) => Self::Allow,
            Ok(Verdict::Ask { reviewers, .. }) => Self::ask(&reviewers.role, reviewers.count),
            Ok(Verdict::Deny { reason, .. }) => Self::Deny(*reason),
            Ok(Verdict::Abort { reason, .. }) => Self::Abort(*reason),
            Err(PolicyFailure(reason)) => Self::Fails(*reason),
        }
    }
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allow => f.write_str("allow"),
            Self::Ask { role, count } => write!(f, "ask {count} of `{role}`"),
            Self::Deny(reason) => write!(f, "deny ({})", reason.as_str()),
            Self::Abort(reason) => write!(f, "abort ({})", reason.as_str()),
            Self::Fails(reason) => write!(f, "no answer ({})", reason.as_str()),
        }
    }
}

/// One call and what is expected of it.
#[derive(Clone, Debug)]
pub struct Row {
    name: String,
    tool: ToolSpec,
    arguments: Object,
    facts: Facts,
    expect: Expect,
    rule: Option<String>,
}

impl Row {
    /// A call without arguments of a tool of this class, in a run that has done nothing yet.
    #[must_use]
    pub fn new(name: &str, effect: EffectClass, expect: Expect) -> Self {
        let (tool, facts) = (tool(effect), facts());
        let (name, arguments) = (name.to_owned(), Object::new());
        Self { name, tool, arguments, facts, expect, rule: None }
    }

    /// A call of this tool instead.
    #[must_use]
    pub fn tool(mut self, tool: ToolSpec) -> Self {
        self.tool = tool;
        self
    }

    /// With these arguments, as an agent proposes them: fixed values and defaults are put in.
    #[must_use]
    pub fn arguments(mut self, arguments: Object) -> Self {
        self.arguments = arguments;
        self
    }

    /// With facts changed like this.
    #[must_use]
    pub fn facts(mut self, change: impl FnOnce(&mut Facts)) -> Self {
        change(&mut self.facts);
        self
    }

    /// This is among the decisive rules.
    #[must_use]
    pub fn by(mut self, rule: &str) -> Self {
        self.rule = Some(rule.to_owned());
        self
    }

    /// What is wrong with the policy's answer.
    fn judge(&self, policy: &dyn Policy) -> Result<(), String> {
        let arguments = self.admitted()?;
        let call = ProposedCall { tool: &self.tool, arguments: &arguments };
        let ask = || catch_unwind(AssertUnwindSafe(|| policy.decide(&call, &self.facts)));
        let answer = ask().map_err(|_| format!("expected {}, and it panicked", self.expect))?;
        let found = Expect::of(&answer);
        if found != self.expect {
            return Err(format!("expected {}, found {found}", self.expect));
        }
        let rules = answer.as_ref().map_or(&[][..], Verdict::rules);
        if let Some(rule) = self.rule.as_ref().filter(|rule| !rules.contains(rule)) {
            return Err(format!("expected the rule `{rule}`, found {rules:?}"));
        }
        match ask() {
            Ok(second) if second == answer => Ok(()),
            _ => Err("asked again, it answers something else".to_owned()),
        }
    }

    /// The arguments as the gate hands them to a policy.
    fn admitted(&self) -> Result<Object, String> {
        let schema = Schema::compile(&self.tool.input_schema)
            .map_err(|error| format!("the tool's schema cannot be used: {error}"))?;
        let mut arguments = self.arguments.clone();
        for (name, value) in &self.tool.fixed {
            if arguments.insert(name, value.clone()).is_some() {
                return Err(format!("no policy would see it: `{name}` is the operator's to fix"));
            }
        }
        let filled = schema.fill_defaults(Value::Object(arguments));
        schema.check(&filled).map_err(|broken| {
            format!("no policy would see it: the arguments break the schema ({broken})")
        })?;
        match filled {
            Value::Object(filled) => Ok(filled),
            _ => Err("the arguments are no object".to_owned()),
        }
    }
}

/// A row whose answer is not the expected one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The row's name.
    pub row: String,
    /// What differs: one sentence.
    pub text: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.row, self.text)
    }
}

/// The rows that the policy answers otherwise, panics on, or answers twice in different ways.
pub fn mismatches(policy: &dyn Policy, rows: &[Row]) -> Vec<Mismatch> {
    let judged = rows.iter().filter_map(|row| {
        let text = row.judge(policy).err()?;
        Some(Mismatch { row: row.name.clone(), text })
    });
    judged.collect()
}

/// Fails the running test with every mismatch.
///
/// # Panics
/// When there is one, or no row.
#[expect(clippy::panic, reason = "this is how a test fails")]
#[track_caller]
pub fn assert_answers(policy: &dyn Policy, rows: &[Row]) {
    if rows.is_empty() {
        panic!("a table without rows says nothing");
    }
    let found = mismatches(policy, rows);
    if !found.is_empty() {
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        panic!("{} of {} rows differ:\n{}", found.len(), rows.len(), lines.join("\n"));
    }
}

/// A tool of this class that takes any object.
#[must_use]
pub fn tool(effect: EffectClass) -> ToolSpec {
    ToolSpec {
        name: format!("table.{}", effect.as_str()),
        description: "A tool of a table.".to_owned(),
        input_schema: Value::Object(Object::from_iter([("type", "object")])),
        effect,
        source: false,
        sink: effect.changes_something(),
        authority: Vec::new(),
        deadline_ms: 10_000,
        terminal: false,
        fixed: Object::new(),
        max_result_bytes: 65_536,
        target: None,
        probe: None,
        idempotency_key: None,
    }
}

/// The facts of a run's first step.
#[must_use]
pub fn facts() -> Facts {
    Facts {
        tenant: Tenant::local(),
        owner: "owner".to_owned(),
        origin: ProposalOrigin::Model,
        steps: 0,
        failures: 0,
        denials: 0,
        active_us: 0,
        labels: Labels::none(),
        label_seq: 0,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use portcullis_canon::{Limits, parse};
    use portcullis_domain::verdict::PolicyId;
    use portcullis_policy::ClassTable;

    use super::*;
    use crate::doubles::{Conduct, UnrulyPolicy};
    use crate::ports::ManualClock;

    /// Allows small sums in the first three steps, by arguments and facts.
    struct Sums;

    impl Policy for Sums {
        fn id(&self) -> PolicyId {
            PolicyId::ZERO
        }

        fn decide(&self, call: &ProposedCall<'_>, facts: &Facts) -> Result<Verdict, PolicyFailure> {
            let sum = call.arguments.get("sum").and_then(Value::as_i64);
            let sum = sum.ok_or(PolicyFailure(Refusal::PolicyFailed))?;
            let rules = vec![format!("sum {sum}, step {}", facts.steps)];
            let reason = Refusal::ClassDenied;
            Ok(match (sum, facts.steps) {
                (_, 3..) => Verdict::Abort { reason, rules },
                (..=10, _) => Verdict::Allow { rules },
                _ => Verdict::Deny { reason, rules },
            })
        }
    }

    fn sum(name: &str, arguments: &str, expect: Expect) -> Row {
        let schema = br#"{"type":"object","properties":{"sum":{"type":"integer","default":7}}}"#;
        let schema = parse(schema, &Limits::BARE).unwrap();
        let arguments = parse(arguments.as_bytes(), &Limits::BARE).unwrap();
        let tool = ToolSpec { input_schema: schema, ..tool(EffectClass::ReadOnly) };
        let arguments = arguments.as_object().unwrap().clone();
        Row::new(name, EffectClass::ReadOnly, expect).tool(tool).arguments(arguments)
    }

    fn texts(policy: &dyn Policy, rows: &[Row]) -> Vec<String> {
        mismatches(policy, rows).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn arguments_facts_defaults_and_rules_count() {
        let denied = Expect::Deny(Refusal::ClassDenied);
        let late = sum("late", r#"{"sum":1}"#, Expect::Abort(Refusal::ClassDenied));
        let rows = [
            sum("small", r#"{"sum":10}"#, Expect::Allow).by("sum 10, step 0"),
            sum("default", "{}", Expect::Allow).by("sum 7, step 0"),
            sum("large", r#"{"sum":11}"#, denied),
            late.facts(|facts| facts.steps = 3),
            Row::new("no sum", EffectClass::ReadOnly, Expect::Fails(Refusal::PolicyFailed)),
        ];
        assert_answers(&Sums, &rows);
    }

    #[test]
    fn every_mismatch_is_told_and_not_only_the_first() {
        let ask = Expect::ask("operator", 2);
        let rows = [
            sum("outcome", r#"{"sum":10}"#, ask),
            sum("fine", r#"{"sum":10}"#, Expect::Allow),
            sum("reason", r#"{"sum":11}"#, Expect::Deny(Refusal::NoReviewer)),
            sum("rule", "{}", Expect::Allow).by("another rule"),
            sum("schema", r#"{"sum":"x"}"#, Expect::Allow),
        ];
        let expected = [
            "outcome: expected ask 2 of `operator`, found allow".to_owned(),
            format!(
                "reason: expected deny ({}), found deny ({})",
                Refusal::NoReviewer.as_str(),
                Refusal::ClassDenied.as_str()
            ),
            "rule: expected the rule `another rule`, found [\"sum 7, step 0\"]".to_owned(),
            "schema: no policy would see it: the arguments break the schema (/sum: type)"
                .to_owned(),
        ];
        assert_eq!(texts(&Sums, &rows), expected);
        assert!(catch_unwind(|| assert_answers(&Sums, &rows)).is_err());
        assert!(catch_unwind(|| assert_answers(&Sums, &[])).is_err(), "no rows");
    }

    #[test]
    fn a_policy_that_panics_or_wavers_is_told() {
        let rows = [Row::new("look", EffectClass::ReadOnly, Expect::Allow)];
        for (conduct, told) in [
            (Conduct::Panics, "look: expected allow, and it panicked"),
            (Conduct::Wavers, "look: asked again, it answers something else"),
        ] {
            let policy = UnrulyPolicy::new(Arc::new(ClassTable::default()), ManualClock::default());
            policy.behave(conduct);
            assert_eq!(texts(&policy, &rows), [told]);
            policy.behave(Conduct::Dawdles(Duration::ZERO));
            assert_answers(&policy, &rows);
        }
    }
}
