//! Render equality: what a person is shown and what runs are the same bytes, and no text in it moves a terminal, forges a
//! line, or looks like another.
//!
//! A host that shows questions in a way of its own hands over how it renders a card.
//!
//! ```
//! use portcullis_canon::{Object, sanitize};
//! use portcullis_domain::question::Card;
//! use portcullis_testkit::render::{card, findings};
//!
//! let shown = card("mail.send", Object::from_iter([("to", "ann"), ("text", "The report.")]));
//!
//! // Each value on a line of its own, as JSON, and made safe.
//! let good = |card: &Card| {
//!     let lines = card.arguments.iter().map(|(name, value)| {
//!         let name = portcullis_canon::Value::from(name).to_canonical_string();
//!         format!("  | {}: {}", sanitize::line(&name), sanitize::line(&value.to_canonical_string()))
//!     });
//!     format!("tool: {}\n{}", card.tool, lines.collect::<Vec<_>>().join("\n"))
//! };
//! assert!(findings(&shown, &good).is_empty());
//!
//! // As they are: a value can do with the terminal what it likes.
//! let bad = |card: &Card| {
//!     let values = card.arguments.values().filter_map(|value| value.as_str());
//!     format!("tool: {}\n{}", card.tool, values.collect::<Vec<_>>().join("\n"))
//! };
//! assert!(findings(&shown, &bad).iter().any(|text| text.contains("moves the terminal")));
//! ```

use portcullis_canon::{Digest, Limits, Object, Value, parse, sanitize};
use portcullis_domain::question::Card;
use portcullis_domain::tool::EffectClass;

/// Texts that a terminal, a browser or an eye takes for something else.
const HOSTILE: [(&str, &str); 16] = [
    ("an escape that clears", "\u{1b}[2J\u{1b}[H"),
    ("an escape that moves up", "\u{1b}[1A\u{1b}[2K"),
    ("an escape that sets a title", "\u{1b}]0;approved\u{7}"),
    ("an escape of one byte", "\u{9b}2J"),
    ("a return to the line's start", "\r"),
    ("a step back", "\u{8}\u{8}"),
    ("a tab up", "\u{b}"),
    ("a bell", "\u{7}"),
    ("a deletion", "\u{7f}"),
    ("a zero", "\u{0}"),
    ("a change of direction", "\u{202e}"),
    ("an isolated change of direction", "\u{2066}"),
    ("a character without width", "\u{200b}"),
    ("a tag that nobody sees", "\u{e0041}"),
    ("a separator of lines", "\u{2028}"),
    ("a mark of byte order", "\u{feff}"),
];

/// Values that have to be shown in different ways.
const LOOKALIKES: [(&str, &str); 7] = [
    ("a", "a "),
    ("a", "a\u{200b}"),
    ("a b", "a\u{a0}b"),
    ("a\nb", "a\\nb"),
    ("a\u{1b}b", "a\\u001bb"),
    ("ab", "a\u{202e}b"),
    ("1", "\"1\""),
];

/// Whether the arguments on a card, as its bytes are stored and shown, are byte for byte those that run.
///
/// # Errors
/// One sentence: the bytes are no card, or what differs.
///
/// ```
/// use portcullis_canon::Object;
/// use portcullis_testkit::permit::permit_for;
/// use portcullis_testkit::render::{card, same_bytes};
///
/// let arguments = Object::from_iter([("to", "ann")]);
/// let shown = card("mail.send", arguments.clone()).to_canonical();
/// let permit = permit_for("mail.send", arguments);
/// assert_eq!(same_bytes(&shown, permit.tool(), permit.arguments()), Ok(()));
/// let other = permit_for("mail.send", Object::from_iter([("to", "ann ")]));
/// assert!(same_bytes(&shown, other.tool(), other.arguments()).is_err());
/// ```
pub fn same_bytes(shown: &[u8], tool: &str, arguments: &Object) -> Result<(), String> {
    let value =
        parse(shown, &Limits::ENVELOPE).map_err(|error| format!("it is no card: {error}"))?;
    if value.to_canonical() != shown {
        return Err("the card is not in canonical form".to_owned());
    }
    if value.get("tool").and_then(Value::as_str) != Some(tool) {
        return Err(format!("the card names another tool than `{tool}`"));
    }
    let on_card = value.get("arguments").map(Value::to_canonical);
    if on_card.as_deref() == Some(arguments.to_canonical().as_slice()) {
        Ok(())
    } else {
        Err(format!(
            "the card shows other arguments than run: {}",
            Value::from(arguments.clone()).to_canonical_string()
        ))
    }
}

/// A card for a call of this tool with these arguments.
#[must_use]
pub fn card(tool: &str, arguments: Object) -> Card {
    Card {
        capability: tool.to_owned(),
        tool: tool.to_owned(),
        arguments,
        spec: Digest::ZERO,
        effect: EffectClass::RemoteMutation,
        source: false,
        sink: true,
        authority: Vec::new(),
        target: None,
        sandbox: None,
        rules: Vec::new(),
        reviewers: None,
    }
}

/// What is wrong with a way to render cards: nothing, when it shows every text so that
///
/// - it moves no terminal: no control character but line ends, nothing invisible, nothing that changes direction;
/// - it forges no line: no value makes a line appear once more that the rendering has of itself;
/// - it hides no difference: arguments that differ are shown differently.
///
/// Every text of `card`'s arguments, and the name of one, is tried in turn.
pub fn findings(card: &Card, render: &dyn Fn(&Card) -> String) -> Vec<String> {
    let mut findings = Vec::new();
    let plain = render(card);
    findings
        .extend(moves(&plain).map(|what| format!("the card itself moves the terminal: {what}")));
    let names: Vec<String> = text_names(card);
    if names.is_empty() {
        findings.push("the card has no text among its arguments, so nothing was tried".to_owned());
    }
    for name in &names {
        findings.extend(terminal(card, name, render));
        findings.extend(forged(card, name, &plain, render));
        findings.extend(hidden(card, name, render));
    }
    for (what, text) in HOSTILE {
        let mut named = card.clone();
        named.arguments.insert(format!("name{text}"), 1_u64);
        let moved = moves(&render(&named));
        findings.extend(moved.map(|how| format!("{what} in a name moves the terminal: {how}")));
    }
    findings
}

/// Fails the running test with every finding.
///
/// # Panics
/// When there is one.
#[expect(clippy::panic, reason = "this is how a test fails")]
#[track_caller]
pub fn assert_faithful(card: &Card, render: &dyn Fn(&Card) -> String) {
    let findings = findings(card, render);
    if !findings.is_empty() {
        panic!("the rendering is not faithful:\n{}", findings.join("\n"));
    }
}

fn text_names(card: &Card) -> Vec<String> {
    let texts = card.arguments.iter().filter(|(_, value)| value.as_str().is_some());
    texts.map(|(name, _)| name.to_owned()).collect()
}

fn with(card: &Card, name: &str, text: &str) -> Card {
    let mut changed = card.clone();
    changed.arguments.insert(name, text);
    changed
}

/// The first character that is not for a terminal, as a number. The sanitiser of `canon` says which those are.
fn moves(shown: &str) -> Option<String> {
    let mut bad = shown.chars().filter(|character| *character != '\n').filter(|character| {
        let text = character.to_string();
        sanitize::line(&text) != text
    });
    bad.next().map(|character| format!("U+{:04X}", u32::from(character)))
}

fn terminal(card: &Card, name: &str, render: &dyn Fn(&Card) -> String) -> Vec<String> {
    let tried = HOSTILE.iter().filter_map(|(what, text)| {
        let how = moves(&render(&with(card, name, &format!("a{text}b"))))?;
        Some(format!("{what} in `{name}` moves the terminal: {how}"))
    });
    tried.collect()
}

/// Lines of the rendering, each put into a value behind a line end, in three spellings of that.
fn forged(card: &Card, name: &str, plain: &str, render: &dyn Fn(&Card) -> String) -> Vec<String> {
    let count = |text: &str, line: &str| text.lines().filter(|other| *other == line).count();
    let mut found = Vec::new();
    // Without the value itself: a line that shows it is not the renderer's own.
    let bare = render(&with(card, name, "x"));
    for line in plain.lines().filter(|line| !line.trim().is_empty() && count(&bare, line) > 0) {
        for end in ["\n", "\r\n", "\u{2028}"] {
            let forged = render(&with(card, name, &format!("x{end}{line}{end}x")));
            if count(&forged, line) > count(&bare, line) {
                found.push(format!("`{name}` can forge the line `{line}`"));
                break;
            }
        }
    }
    found
}

fn hidden(card: &Card, name: &str, render: &dyn Fn(&Card) -> String) -> Vec<String> {
    let pairs = LOOKALIKES
        .iter()
        .filter(|(one, other)| render(&with(card, name, one)) == render(&with(card, name, other)));
    pairs.map(|(one, other)| format!("`{name}` shows {one:?} and {other:?} alike")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown() -> Card {
        card("mail.send", Object::from_iter([("to", "ann"), ("text", "The report.")]))
    }

    /// One value a line, each made by `value`.
    fn lines(card: &Card, value: &dyn Fn(&Value) -> String) -> String {
        let lines = card
            .arguments
            .iter()
            .map(|(name, v)| format!("  | {}: {}", sanitize::line(name), value(v)));
        format!(
            "tool: {}\n{}\nend of the question\n",
            card.tool,
            lines.collect::<Vec<_>>().join("\n")
        )
    }

    fn text(value: &Value) -> &str {
        value.as_str().unwrap_or_default()
    }

    #[test]
    fn a_faithful_rendering_passes() {
        let quoted = |value: &Value| sanitize::line(&value.to_canonical_string()).into_owned();
        assert_faithful(&shown(), &|card| lines(card, &quoted));
    }

    #[test]
    fn each_way_to_be_unfaithful_is_found() {
        let of = |value: &dyn Fn(&Value) -> String| findings(&shown(), &|card| lines(card, value));
        let has = |found: &[String], text: &str| found.iter().any(|finding| finding.contains(text));

        let raw = of(&|value| text(value).to_owned());
        assert!(has(&raw, "an escape that clears in `to` moves the terminal: U+001B"), "{raw:?}");
        assert!(has(&raw, "`text` can forge the line `tool: mail.send`"), "{raw:?}");

        // Safe for a terminal, and lines can be forged all the same.
        let by_line = |value: &Value| {
            let safe = text(value).lines().map(|line| sanitize::line(line).into_owned());
            safe.collect::<Vec<_>>().join("\n")
        };
        let forged = of(&by_line);
        assert!(has(&forged, "can forge the line `end of the question`"), "{forged:?}");
        assert!(!has(&forged, "moves the terminal"), "{forged:?}");

        // What is left out is a difference that nobody sees.
        let plain = |value: &Value| text(value).chars().filter(|c| c.is_ascii_graphic()).collect();
        let hidden = of(&plain);
        assert!(has(&hidden, "`to` shows \"a\" and \"a \" alike"), "{hidden:?}");
        assert!(!has(&hidden, "forge"), "{hidden:?}");

        let nothing = findings(&card("mail.send", Object::new()), &|_| String::new());
        assert!(has(&nothing, "nothing was tried"), "{nothing:?}");
    }

    /// Without this, a hostile text that the sanitiser lets through would try nothing.
    #[test]
    fn every_hostile_text_is_one() {
        for (what, text) in HOSTILE {
            assert!(moves(&format!("a{text}b")).is_some(), "{what}");
        }
        assert_eq!(moves("plain, é 中 🔑\n"), None);
    }

    #[test]
    fn a_card_of_other_bytes_is_told() {
        let arguments = Object::from_iter([("to", "ann")]);
        let bytes = card("mail.send", arguments.clone()).to_canonical();
        assert_eq!(same_bytes(&bytes, "mail.send", &arguments), Ok(()));
        let told = |bytes: &[u8], tool: &str, arguments: &Object| {
            same_bytes(bytes, tool, arguments).unwrap_err()
        };
        assert!(told(&bytes, "mail.read", &arguments).contains("another tool"));
        let other = Object::from_iter([("to", "ben")]);
        assert!(told(&bytes, "mail.send", &other).contains("other arguments than run"));
        assert!(told(b"{", "mail.send", &arguments).contains("no card"));
        let spaced = [b" ".as_slice(), &bytes].concat();
        assert!(told(&spaced, "mail.send", &arguments).contains("canonical"));
    }
}
