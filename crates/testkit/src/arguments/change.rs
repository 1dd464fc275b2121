//! One change of a value at one place: every way to step just over a bound, or to stay just at it.

use portcullis_canon::{Object, Value};

use super::make::number;
use super::walk::Walked;

/// The most places of one value that are changed.
const MOST_PLACES: usize = 40;

/// Texts that follow few patterns and formats; one is no text of base64 either.
const TEXTS: [&str; 6] = ["", " ", "!", "a", "A", "é\u{0}%"];

/// Every value that differs from `value` at one place.
pub(super) fn all(value: &Value, walked: &Walked<'_>, spares: &[Value]) -> Vec<Value> {
    let mut changed = Vec::new();
    for place in places(value) {
        let Some(here) = at(value, &place) else { continue };
        for new in changes(here, walked, spares) {
            changed.push(with(value, &place, new));
        }
    }
    changed
}

/// A step down: the name's or item's place among its neighbours.
type Place = Vec<usize>;

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(object) => object.values().collect(),
        _ => Vec::new(),
    }
}

fn places(value: &Value) -> Vec<Place> {
    let mut found: Vec<Place> = vec![Vec::new()];
    let mut next = 0;
    while let Some(place) = found.get(next).cloned() {
        next += 1;
        let count = at(value, &place).map_or(0, |here| children(here).len());
        found.extend((0..count).map(|step| [place.clone(), vec![step]].concat()));
        if found.len() > MOST_PLACES {
            break;
        }
    }
    found
}

fn at<'a>(value: &'a Value, place: &[usize]) -> Option<&'a Value> {
    let mut here = value;
    for step in place {
        here = children(here).get(*step).copied()?;
    }
    Some(here)
}

fn with(value: &Value, place: &[usize], new: Value) -> Value {
    let Some((step, rest)) = place.split_first() else { return new };
    match value {
        Value::Array(items) => {
            let mut items = items.clone();
            if let Some(item) = items.get_mut(*step) {
                *item = with(item, rest, new);
            }
            Value::Array(items)
        }
        Value::Object(object) => {
            let mut object = object.clone();
            let name = object.keys().nth(*step).map(str::to_owned);
            if let Some(member) = name.as_deref().and_then(|name| object.get_mut(name)) {
                *member = with(member, rest, new);
            }
            Value::Object(object)
        }
        _ => new,
    }
}

fn changes(here: &Value, walked: &Walked<'_>, spares: &[Value]) -> Vec<Value> {
    let mut new = vec![
        Value::Null,
        Value::from(true),
        Value::from(0),
        Value::from(-1),
        Value::from(i64::MAX),
        Value::from(i64::MIN),
        number(0.5),
        Value::Array(Vec::new()),
        Value::Object(Object::new()),
    ];
    new.extend(TEXTS.map(Value::from));
    new.extend(walked.values.iter().map(|value| (*value).clone()));
    new.extend(spares.iter().cloned());
    match here {
        Value::Number(n) => {
            let around = walked.numbers.iter().copied().chain(n.as_f64());
            new.extend(around.flat_map(|at| [-1.0, -0.5, 0.0, 0.5, 1.0].map(|by| number(at + by))));
        }
        Value::String(text) => new.extend(strings(text, walked).into_iter().map(Value::from)),
        Value::Array(items) => {
            new.extend(arrays(items, walked, spares).into_iter().map(Value::Array))
        }
        Value::Object(object) => {
            new.extend(objects(object, walked, spares).into_iter().map(Value::Object))
        }
        Value::Null | Value::Bool(_) => {}
    }
    new
}

/// Lengths at, below and above each bound that the schema names.
fn lengths(walked: &Walked<'_>) -> Vec<usize> {
    let around = walked.lengths.iter().flat_map(|n| [n.saturating_sub(1), *n, n.saturating_add(1)]);
    around.collect()
}

fn strings(text: &str, walked: &Walked<'_>) -> Vec<String> {
    let last = text.chars().last().unwrap_or('a');
    let mut new =
        vec![format!("{text}!"), format!("!{text}"), text.to_uppercase(), format!("{text}{last}")];
    for length in lengths(walked) {
        // Filled up with one, two and four bytes a character: what counts is characters.
        for fill in [last, 'a', 'é', '🔑'] {
            new.push(text.chars().chain(std::iter::repeat(fill)).take(length).collect());
        }
        new.push("!".repeat(length));
        new.push("🔑".repeat(length));
    }
    new
}

fn arrays(items: &[Value], walked: &Walked<'_>, spares: &[Value]) -> Vec<Vec<Value>> {
    let mut new = Vec::new();
    for index in 0..items.len() {
        let mut fewer = items.to_vec();
        fewer.remove(index);
        new.push(fewer);
    }
    let more: Vec<Value> =
        items.iter().chain(spares).cloned().chain([Value::Null, Value::from(7)]).collect();
    for item in &more {
        new.push([items, std::slice::from_ref(item)].concat());
        for length in lengths(walked).into_iter().filter(|length| *length <= 200) {
            // Once with copies, once with items that all differ where numbers may stand.
            let copies = items.iter().cloned().chain(std::iter::repeat(item.clone()));
            new.push(copies.take(length).collect());
            let fresh = (1_000_u64..).map(Value::from);
            new.push(items.iter().cloned().chain(fresh).take(length).collect());
        }
    }
    new
}

fn objects(object: &Object, walked: &Walked<'_>, spares: &[Value]) -> Vec<Object> {
    let mut new = Vec::new();
    for name in object.keys() {
        let mut fewer = object.clone();
        fewer.remove(name);
        new.push(fewer);
    }
    let add = |object: &Object, name: &str, value: &Value| {
        let mut more = object.clone();
        more.insert(name, value.clone());
        more
    };
    let values: Vec<Value> = spares.iter().cloned().chain([Value::Null, Value::from(1)]).collect();
    let odd = ["", "zz", "ZZ", "!", "no such name", "é"];
    for name in odd.iter().copied().chain(walked.names.iter().copied()) {
        new.extend(values.iter().map(|value| add(object, name, value)));
    }
    for length in lengths(walked).into_iter().filter(|length| *length <= 200) {
        let mut grown = object.clone();
        for number in 0..length.saturating_sub(object.len()) {
            grown.insert(format!("more{number}"), Value::from(1));
        }
        let mut shrunk = object.clone();
        while shrunk.len() > length {
            let Some(name) = shrunk.keys().next().map(str::to_owned) else { break };
            shrunk.remove(&name);
        }
        new.extend([grown, shrunk]);
    }
    new
}
