//! `portcullis verify`: walks the whole record again and says whether it is intact.

use std::io;
use std::path::PathBuf;
use std::str::FromStr as _;

use portcullis_audit::head::{Head, read_heads};
use portcullis_audit::verify::THREADS;
use portcullis_audit::{Break, Options, Report};
use portcullis_canon::Digest;
use portcullis_domain::approval::Signature;
use portcullis_domain::id::InstanceId;
use portcullis_domain::ports::{Ledger, ReviewerKeys};
use portcullis_domain::row::Row as _;
use portcullis_domain::run::Run;
use portcullis_domain::time::Timestamp;

use crate::args::Globals;
use crate::config;
use crate::exit::Exit;
use crate::failure::{Code, Failure};
use crate::heads;
use crate::judges::{Judges, Source};
use crate::output::screen::{Tone, toned};
use crate::output::{Out, text};
use crate::reading::Reading;
use crate::wire::{HeadJson, JudgesJson, VerifyJson};

/// The most bytes of a sentence about a break.
const MAX_SENTENCE: usize = 600;

/// The most places of reviewers that are named to people.
const MAX_SOURCES: usize = 8;

/// Arguments of `verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A head that was kept elsewhere: a file of heads, or SEQ:HASH [default: the configured file]
    #[arg(long, value_name = "FILE|SEQ:HASH", value_parser = head_arg)]
    head: Option<HeadArg>,
    /// Keep where the record ends now in this file, signed, if it is intact
    #[arg(long, value_name = "FILE")]
    write_head: Option<PathBuf>,
}

/// A head as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HeadArg {
    File(PathBuf),
    Point { seq: u64, hash: Digest },
}

fn head_arg(typed: &str) -> Result<HeadArg, String> {
    let Some((seq, hash)) = typed.split_once(':').filter(|(seq, _)| is_count(seq)) else {
        return Ok(HeadArg::File(PathBuf::from(typed)));
    };
    let hash = if hash.starts_with("sha256:") { hash.to_owned() } else { format!("sha256:{hash}") };
    match (seq.parse(), Digest::from_str(&hash)) {
        (Ok(seq), Ok(hash)) if seq > 0 => Ok(HeadArg::Point { seq, hash }),
        _ => {
            Err("expected a sequence number above zero, `:`, and 64 hexadecimal digits".to_owned())
        }
    }
}

fn is_count(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Runs the command.
pub(crate) async fn run(args: Args, globals: &Globals) -> Result<Exit, Failure> {
    let reading = Reading::open(globals)?;
    let mut ledger = reading.db().begin_for(THREADS)?;
    let judges = Judges::of(globals, ledger.as_mut())?;
    let heads = match &args.head {
        Some(HeadArg::Point { seq, hash }) => vec![point(ledger.as_mut(), *seq, *hash)?],
        Some(HeadArg::File(path)) => of_this(some_heads(path)?, ledger.instance()),
        None => usual_heads(ledger.as_mut(), globals, args.write_head.is_some())?,
    };
    let typed = matches!(args.head, Some(HeadArg::Point { .. }));
    let head_key = if typed { None } else { heads::public_key(&globals.place)? };
    let keys: Vec<_> = judges.rings.iter().map(|ring| ring as &dyn ReviewerKeys).collect();
    let options = Options { keys: &keys, heads: &heads, head_key: head_key.as_ref() };
    let report = portcullis_audit::verify(ledger.as_mut(), options)?;
    drop(ledger);
    if let Some(file) = args.write_head.as_deref().filter(|_| report.intact) {
        heads::Heads::open(file, &globals.place)?.keep(reading.db())?;
    }
    let mut out = Out::new();
    let hint = hint(&report, globals);
    let written = if globals.json {
        json(&mut out, &report, &judges, hint)
    } else {
        let (heads, signed) = (heads.len(), typed || head_key.is_some());
        tell(&mut out, &report, &Told { heads, signed, judges, hint, plain: globals.plain })
    };
    written.and_then(|()| out.flush()).map_err(|error| Failure::output(&error))?;
    Ok(if report.intact { Exit::Done } else { Exit::Refused })
}

/// A file may keep the heads of several databases. Where it keeps none of this one, that is what is found.
fn of_this(heads: Vec<Head>, instance: InstanceId) -> Vec<Head> {
    let own: Vec<Head> = heads.iter().filter(|head| head.instance == instance).cloned().collect();
    if own.is_empty() { heads } else { own }
}

/// The heads that `run` keeps of this database. A configured file has to hold one once something was recorded, unless
/// this very command is to begin it.
fn usual_heads(
    ledger: &mut dyn Ledger,
    globals: &Globals,
    begins: bool,
) -> Result<Vec<Head>, Failure> {
    let config = config::load(globals)?;
    let Some((file, named)) = heads::file_of(globals, &config) else { return Ok(Vec::new()) };
    // Nobody made the folder of a file that nobody named before the first run.
    let heads = if named || file.exists() { read_heads(&file)? } else { Vec::new() };
    let own = heads.iter().any(|head| head.instance == ledger.instance());
    if !named {
        return Ok(if own { of_this(heads, ledger.instance()) } else { Vec::new() });
    }
    if heads.is_empty() && !begins && ledger.count(Run::TABLE)? > 0 {
        return Err(heads::missing(&file, true));
    }
    Ok(of_this(heads, ledger.instance()))
}

/// A file that the operator names has to hold a head: a missing one proves nothing.
fn some_heads(path: &std::path::Path) -> Result<Vec<Head>, Failure> {
    let heads = read_heads(path)?;
    if heads.is_empty() {
        let sentence = format!("`{}` holds no head, or is not there", path.display());
        return Err(Failure::new(Code::HeadFile, sentence).hint(
            "name a file that `run` kept, or begin one with `portcullis verify --write-head FILE`",
        ));
    }
    Ok(heads)
}

/// A head without a signature: whoever typed it vouches for it.
fn point(ledger: &mut dyn Ledger, seq: u64, hash: Digest) -> Result<Head, Failure> {
    let journals = ledger.journals()?;
    let [journal] = journals.as_slice() else {
        let sentence =
            format!("the record has {} journals, so SEQ:HASH names none", journals.len());
        return Err(Failure::usage(sentence).hint("name a file of heads"));
    };
    Ok(Head {
        instance: ledger.instance(),
        journal: *journal,
        seq,
        hash,
        at: Timestamp::from_micros(0),
        key: Digest::ZERO,
        signature: Signature([0; 64]),
    })
}

/// What to do about answers that do not count: their people may be known to another configuration.
fn hint(report: &Report, globals: &Globals) -> Option<String> {
    let of_people =
        |found: &Break| matches!(found, Break::NoLeave { .. } | Break::PersonMismatch { .. });
    report.breaks.iter().any(of_people).then(|| match &globals.config_path {
        None => "if the people who answered are those of another configuration, judge by that one: `portcullis -c FILE verify`".to_owned(),
        Some(path) => format!(
            "answers were judged by the reviewers of `{}` alone; without -c all that the runs were begun with are asked",
            path.display()
        ),
    })
}

fn json(out: &mut Out, report: &Report, judges: &Judges, hint: Option<String>) -> io::Result<()> {
    let reviewers = judges.sources.iter().map(|source| JudgesJson {
        from: source.from.display().to_string(),
        keys: source.keys.as_ref().ok().copied(),
        why: source.keys.as_ref().err().cloned(),
    });
    let sentences =
        report.breaks.iter().map(|found| text::one_line(&found.to_string(), MAX_SENTENCE));
    let heads = report.journals.iter().map(|journal| HeadJson {
        journal: journal.id,
        head: format!("{}:{}", journal.events, journal.tip),
    });
    out.json(&VerifyJson {
        report,
        reviewers: reviewers.collect(),
        hint,
        sentences: sentences.collect(),
        heads: heads.collect(),
    })
}

struct Told {
    heads: usize,
    /// There is a key that the heads were checked with, or nothing that could be signed.
    signed: bool,
    judges: Judges,
    hint: Option<String>,
    plain: bool,
}

fn tell(out: &mut Out, report: &Report, told: &Told) -> io::Result<()> {
    let mut row = |label: &str, value: String| out.line(&format!("  {label:<14}{value}"));
    row("installation", report.instance.to_string())?;
    for journal in &report.journals {
        row("journal", format!("{}", journal.id))?;
        row("head", format!("{}:{}", journal.events, journal.tip))?;
    }
    row("events", format!("{} in {} streams", report.events, report.streams))?;
    row("rows", format!("{} folded again and compared", report.rows))?;
    let erased = match report.erased {
        0 => String::new(),
        erased => format!(", {erased} erased on record"),
    };
    row("contents", format!("{}{erased}; {} tool specs", report.contents, report.specs))?;
    for (at, who) in reviewers(&told.judges).into_iter().enumerate() {
        row(if at == 0 { "reviewers" } else { "" }, who)?;
    }
    row("answers", answers(report))?;
    row("grants", grants(report))?;
    if report.cards_unchecked > 0 {
        row("unchecked", format!("{} questions whose card was erased", report.cards_unchecked))?;
    }
    let heads = match told.heads {
        0 => "none given: a tail that was cut cannot be seen".to_owned(),
        given if told.signed => format!("{} of {given} kept heads found", report.heads),
        given => format!(
            "{} of {given} fit, signature unchecked: this installation has no key of its own",
            report.heads
        ),
    };
    row("kept heads", heads)?;
    for found in &report.breaks {
        out.line(&format!("BROKEN {}", text::one_line(&found.to_string(), MAX_SENTENCE)))?;
    }
    if report.cut_short {
        out.line("there are more; the walk ended here")?;
    }
    if let Some(hint) = &told.hint {
        out.line(&text::one_line(hint, MAX_SENTENCE))?;
    }
    let (words, tone) =
        if report.intact { ("intact", Tone::Good) } else { ("NOT INTACT", Tone::Bad) };
    out.line(&toned(words, tone, told.plain))
}

/// Whose keys were used, and which were not.
fn reviewers(judges: &Judges) -> Vec<String> {
    let said = |source: &Source| {
        let from = source.from.display();
        let said = match &source.keys {
            Ok(1) => format!("1 key of {from}"),
            Ok(keys) => format!("{keys} keys of {from}"),
            Err(why) => format!("NOT USED: {why}"),
        };
        text::one_line(&said, MAX_SENTENCE)
    };
    let mut rows: Vec<String> = judges.sources.iter().take(MAX_SOURCES).map(said).collect();
    match judges.sources.len().saturating_sub(MAX_SOURCES) {
        0 => {}
        more => rows.push(format!("and {more} more; --json names them all")),
    }
    rows
}

fn answers(report: &Report) -> String {
    let found = &report.signatures;
    let checked = usize::try_from(found.checked).unwrap_or(usize::MAX);
    let mut parts = vec![format!("{} valid", text::counted(checked, "signature"))];
    let mut add = |count: u64, what: &str| {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    };
    add(found.unchecked, "unchecked, since no keys are configured");
    add(found.unknown_key, "of keys that are not configured");
    add(found.other_role, "of people who do not have the role now");
    add(found.not_valid, "of keys that are revoked or outside their term");
    parts.join(", ")
}

/// The calls that ran on people's word.
fn grants(report: &Report) -> String {
    let found = &report.grants;
    let no_leave = report.breaks.iter().filter(|found| matches!(found, Break::NoLeave { .. }));
    let mut parts = vec![format!("{} used with leave", found.checked)];
    if found.unchecked > 0 {
        parts.push(format!("{} unchecked, since no keys are configured", found.unchecked));
    }
    match no_leave.count() {
        0 => {}
        count => parts.push(format!("{count} USED WITHOUT LEAVE")),
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_a_point_or_a_file() {
        let hex = "ab".repeat(32);
        let point = HeadArg::Point { seq: 7, hash: format!("sha256:{hex}").parse().unwrap() };
        assert_eq!(head_arg(&format!("7:{hex}")), Ok(point.clone()));
        assert_eq!(head_arg(&format!("7:sha256:{hex}")), Ok(point));
        assert_eq!(head_arg("/tmp/heads"), Ok(HeadArg::File("/tmp/heads".into())));
        assert_eq!(head_arg("a:b"), Ok(HeadArg::File("a:b".into())));
        for bad in ["0:ab".to_owned(), "7:ab".to_owned(), format!("0:{hex}"), "7:".to_owned()] {
            assert!(head_arg(&bad).is_err(), "{bad}");
        }
    }
}
