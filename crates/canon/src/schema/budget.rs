//! What a schema may cost, judged before the validator sees it.

use super::SchemaError;
use super::graph::{self, Graph, Step};
use crate::limits::Limits;
use crate::value::Value;
use std::collections::BTreeMap;

/// The most canonical bytes.
pub(super) const MAX_BYTES: usize = 64 * 1024;
/// The deepest nesting.
pub(super) const MAX_DEPTH: u32 = 32;
/// The most values, of any type.
pub(super) const MAX_NODES: usize = 2_000;
/// The most evaluations that one place of an instance can get.
pub(super) const MAX_PATHS: u64 = 10_000;
/// The most regular expressions.
pub(super) const MAX_PATTERNS: usize = 64;

/// Refuses a schema that is out of bounds.
pub(super) fn admit(schema: &Value) -> Result<(), SchemaError> {
    if schema.depth() > MAX_DEPTH {
        return Err(SchemaError::TooDeep);
    }
    if schema.to_canonical_string().len() > MAX_BYTES {
        return Err(SchemaError::TooLarge);
    }
    check_nodes(schema)?;
    let graph = graph::walk(schema)?;
    if graph.patterns > MAX_PATTERNS {
        return Err(SchemaError::TooManyPatterns);
    }
    let order = leaves_first(&graph).ok_or(SchemaError::Circle)?;
    if most_evaluations(&graph, &order) > MAX_PATHS {
        Err(SchemaError::TooMuchWork)
    } else {
        Ok(())
    }
}

fn check_nodes(schema: &Value) -> Result<(), SchemaError> {
    let mut nodes = 0;
    let mut waiting = vec![schema];
    while let Some(value) = waiting.pop() {
        nodes += 1;
        match value {
            Value::Number(number) if !number.is_exact() => return Err(SchemaError::Number),
            Value::Array(items) => waiting.extend(items),
            Value::Object(object) => waiting.extend(object.values()),
            _ => {}
        }
    }
    if nodes > MAX_NODES { Err(SchemaError::TooManyNodes) } else { Ok(()) }
}

/// The schemas in an order in which each comes after all that it evaluates at its own place;
/// `None` when some schema evaluates itself there.
fn leaves_first(graph: &Graph<'_>) -> Option<Vec<usize>> {
    let count = graph.nodes.len();
    let mut entered = vec![false; count];
    let mut left = vec![false; count];
    let mut order = Vec::with_capacity(count);
    for start in 0..count {
        // Each number comes up twice: to enter, and to leave once all below it has been left.
        let mut waiting = vec![(start, false)];
        while let Some((number, leaving)) = waiting.pop() {
            if leaving {
                *left.get_mut(number)? = true;
                order.push(number);
                continue;
            }
            if *left.get(number)? {
                continue;
            }
            if std::mem::replace(entered.get_mut(number)?, true) {
                // Entered and not left: still open above, hence a circle.
                return None;
            }
            waiting.push((number, true));
            let children = &graph.nodes.get(number)?.in_place;
            waiting.extend(children.iter().map(|child| (*child, false)));
        }
    }
    Some(order)
}

/// How many evaluations one step leads to: by name or index, and for all other names or indexes.
type Reach<'a> = BTreeMap<Step<'a>, u64>;

/// An upper bound on how often schemas are evaluated at any one place of any instance.
///
/// `most[s]` is that bound for one evaluation of `s` at some place and for all places below it. It
/// starts as the evaluations at the place itself and grows by following one more step until it
/// stays as it is, is beyond the budget, or has gone as deep as an instance may be.
fn most_evaluations(graph: &Graph<'_>, order: &[usize]) -> u64 {
    // Finding out what is unevaluated looks at each branch up to three times.
    let weight = if graph.unevaluated { 3 } else { 1 };
    let mut most = at_the_place(graph, order, weight);
    for _ in 0..Limits::ENVELOPE.max_depth {
        let mut reaches: Vec<Reach<'_>> = graph.nodes.iter().map(|_| Reach::new()).collect();
        let mut next = most.clone();
        for number in order {
            let Some(node) = graph.nodes.get(*number) else { continue };
            let mut reach = Reach::new();
            for (step, below) in &node.below {
                let sum = reach.entry(step.clone()).or_default();
                *sum = sum.saturating_add(most.get(*below).copied().unwrap_or(u64::MAX));
            }
            for child in &node.in_place {
                if let Some(other) = reaches.get(*child) {
                    reach = joined(&reach, other, weight);
                }
            }
            let deepest = reach.values().copied().max().unwrap_or_default();
            if let Some(slot) = next.get_mut(*number) {
                *slot = deepest.max(*slot);
            }
            if let Some(slot) = reaches.get_mut(*number) {
                *slot = reach;
            }
        }
        let worst = next.first().copied().unwrap_or_default();
        if next == most || worst > MAX_PATHS {
            return worst;
        }
        most = next;
    }
    most.first().copied().unwrap_or(u64::MAX)
}

/// For each schema, the evaluations at its own place that one evaluation of it causes.
fn at_the_place(graph: &Graph<'_>, order: &[usize], weight: u64) -> Vec<u64> {
    let mut counts = vec![1_u64; graph.nodes.len()];
    for number in order {
        let children = graph.nodes.get(*number).map(|node| node.in_place.as_slice());
        let sum = children.unwrap_or_default().iter().fold(1_u64, |sum, child| {
            let below = counts.get(*child).copied().unwrap_or(u64::MAX);
            sum.saturating_add(below.saturating_mul(weight))
        });
        if let Some(slot) = counts.get_mut(*number) {
            *slot = sum;
        }
    }
    counts
}

/// The reach of two schemas that are evaluated at one place, the second `weight` times.
///
/// A step that only one of them names falls under the other's rest.
fn joined<'a>(left: &Reach<'a>, right: &Reach<'a>, weight: u64) -> Reach<'a> {
    let rest = |reach: &Reach<'a>, step: &Step<'a>| {
        let rest = match step {
            Step::Name(_) | Step::OtherName => Step::OtherName,
            Step::Index(_) | Step::OtherIndex => Step::OtherIndex,
        };
        reach.get(step).or_else(|| reach.get(&rest)).copied().unwrap_or_default()
    };
    left.keys()
        .chain(right.keys())
        .map(|step| {
            let second = rest(right, step).saturating_mul(weight);
            (step.clone(), rest(left, step).saturating_add(second))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::parse;

    fn cost(text: &str) -> Result<u64, SchemaError> {
        let schema = parse(text.as_bytes(), &Limits::BARE).unwrap();
        let graph = graph::walk(&schema)?;
        let order = leaves_first(&graph).ok_or(SchemaError::Circle)?;
        Ok(most_evaluations(&graph, &order))
    }

    #[test]
    fn flat_schemas_cost_what_stands_at_one_place() {
        assert_eq!(cost("{}"), Ok(1));
        assert_eq!(cost("true"), Ok(1));
        assert_eq!(cost(r#"{"properties":{"a":{},"b":{}}}"#), Ok(1));
        assert_eq!(cost(r#"{"allOf":[{},{}],"not":{}}"#), Ok(4));
        assert_eq!(cost(r#"{"properties":{"a":{"anyOf":[{},{}]}}}"#), Ok(3));
    }

    #[test]
    fn what_meets_at_one_member_is_added() {
        let text = r#"{"properties":{"a":{}},"patternProperties":{"x":{}},"propertyNames":{}}"#;
        assert_eq!(cost(text), Ok(3));
        assert_eq!(cost(r#"{"properties":{"a":{}},"additionalProperties":{}}"#), Ok(1));
        assert_eq!(cost(r#"{"allOf":[{"items":{}},{"prefixItems":[{}],"contains":{}}]}"#), Ok(3));
    }

    #[test]
    fn a_ladder_doubles_at_each_rung() {
        let ladder = |rungs: usize| {
            let rung = |n: usize| {
                let next = format!(r##"{{"$ref":"#/$defs/r{}"}}"##, n + 1);
                format!(r#""r{n}":{{"anyOf":[{next},{next}]}}"#)
            };
            let defs: Vec<String> = (0..rungs).map(rung).collect();
            format!(r##"{{"$ref":"#/$defs/r0","$defs":{{{},"r{rungs}":{{}}}}}}"##, defs.join(","))
        };
        // Each rung: itself, two references, and twice the next.
        assert_eq!(cost(&ladder(1)), Ok(1 + 3 + 2));
        assert_eq!(cost(&ladder(2)), Ok(1 + 3 + 2 * (3 + 2)));
        assert!(cost(&ladder(10)).unwrap() <= MAX_PATHS);
        assert!(cost(&ladder(28)).unwrap() > MAX_PATHS);
    }

    #[test]
    fn recursion_that_moves_on_costs_no_more_at_depth() {
        assert_eq!(cost(r##"{"properties":{"next":{"$ref":"#"}}}"##), Ok(2));
        let tree = r##"{"properties":{"left":{"$ref":"#"},"right":{"$ref":"#"}}}"##;
        assert_eq!(cost(tree), Ok(2));
        let json = r##"{"anyOf":[{"type":"string"},{"items":{"$ref":"#"}},
            {"additionalProperties":{"$ref":"#"}}]}"##;
        assert_eq!(cost(json), Ok(5));
        let syntax = r##"{"properties":{"add":{"properties":{"l":{"$ref":"#"},"r":{"$ref":"#"}}},
            "mul":{"properties":{"l":{"$ref":"#"},"r":{"$ref":"#"}}}}}"##;
        assert_eq!(cost(syntax), Ok(2));
    }

    #[test]
    fn recursion_that_multiplies_at_one_member_is_seen() {
        let twice =
            r##"{"allOf":[{"properties":{"a":{"$ref":"#"}}},{"properties":{"a":{"$ref":"#"}}}]}"##;
        assert!(cost(twice).unwrap() > MAX_PATHS);
        let both = r##"{"properties":{"a":{"$ref":"#"}},"patternProperties":{"a":{"$ref":"#"}}}"##;
        assert!(cost(both).unwrap() > MAX_PATHS);
        let items = r##"{"items":{"$ref":"#"},"contains":{"$ref":"#"}}"##;
        assert!(cost(items).unwrap() > MAX_PATHS);
    }

    #[test]
    fn growth_with_a_power_of_the_depth_is_seen() {
        // Each of the four goes on with itself and the next one: depth to the power of three.
        let next = |own: usize| {
            format!(
                r##""s{own}":{{"allOf":[{{"properties":{{"a":{{"$ref":"#/$defs/s{own}"}}}}}},
                {{"properties":{{"a":{{"$ref":"#/$defs/s{}"}}}}}}]}}"##,
                own + 1
            )
        };
        let defs: Vec<String> = (0..3).map(next).collect();
        let text = format!(r##"{{"$ref":"#/$defs/s0","$defs":{{{},"s3":{{}}}}}}"##, defs.join(","));
        assert!(cost(&text).unwrap() > MAX_PATHS);
    }

    #[test]
    fn circles_without_a_step_are_seen() {
        assert_eq!(cost(r##"{"$ref":"#"}"##), Err(SchemaError::Circle));
        let mutual = r##"{"$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"}]},"b":{"not":{"$ref":"#/$defs/a"}}}}"##;
        assert_eq!(cost(mutual), Err(SchemaError::Circle));
        let diamond = r##"{"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}],"$defs":{"a":{}}}"##;
        assert_eq!(cost(diamond), Ok(5));
    }
}
