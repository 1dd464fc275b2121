//! Making a value for a schema, with luck a valid one: who asks checks it.

use portcullis_canon::{Number, Object, Value};
use regex_syntax::hir::{Class, Hir, HirKind};

use crate::dice::Dice;

/// The deepest nesting that is made.
const MOST_DEPTH: usize = 8;

/// How often one more is made where all have to differ.
const TRIES: usize = 20;

/// One text for each format.
const FORMATS: [(&str, &str); 19] = [
    ("date-time", "2026-02-03T04:05:06Z"),
    ("date", "2026-02-03"),
    ("time", "04:05:06Z"),
    ("duration", "P1D"),
    ("email", "ann@example.org"),
    ("idn-email", "ann@example.org"),
    ("hostname", "example.org"),
    ("idn-hostname", "example.org"),
    ("ipv4", "192.0.2.1"),
    ("ipv6", "2001:db8::1"),
    ("uri", "https://example.org/a"),
    ("uri-reference", "/a"),
    ("iri", "https://example.org/a"),
    ("iri-reference", "/a"),
    ("uri-template", "/a/{b}"),
    ("uuid", "2eb8aa08-aa98-11ea-b4aa-73b441d16380"),
    ("json-pointer", "/a/0"),
    ("relative-json-pointer", "1/a"),
    ("regex", "a+"),
];

/// A value for the whole schema.
pub(super) fn make(root: &Value, dice: &mut Dice) -> Value {
    part(root, root, dice)
}

/// A value for one part of the schema.
pub(super) fn part(root: &Value, schema: &Value, dice: &mut Dice) -> Value {
    Maker { root, dice, depth: 0 }.value(schema)
}

struct Maker<'a, 'd> {
    root: &'a Value,
    dice: &'d mut Dice,
    depth: usize,
}

/// Schemas that all have to be kept at one place, with branches chosen.
type Parts<'s> = Vec<&'s Object>;

fn numbers<'s>(parts: &'s Parts<'_>, keyword: &'s str) -> impl Iterator<Item = f64> + 's {
    parts.iter().filter_map(move |part| part.get(keyword)?.as_number()?.as_f64())
}

fn most(parts: &Parts<'_>, keyword: &str) -> Option<usize> {
    let all = parts.iter().filter_map(|part| part.get(keyword)?.as_u64());
    all.min().and_then(|least| usize::try_from(least).ok())
}

fn least(parts: &Parts<'_>, keyword: &str) -> usize {
    let all = parts.iter().filter_map(|part| part.get(keyword)?.as_u64());
    all.max().and_then(|most| usize::try_from(most).ok()).unwrap_or(0)
}

fn texts<'s>(parts: &Parts<'s>, keyword: &str) -> Vec<&'s str> {
    let lists = parts.iter().filter_map(|part| part.get(keyword)?.as_array());
    lists.flatten().filter_map(Value::as_str).collect()
}

fn both(schemas: Vec<Value>) -> Value {
    let mut object = Object::new();
    object.insert("allOf", schemas);
    Value::Object(object)
}

impl Maker<'_, '_> {
    fn value(&mut self, schema: &Value) -> Value {
        if self.depth >= MOST_DEPTH {
            return Value::Null;
        }
        self.depth += 1;
        let root = self.root.clone();
        let mut parts = Parts::new();
        self.gather(&root, schema, &mut parts, 0);
        let value = self.of(&parts);
        self.depth -= 1;
        value
    }

    /// The schema and all that it stands for at its own place; of branches one.
    fn gather<'s>(
        &mut self,
        root: &'s Value,
        schema: &'s Value,
        parts: &mut Parts<'s>,
        depth: u32,
    ) {
        let Some(object) = schema.as_object().filter(|_| depth < 32) else { return };
        parts.push(object);
        let deeper = depth.saturating_add(1);
        if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
            let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
            target.into_iter().for_each(|target| self.gather(root, target, parts, deeper));
        }
        for branch in object.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            self.gather(root, branch, parts, deeper);
        }
        for keyword in ["anyOf", "oneOf"] {
            let branches = object.get(keyword).and_then(Value::as_array).unwrap_or_default();
            if let Some(branch) = self.dice.pick(branches) {
                self.gather(root, branch, parts, deeper);
            }
        }
        let taken = if self.dice.below(2) == 0 { ["if", "then"] } else { ["else", "else"] };
        for keyword in taken {
            object.get(keyword).into_iter().for_each(|s| self.gather(root, s, parts, deeper));
        }
    }

    fn of(&mut self, parts: &Parts<'_>) -> Value {
        if let Some(value) = parts.iter().find_map(|part| part.get("const")) {
            return value.clone();
        }
        if let Some(values) = parts.iter().find_map(|part| part.get("enum")?.as_array()) {
            return self.dice.pick(values).cloned().unwrap_or_default();
        }
        match self.kind(parts) {
            "object" => self.object(parts),
            "array" => self.array(parts),
            "string" => Value::from(self.string(parts)),
            "integer" => self.number(parts, true),
            "number" => self.number(parts, false),
            "boolean" => Value::from(self.dice.below(2) == 0),
            _ => Value::Null,
        }
    }

    /// The type: one that all name, or that a keyword is about, or any.
    fn kind(&mut self, parts: &Parts<'_>) -> &'static str {
        const ALL: [&str; 7] =
            ["object", "array", "string", "integer", "number", "boolean", "null"];
        let fits = |kind: &&'static str| {
            parts.iter().filter_map(|part| part.get("type")).all(|named| match named {
                Value::String(name) => name == kind || (*kind == "integer" && name == "number"),
                Value::Array(names) => names.iter().any(|name| {
                    let name = name.as_str();
                    name == Some(kind) || (*kind == "integer" && name == Some("number"))
                }),
                _ => true,
            })
        };
        let named = parts.iter().any(|part| part.contains_key("type"));
        let has = |keywords: &[&str]| {
            parts.iter().any(|part| keywords.iter().any(|keyword| part.contains_key(keyword)))
        };
        let about = [
            (
                "object",
                has(&[
                    "properties",
                    "required",
                    "minProperties",
                    "maxProperties",
                    "propertyNames",
                    "patternProperties",
                    "additionalProperties",
                    "dependentRequired",
                    "dependentSchemas",
                    "dependencies",
                    "unevaluatedProperties",
                ]),
            ),
            (
                "array",
                has(&[
                    "items",
                    "prefixItems",
                    "minItems",
                    "maxItems",
                    "uniqueItems",
                    "contains",
                    "additionalItems",
                    "unevaluatedItems",
                ]),
            ),
            ("string", has(&["minLength", "maxLength", "pattern", "format", "contentEncoding"])),
            (
                "number",
                has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]),
            ),
        ];
        let meant: Vec<&'static str> =
            about.iter().filter(|(kind, is)| *is && fits(kind)).map(|(kind, _)| *kind).collect();
        if let (false, Some(kind)) = (named, self.dice.pick(&meant)) {
            return kind;
        }
        let kinds: Vec<&'static str> = ALL.into_iter().filter(fits).collect();
        self.dice.pick(&kinds).copied().unwrap_or("null")
    }

    fn number(&mut self, parts: &Parts<'_>, whole: bool) -> Value {
        let mut low = numbers(parts, "minimum").fold(f64::NEG_INFINITY, f64::max);
        let mut high = numbers(parts, "maximum").fold(f64::INFINITY, f64::min);
        let step = numbers(parts, "multipleOf").fold(0.0, f64::max);
        let step = if step > 0.0 { step } else { 1.0 };
        let whole = whole || step.fract() == 0.0;
        let grain = if whole { step } else { step / 4.0 };
        for limit in numbers(parts, "exclusiveMinimum") {
            low = low.max(limit + grain);
        }
        for limit in numbers(parts, "exclusiveMaximum") {
            high = high.min(limit - grain);
        }
        let near = match (low.is_finite(), high.is_finite()) {
            (true, true) if self.dice.below(2) == 0 => low,
            (_, true) => high,
            (true, false) => low,
            (false, false) => 0.0,
        };
        let drawn = u32::try_from(self.dice.below(4)).unwrap_or(0);
        let away = if near == low { f64::from(drawn) } else { -f64::from(drawn) };
        let at = (near + away * step).clamp(low, high);
        let at = if numbers(parts, "multipleOf").next().is_some() || whole {
            let down = (at / step).floor() * step;
            if down < low { down + step } else { down }
        } else {
            at
        };
        number(at)
    }

    fn string(&mut self, parts: &Parts<'_>) -> String {
        let (low, high) = (least(parts, "minLength"), most(parts, "maxLength"));
        if let Some(pattern) = parts.iter().find_map(|part| part.get("pattern")?.as_str()) {
            for _ in 0..TRIES {
                let text = self.text_for(pattern);
                let count = text.chars().count();
                if count >= low && high.is_none_or(|high| count <= high) {
                    return text;
                }
            }
        }
        let format = parts.iter().find_map(|part| part.get("format")?.as_str());
        if let Some((_, text)) = FORMATS.iter().find(|(name, _)| Some(*name) == format) {
            return (*text).to_owned();
        }
        if parts.iter().any(|part| part.contains_key("contentEncoding")) {
            return "cG9ydA==".to_owned();
        }
        let span = high.unwrap_or(low.saturating_add(8)).saturating_sub(low).min(64);
        let count = low.saturating_add(self.dice.below(span.saturating_add(1)));
        // One, two, three and four bytes.
        (0..count).filter_map(|_| self.dice.pick(&['a', 'é', '中', '🔑']).copied()).collect()
    }

    /// A text that the pattern matches, as far as it can be made.
    fn text_for(&mut self, pattern: &str) -> String {
        let mut out = String::new();
        if let Ok(hir) = regex_syntax::parse(pattern) {
            self.spell(&hir, &mut out);
        }
        out
    }

    fn spell(&mut self, hir: &Hir, out: &mut String) {
        match hir.kind() {
            HirKind::Empty | HirKind::Look(_) => {}
            HirKind::Literal(literal) => out.push_str(&String::from_utf8_lossy(&literal.0)),
            HirKind::Class(Class::Unicode(class)) => {
                let ranges: Vec<(char, char)> =
                    class.iter().map(|r| (r.start(), r.end())).collect();
                // Printable ones first, where there are any.
                let plain: Vec<_> =
                    ranges.iter().filter(|r| (' '..='~').contains(&r.0)).copied().collect();
                let from = if plain.is_empty() { &ranges } else { &plain };
                if let Some((start, end)) = self.dice.pick(from).copied() {
                    out.push(if self.dice.below(2) == 0 { start } else { end.min('~').max(start) });
                }
            }
            HirKind::Class(Class::Bytes(class)) => {
                out.extend(class.iter().next().map(|range| char::from(range.start())));
            }
            HirKind::Repetition(repetition) => {
                let span =
                    repetition.max.map_or(3, |max| max.saturating_sub(repetition.min)).min(8);
                let span = usize::try_from(span).unwrap_or(0);
                let times = usize::try_from(repetition.min).unwrap_or(0).min(5_000);
                for _ in 0..times.saturating_add(self.dice.below(span.saturating_add(1))) {
                    self.spell(&repetition.sub, out);
                }
            }
            HirKind::Capture(capture) => self.spell(&capture.sub, out),
            HirKind::Concat(all) => all.iter().for_each(|hir| self.spell(hir, out)),
            HirKind::Alternation(all) => {
                if let Some(hir) = self.dice.pick(all) {
                    self.spell(hir, out);
                }
            }
        }
    }

    fn array(&mut self, parts: &Parts<'_>) -> Value {
        let (low, high) = (least(parts, "minItems"), most(parts, "maxItems"));
        let placed = |part: &&Object| {
            let prefix = part.get("prefixItems").or_else(|| part.get("items"));
            prefix.and_then(Value::as_array).map(<[Value]>::to_vec)
        };
        let first: Vec<Value> = parts.iter().find_map(placed).unwrap_or_default();
        let rest: Vec<Value> = parts
            .iter()
            .flat_map(|part| [part.get("items"), part.get("additionalItems")])
            .flatten()
            .filter(|schema| schema.as_array().is_none())
            .cloned()
            .collect();
        let closed = rest.contains(&Value::from(false));
        let wanted: Vec<(Value, usize)> = parts
            .iter()
            .filter_map(|part| Some((part.get("contains")?.clone(), part)))
            .map(|(schema, part)| {
                (schema, part.get("minContains").map_or(1, |_| least(&vec![*part], "minContains")))
            })
            .collect();
        let unique = parts.iter().any(|part| part.get("uniqueItems") == Some(&Value::from(true)));
        let span = high.unwrap_or(low.saturating_add(3)).saturating_sub(low).min(8);
        let mut count = low.saturating_add(self.dice.below(span.saturating_add(1)));
        let wish: usize = wanted.iter().map(|(_, times)| *times).sum();
        count = count.max(wish).min(high.unwrap_or(usize::MAX));
        if closed {
            count = count.min(first.len());
        }
        let mut asked =
            wanted.iter().flat_map(|(schema, times)| std::iter::repeat_n(schema, *times));
        let mut items: Vec<Value> = Vec::new();
        for index in 0..count {
            let mut schemas =
                first.get(index).map_or_else(|| rest.clone(), |one| vec![one.clone()]);
            schemas.extend(asked.next().cloned());
            let schema = both(schemas);
            let mut item = self.value(&schema);
            for _ in 0..TRIES {
                if !unique || !items.contains(&item) {
                    break;
                }
                item = self.value(&schema);
            }
            items.push(item);
        }
        Value::Array(items)
    }

    fn object(&mut self, parts: &Parts<'_>) -> Value {
        let mut names: Vec<String> =
            texts(parts, "required").into_iter().map(str::to_owned).collect();
        let optional = parts.iter().filter_map(|part| part.get("properties")?.as_object());
        for name in optional.flat_map(Object::keys) {
            if self.dice.below(2) == 0 {
                names.push(name.to_owned());
            }
        }
        self.dependents(parts, &mut names);
        let low = least(parts, "minProperties");
        for _ in 0..low.saturating_add(self.dice.below(2)).saturating_mul(2) {
            names.sort();
            names.dedup();
            if names.len() > low {
                break;
            }
            names.extend(self.name(parts));
        }
        let mut object = Object::new();
        for name in names {
            let schema = both(members(parts, &name));
            let value = self.value(&schema);
            object.insert(name, value);
        }
        Value::Object(object)
    }

    /// Adds the names that others need.
    fn dependents(&mut self, parts: &Parts<'_>, names: &mut Vec<String>) {
        for _ in 0..4 {
            for keyword in ["dependentRequired", "dependencies"] {
                let lists = parts.iter().filter_map(|part| part.get(keyword)?.as_object());
                for (_, needed) in lists
                    .flatten()
                    .filter(|(name, _)| names.iter().any(|n| n == name))
                    .collect::<Vec<_>>()
                {
                    let needed = needed.as_array().into_iter().flatten().filter_map(Value::as_str);
                    names.extend(needed.map(str::to_owned));
                }
            }
            names.sort();
            names.dedup();
        }
    }

    /// A name that no property has.
    fn name(&mut self, parts: &Parts<'_>) -> Option<String> {
        let patterns: Vec<&str> = parts
            .iter()
            .filter_map(|part| part.get("patternProperties")?.as_object())
            .flat_map(Object::keys)
            .collect();
        if let Some(pattern) = self.dice.pick(&patterns) {
            return Some(self.text_for(pattern));
        }
        if let Some(schema) = parts.iter().find_map(|part| part.get("propertyNames")) {
            let mut object = Object::from_iter([("type", "string")]);
            for (keyword, value) in schema.as_object().into_iter().flatten() {
                object.insert(keyword, value.clone());
            }
            return self.value(&Value::Object(object)).as_str().map(str::to_owned);
        }
        Some(format!("p{}", self.dice.below(100)))
    }
}

/// The schemas of the member with that name.
fn members(parts: &Parts<'_>, name: &str) -> Vec<Value> {
    let mut schemas = Vec::new();
    for part in parts {
        let named = part.get("properties").and_then(|all| all.get(name));
        let patterned = part.get("patternProperties").and_then(Value::as_object);
        // Which pattern matches is for the validator to say: where a name has no property, all are tried.
        let patterned = patterned.filter(|_| named.is_none()).into_iter().flat_map(Object::values);
        schemas.extend(named.cloned());
        let before = schemas.len();
        schemas.extend(patterned.cloned());
        if named.is_none() && schemas.len() == before {
            schemas.extend(part.get("additionalProperties").cloned());
        }
    }
    schemas
}

/// The number, as an integer where it is one.
pub(super) fn number(at: f64) -> Value {
    Number::from_f64(at).map_or(Value::from(0), Value::from)
}
