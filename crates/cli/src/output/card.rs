//! The question as a person sees it, in a layout that nothing in it can move or imitate.
//!
//! Every row of foreign text stands behind a bar, is sanitised, and is cut to the terminal's width by us, so
//! that none begins at the left edge. The number of rows is bounded. The last block is ours alone.

use std::borrow::Cow;

use portcullis_canon::{Object, Value, sanitize};
use portcullis_domain::observation::Failure;
use portcullis_domain::question::{Card, Question, QuestionKind};
use portcullis_domain::run::Run;
use portcullis_domain::time::Timestamp;
use portcullis_domain::tool::EffectClass;
use portcullis_domain::verdict::OnRejection;

use super::text;

/// Where the bar of a quoted row stands.
const LABEL_COLUMNS: usize = 16;

/// The most values that are shown of the arguments.
const MAX_VALUES: usize = 200;

/// The most rows that arguments or rules take.
const MAX_ROWS: usize = 400;

/// The most bytes that are shown of a pointer.
const MAX_POINTER_BYTES: usize = 200;

/// Everything that the layout shows.
pub(crate) struct Asked<'a> {
    pub(crate) question: &'a Question,
    pub(crate) run: &'a Run,
    /// The step's place in its run, from zero.
    pub(crate) step: u64,
    /// When the call was started, if it was.
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) card: &'a Card,
    /// Bytes of the card as it is stored.
    pub(crate) card_bytes: usize,
    /// One sentence about an outcome that is not known, or why it cannot be shown.
    pub(crate) detail: Option<Result<Cow<'a, str>, &'static str>>,
    /// The run's goal, or why it cannot be shown.
    pub(crate) goal: Result<Cow<'a, str>, &'static str>,
    /// The agent's stated reason.
    pub(crate) reason: Option<&'a str>,
    /// Why it is asked although somebody said yes before.
    pub(crate) again: Option<&'static str>,
}

/// The question, row by row, for a terminal of so many columns.
pub(crate) fn render(asked: &Asked<'_>, columns: usize) -> Vec<String> {
    let mut sheet = Sheet { rows: Vec::new(), columns };
    sheet.rows.push(format!("QUESTION {}", asked.question.id));
    sheet.rows.push("Rows behind a bar are quoted; this program did not write them.".to_owned());
    sheet.rows.push(String::new());
    sheet.where_and_when(asked);
    sheet.call(asked.card);
    let left_out = sheet.arguments(&asked.card.arguments, &asked.card.authority, asked.card_bytes);
    sheet.rules(&asked.card.rules);
    sheet.words(asked);
    sheet.close(asked, left_out);
    sheet.rows
}

struct Sheet {
    rows: Vec<String>,
    columns: usize,
}

/// What of the arguments is not on the sheet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LeftOut {
    bytes: usize,
    values: usize,
}

/// A time span in seconds, exact.
fn seconds(ms: u64) -> String {
    format!("{}.{:03} s", ms / 1_000, ms % 1_000)
}

impl Sheet {
    /// A row of our own.
    fn own(&mut self, label: &str, value: &str) {
        self.rows.push(format!("  {label:<LABEL_COLUMNS$}{value}"));
    }

    fn bar(&mut self, label: &str, row: &str) {
        let width = LABEL_COLUMNS.saturating_sub(2);
        self.rows.push(format!("  {label:<width$}| {row}"));
    }

    /// Columns behind the bar.
    fn room(&self) -> usize {
        self.columns.saturating_sub(LABEL_COLUMNS.saturating_add(2))
    }

    /// A short foreign text.
    fn name(&mut self, label: &str, text: &str) {
        let line = text::one_line(text, text::MAX_FIELD_BYTES);
        for (at, piece) in text::wrap(&line, self.room()).into_iter().enumerate() {
            self.bar(if at == 0 { label } else { "" }, piece);
        }
    }

    fn where_and_when(&mut self, asked: &Asked<'_>) {
        let question = asked.question;
        self.own(
            "asks",
            match question.kind {
                QuestionKind::Approval => "may this call happen?",
                QuestionKind::UnknownOutcome => {
                    "did this call happen? It was started, and what became of it is not known"
                }
            },
        );
        if let Some(why) = asked.again {
            self.own("asked again", why);
        }
        self.own("run", &question.run.to_string());
        if let Some(parent) = asked.run.parent {
            self.own("started by", &parent.to_string());
        }
        self.own("step", &asked.step.to_string());
        self.own("asked", &question.asked_at.to_string());
        let expires = question.expires_at.map_or_else(|| "never".to_owned(), |at| at.to_string());
        self.own("expires", &expires);
        if let (QuestionKind::Approval, Some(ttl)) = (question.kind, question.grant_ttl_ms) {
            self.own("usable", &format!("for {} after the last yes", seconds(ttl)));
        }
        if question.kind == QuestionKind::UnknownOutcome {
            let started =
                asked.started_at.map_or_else(|| "not known".to_owned(), |at| at.to_string());
            self.own("started", &started);
            self.own("cause", question.cause.map_or("not known", Failure::as_str));
            match &asked.detail {
                Some(Ok(detail)) => self.name("detail", detail),
                Some(Err(why)) => self.own("detail", why),
                None => {}
            }
        }
        let (needed, yes) = (question.reviewers.count, question.yes);
        let people = if needed == 1 { "person" } else { "different people" };
        self.own("needs", &format!("{needed} {people} of the role below; {yes} said yes so far"));
        self.name("role", &question.reviewers.role);
        self.name("run's owner", &asked.run.owner);
        self.name("agent", &asked.run.agent);
        if asked.run.unconfined_agent {
            self.own("warning", "the agent runs without confinement");
        }
    }

    fn call(&mut self, card: &Card) {
        self.name("tool", &card.tool);
        self.name("capability", &card.capability);
        if let Some(target) = &card.target {
            self.name("acts on", target);
        }
        self.own(
            "effect",
            match card.effect {
                EffectClass::ReadOnly => "read_only: changes nothing",
                EffectClass::LocalMutation => {
                    "local_mutation: changes something on this machine that can be put back"
                }
                EffectClass::RemoteMutation => "remote_mutation: changes something elsewhere",
                EffectClass::Destructive => "destructive: destroys something",
            },
        );
        if card.source {
            self.own("source", "what comes back carries content from outside");
        }
        if card.sink {
            self.own("sink", "the call sends or changes something");
        }
        self.own("tool spec", &card.spec.to_string());
        let sandbox = card
            .sandbox
            .map_or_else(|| "none, runs inside this program".to_owned(), |d| d.to_string());
        self.own("sandbox", &sandbox);
    }

    fn arguments(&mut self, arguments: &Object, authority: &[String], bytes: usize) -> LeftOut {
        let mut leaves = Leaves { authority, first: Vec::new(), rest: Vec::new(), left_out: 0 };
        let mut pointer = String::new();
        leaves.object(arguments, &mut pointer, false);
        let values = leaves.first.len() + leaves.rest.len() + leaves.left_out;
        let counted = format!(
            "{}; the whole card has {}",
            text::counted(values, "value"),
            text::counted(bytes, "byte")
        );
        self.own("arguments", &counted);
        let mut left_out = LeftOut { bytes: 0, values: leaves.left_out };
        let begin = self.rows.len();
        for leaf in leaves.first.iter().chain(&leaves.rest) {
            if self.rows.len().saturating_sub(begin) > MAX_ROWS {
                left_out.values += 1;
            } else {
                left_out.bytes += self.leaf(leaf);
            }
        }
        if left_out.values > 0 {
            self.bar(
                "",
                &format!("= {} are not shown", text::counted(left_out.values, "more value")),
            );
        }
        left_out
    }

    /// One value: a row of ours that ends with the foreign pointer, then the value itself.
    fn leaf(&mut self, leaf: &Leaf<'_>) -> usize {
        let mark = if leaf.authority { ", AUTHORITY" } else { "" };
        let (kind, shown) = match leaf.value {
            Value::String(text) => {
                (format!("string, {}", text::counted(text.len(), "byte")), text.as_str().into())
            }
            Value::Number(number) => ("number".to_owned(), number.spelling()),
            Value::Bool(true) => ("boolean".to_owned(), "true".into()),
            Value::Bool(false) => ("boolean".to_owned(), "false".into()),
            Value::Null => ("null".to_owned(), "null".into()),
            Value::Array(_) => ("array".to_owned(), "[]".into()),
            Value::Object(_) => ("object".to_owned(), "{}".into()),
        };
        let head = format!("{kind}{mark}: ");
        let room = self.room().saturating_sub(head.len());
        let pointer = text::one_line(&leaf.pointer, MAX_POINTER_BYTES);
        let mut pieces = text::wrap(&pointer, room).into_iter();
        self.bar("", &format!("{head}{}", pieces.next().unwrap_or_default()));
        for piece in pieces {
            self.bar("", &format!("{}{piece}", " ".repeat(head.len())));
        }
        let (rows, hidden) = text::quote(&shown, self.room().saturating_sub(2));
        for row in rows {
            self.bar("", &format!("  {row}"));
        }
        hidden
    }

    fn rules(&mut self, rules: &[String]) {
        self.own("rules", &text::counted(rules.len(), "decisive rule"));
        for rule in rules.iter().take(MAX_ROWS / 8) {
            self.name("", rule);
        }
        if rules.len() > MAX_ROWS / 8 {
            self.bar("", "= the others are not shown");
        }
    }

    fn words(&mut self, asked: &Asked<'_>) {
        match &asked.goal {
            Ok(goal) => {
                let whose = match asked.run.parent {
                    None => "the owner's words",
                    Some(_) => "the words of the run that started this one: nobody checked them",
                };
                self.own("goal", &format!("{}, {whose}", text::counted(goal.len(), "byte")));
                self.quoted(goal);
            }
            Err(why) => self.own("goal", why),
        }
        match asked.reason {
            Some(reason) => {
                let size = text::counted(reason.len(), "byte");
                self.own("reason", &format!("{size}, the agent's words: nobody checked them"));
                self.quoted(reason);
            }
            None => self.own("reason", "the agent states none"),
        }
    }

    fn quoted(&mut self, words: &str) {
        let (rows, _) = text::quote(words, self.room());
        for row in rows {
            self.bar("", &row);
        }
    }

    fn close(&mut self, asked: &Asked<'_>, left_out: LeftOut) {
        let question = asked.question;
        self.rows.push("-".repeat(self.columns.min(100)));
        self.rows.push(format!("END OF QUESTION {}: all below is this program's own", question.id));
        if left_out != LeftOut::default() {
            let LeftOut { bytes, values } = left_out;
            let what = format!(
                "{} and {} of long strings",
                text::counted(values, "value"),
                text::counted(bytes, "byte")
            );
            let whole = format!("`portcullis show {} --card` prints all", question.run);
            self.own("NOT SHOWN", &format!("{what}; {whole}"));
        }
        let id = question.id;
        match question.kind {
            QuestionKind::Approval => {
                self.own("a yes", &yes(question));
                self.own("a no", no(question.on_rejection));
            }
            QuestionKind::UnknownOutcome => {
                self.own("happened", "records that it happened, with the result you state");
                self.own("did-not-happen", "records that it did not; the agent is told");
                self.own(
                    "run-again",
                    "starts exactly this call once more, when the run is resumed",
                );
            }
        }
        self.own("digest", &question.digest.to_string());
        match question.kind {
            QuestionKind::Approval => {
                self.own("decide", &format!("portcullis approve {id}"));
                self.own("", &format!("portcullis reject {id}"));
            }
            QuestionKind::UnknownOutcome => {
                self.own(
                    "decide",
                    &format!("portcullis answer {id} happened|did-not-happen|run-again"),
                );
            }
        }
        self.own("", "(or with `--digest` and the digest above, where no terminal can ask)");
    }
}

fn yes(question: &Question) -> String {
    let missing = question.reviewers.count.saturating_sub(question.yes.saturating_add(1));
    let times =
        if question.uses == 1 { "once".to_owned() } else { format!("{} times", question.uses) };
    if missing == 0 {
        format!("lets exactly this call happen {times}, when the run is resumed")
    } else {
        format!("counts; {missing} more must say yes before exactly this call may happen {times}")
    }
}

const fn no(on_rejection: OnRejection) -> &'static str {
    match on_rejection {
        OnRejection::EndRun => "ends the run as cancelled",
        OnRejection::Observe => "is told to the agent with your note, and the run goes on",
    }
}

/// One value without parts.
struct Leaf<'a> {
    pointer: String,
    value: &'a Value,
    authority: bool,
}

/// The arguments' values; those that carry authority come first, so that they are the last to be left out.
struct Leaves<'a> {
    authority: &'a [String],
    first: Vec<Leaf<'a>>,
    rest: Vec<Leaf<'a>>,
    left_out: usize,
}

impl<'a> Leaves<'a> {
    fn object(&mut self, object: &'a Object, pointer: &mut String, authority: bool) {
        for (key, value) in object.iter() {
            let kept = pointer.len();
            pointer.push('/');
            pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
            self.value(value, pointer, authority);
            pointer.truncate(kept);
        }
    }

    fn value(&mut self, value: &'a Value, pointer: &mut String, authority: bool) {
        let authority = authority || self.authority.iter().any(|named| named == pointer);
        match value {
            Value::Object(object) if !object.is_empty() => self.object(object, pointer, authority),
            Value::Array(items) if !items.is_empty() => {
                for (at, item) in items.iter().enumerate() {
                    let kept = pointer.len();
                    pointer.push('/');
                    pointer.push_str(&at.to_string());
                    self.value(item, pointer, authority);
                    pointer.truncate(kept);
                }
            }
            _ => self.keep(value, pointer, authority),
        }
    }

    fn keep(&mut self, value: &'a Value, pointer: &str, authority: bool) {
        let list = if authority { &mut self.first } else { &mut self.rest };
        if list.len() < MAX_VALUES {
            list.push(Leaf { pointer: pointer.to_owned(), value, authority });
        } else {
            self.left_out += 1;
        }
    }
}

/// A card as JSON for programs: strings over the cap by their beginning, with their size.
pub(crate) fn capped(value: &Value, max: usize) -> Value {
    match value {
        Value::String(text) if text.len() > max => {
            let mut cut = Object::new();
            cut.insert("bytes", u64::try_from(text.len()).unwrap_or(u64::MAX));
            cut.insert("cut", true);
            cut.insert("text", sanitize::clip(text, max));
            Value::Object(cut)
        }
        Value::Array(items) => Value::Array(items.iter().map(|item| capped(item, max)).collect()),
        Value::Object(object) => Value::Object(
            object.iter().map(|(key, value)| (key.to_owned(), capped(value, max))).collect(),
        ),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use portcullis_testkit::render::{assert_faithful, card, findings};

    use super::*;

    fn mail() -> Card {
        let arguments = [("subject", "The report"), ("text", "Dear Ann,"), ("to", "ann")];
        let mut card = card("mail.send", Object::from_iter(arguments));
        card.authority = vec!["/to".to_owned()];
        card.rules = vec!["class remote_mutation: ask 1 of operator, no: end_run".to_owned()];
        card
    }

    /// What of the sheet depends on the call. The question's own rows would differ by the digest.
    fn sheet(card: &Card, columns: usize) -> String {
        let mut sheet = Sheet { rows: Vec::new(), columns };
        sheet.call(card);
        // Always the same count, so that a difference has to show in the values.
        sheet.arguments(&card.arguments, &card.authority, 100);
        sheet.rules(&card.rules);
        sheet.rows.join("\n")
    }

    #[test]
    fn no_text_moves_the_terminal_forges_a_row_or_hides_a_difference() {
        for columns in [40, 80, 200] {
            assert_faithful(&mail(), &|card| sheet(card, columns));
        }
    }

    /// Control: one text more, as it is, and all three are found.
    #[test]
    fn a_text_as_it_is_beneath_the_sheet_is_found() {
        let careless = |card: &Card| {
            let text = card.arguments.get("text").and_then(Value::as_str).unwrap_or_default();
            format!("{}\n{text}", sheet(card, 80))
        };
        let found = findings(&mail(), &careless).join("\n");
        assert!(found.contains("an escape that clears in `text` moves the terminal"), "{found}");
        assert!(found.contains("`text` can forge the line"), "{found}");
        assert!(!found.contains("`to`"), "{found}");
        let blind = |card: &Card| sheet(&Card { arguments: mail().arguments, ..card.clone() }, 80);
        let found = findings(&mail(), &blind).join("\n");
        assert!(found.contains("`to` shows \"a\" and \"a \" alike"), "{found}");
    }
}
