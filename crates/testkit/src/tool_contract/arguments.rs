//! Arguments that nobody means well with: a closed list for each property, and random ones from a seed.

use portcullis_canon::{Object, Value};

use crate::dice::Dice;

/// Texts that have broken programs before: as paths, as names, as patterns, on terminals.
const TEXTS: [&str; 28] = [
    "",
    " ",
    ".",
    "..",
    "/",
    "//",
    "a/../b",
    "../../etc/passwd",
    "/etc/passwd",
    "/proc/self/environ",
    "~/.ssh/id_rsa",
    "-rf",
    "a\0b",
    "a\nb",
    "\u{1b}[2J\u{1b}]0;x\u{7}",
    "\u{202e}gpj.exe",
    "\u{feff}",
    "\u{0}",
    "İ",
    "e\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}",
    "\u{10ffff}",
    "$(reboot)`reboot`;reboot|reboot&",
    "%s%n%x",
    "{{7*7}}",
    "' OR 1=1 --",
    "C:\\Windows\\x",
    "null",
    "sha256:0000000000000000000000000000000000000000000000000000000000000000",
];

/// One value of each other kind, and numbers at their edges.
fn odd_values() -> Vec<Value> {
    vec![
        Value::Null,
        Value::from(true),
        Value::from(0_u64),
        Value::from(-1_i64),
        Value::from(i64::MIN),
        Value::from(u64::MAX),
        Value::Array(Vec::new()),
        Value::Object(Object::new()),
        Value::from("x".repeat(5_000)),
        Value::from("d/".repeat(2_500) + "d"),
    ]
}

/// Each property of a valid call in turn left out and replaced by every hostile value, and one property too many.
pub(super) fn listed(valid: &Object, properties: &[String]) -> Vec<Object> {
    let mut all = vec![Object::new()];
    for name in properties {
        let mut without = valid.clone();
        without.remove(name);
        all.push(without);
        let values = TEXTS.map(Value::from).into_iter().chain(odd_values());
        all.extend(values.map(|value| with(valid, name, value)));
    }
    all.push(with(valid, "no such property", Value::Null));
    all
}

/// A valid call in which some properties are random.
pub(super) fn rolled(valid: &Object, properties: &[String], dice: &mut Dice) -> Object {
    let mut object = valid.clone();
    for name in properties {
        match dice.below(4) {
            0 => {
                object.insert(name.as_str(), text(dice));
            }
            1 => {
                if let Some(value) = dice.pick(&odd_values()) {
                    object.insert(name.as_str(), value.clone());
                }
            }
            2 => {
                // A neighbour's value: well-formed, and not what was meant.
                let values: Vec<_> = valid.values().cloned().collect();
                if let Some(value) = dice.pick(&values) {
                    object.insert(name.as_str(), value.clone());
                }
            }
            _ => {}
        }
    }
    object
}

fn text(dice: &mut Dice) -> String {
    let mut text = String::new();
    for _ in 0..dice.below(6) {
        match dice.below(3) {
            0 => text.push_str(dice.pick(&TEXTS).copied().unwrap_or_default()),
            1 => text.push('/'),
            _ => {
                let code = u32::try_from(dice.below(0x11_0000)).unwrap_or_default();
                text.extend(char::from_u32(code));
            }
        }
    }
    text
}

fn with(object: &Object, name: &str, value: Value) -> Object {
    let mut changed = object.clone();
    changed.insert(name, value);
    changed
}
