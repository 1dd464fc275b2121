//! Counting effects from outside: a process of its own hears of each effect, whatever the record says of it.
//!
//! A process that is killed cannot be asked what it did, and a database that is under test is no witness. So a tool of a
//! crash test rings here, over a Unix socket, and the ring is its effect: it happened when the whole line arrived, and not
//! when it was cut off. Rings are kept for each *place*, so that one counter serves many tests at once, and the state of
//! a place can be copied when the place is.
//!
//! ```
//! use std::os::unix::net::UnixListener;
//! use portcullis_testkit::counter::{Counter, serve};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("counter");
//! let listener = UnixListener::bind(&path)?;
//! // In a test of crashes this is the third process.
//! std::thread::spawn(move || serve(&listener));
//! let counter = Counter::at(path);
//! assert_eq!(counter.ring("one", "send.1")?, 1);
//! counter.copy("one", "other")?;
//! assert_eq!(counter.ring("other", "send.1")?, 2);
//! assert_eq!(counter.tally("one")?["send.1"], 1);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// The longest line in bytes, of a request or an answer.
const MAX_LINE: u64 = 1 << 20;

/// How often each change of a place happened.
pub type Tally = BTreeMap<String, u64>;

type Tallies = BTreeMap<String, Tally>;

/// Who counts, as a process finds it that has something to tell or to ask.
#[derive(Clone, Debug)]
pub struct Counter {
    path: PathBuf,
}

impl Counter {
    /// The counter that listens at this path.
    #[must_use]
    pub const fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Makes a change happen once more, and says how often it did. Names are words without blanks and `=`.
    ///
    /// # Errors
    /// When a name is no word, or the counter does not answer; then the change may have happened.
    pub fn ring(&self, place: &str, change: &str) -> io::Result<u64> {
        let answer = self.ask(&["ring", place, change])?;
        answer.parse().map_err(|_| invalid("the counter answered no number"))
    }

    /// What happened at a place; nothing when nobody ever rang there.
    ///
    /// # Errors
    /// When the name is no word, or the counter does not answer.
    pub fn tally(&self, place: &str) -> io::Result<Tally> {
        let answer = self.ask(&["tally", place])?;
        let read = |word: &str| {
            let (change, times) = word.split_once('=')?;
            Some((change.to_owned(), times.parse().ok()?))
        };
        let tally: Option<Tally> = answer.split_whitespace().map(read).collect();
        tally.ok_or_else(|| invalid("the counter answered no tally"))
    }

    /// Gives `to` the tally of `from`, whatever it had before.
    ///
    /// # Errors
    /// When a name is no word, or the counter does not answer.
    pub fn copy(&self, from: &str, to: &str) -> io::Result<()> {
        self.ask(&["copy", from, to]).map(drop)
    }

    fn ask(&self, words: &[&str]) -> io::Result<String> {
        let no_word = |word: &&&str| word.is_empty() || word.contains([' ', '\n', '=', '\t']);
        if words.iter().find(no_word).is_some() {
            return Err(invalid("a name that is no word"));
        }
        let mut stream = UnixStream::connect(&self.path)?;
        stream.write_all(format!("{}\n", words.join(" ")).as_bytes())?;
        let answer = line(&mut BufReader::new(stream))?;
        answer.ok_or_else(|| invalid("the counter did not answer"))
    }
}

/// Counts for whoever connects, until the process ends.
///
/// # Errors
/// When the listener fails.
pub fn serve(listener: &UnixListener) -> io::Result<()> {
    let tallies: Arc<Mutex<Tallies>> = Arc::default();
    for stream in listener.incoming() {
        let (stream, tallies) = (stream?, Arc::clone(&tallies));
        std::thread::spawn(move || {
            // Whoever asked is gone, or asked something odd: nobody is left to be told.
            let _gone = answer(stream, &tallies);
        });
    }
    Ok(())
}

fn answer(mut stream: UnixStream, tallies: &Mutex<Tallies>) -> io::Result<()> {
    let asked = line(&mut BufReader::new(stream.try_clone()?))?;
    // A line that was cut off rings nothing.
    let Some(asked) = asked else { return Ok(()) };
    let words: Vec<&str> = asked.split(' ').collect();
    let answer = {
        let mut tallies = tallies.lock().unwrap_or_else(PoisonError::into_inner);
        respond(&mut tallies, &words).ok_or_else(|| invalid("not understood"))?
    };
    stream.write_all(format!("{answer}\n").as_bytes())
}

fn respond(tallies: &mut Tallies, words: &[&str]) -> Option<String> {
    match words {
        ["ring", place, change] => {
            let tally = tallies.entry((*place).to_owned()).or_default();
            let times = tally.entry((*change).to_owned()).or_default();
            *times = times.saturating_add(1);
            Some(times.to_string())
        }
        ["tally", place] => {
            let told = tallies.get(*place).into_iter().flatten();
            let told: Vec<String> = told.map(|(change, n)| format!("{change}={n}")).collect();
            Some(told.join(" "))
        }
        ["copy", from, to] => {
            let tally = tallies.get(*from).cloned().unwrap_or_default();
            tallies.insert((*to).to_owned(), tally);
            Some("ok".to_owned())
        }
        _ => None,
    }
}

/// One whole line without its end; `None` when there is none before the end of the stream.
fn line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut text = String::new();
    reader.take(MAX_LINE).read_line(&mut text)?;
    Ok(text.strip_suffix('\n').map(str::to_owned))
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn counter() -> (tempfile::TempDir, Counter) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counter");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || serve(&listener));
        (folder, Counter::at(path))
    }

    #[test]
    fn rings_are_counted_by_place_and_change_and_copies_part() {
        let (_folder, counter) = counter();
        assert_eq!(counter.tally("a").unwrap(), Tally::new());
        for times in 1..=3 {
            assert_eq!(counter.ring("a", "x").unwrap(), times);
        }
        counter.ring("a", "y").unwrap();
        counter.copy("a", "b").unwrap();
        counter.ring("b", "x").unwrap();
        let told = |place: &str| counter.tally(place).unwrap().into_iter().collect::<Vec<_>>();
        assert_eq!(told("a"), [("x".to_owned(), 3), ("y".to_owned(), 1)]);
        assert_eq!(told("b"), [("x".to_owned(), 4), ("y".to_owned(), 1)]);
    }

    #[test]
    fn a_ring_that_is_cut_off_did_not_happen() {
        let (_folder, counter) = counter();
        let mut cut = UnixStream::connect(counter.path()).unwrap();
        cut.write_all(b"ring a x").unwrap();
        cut.shutdown(std::net::Shutdown::Write).unwrap();
        // The other side has read to the end when it closes.
        assert_eq!(line(&mut BufReader::new(cut)).unwrap(), None);
        assert_eq!(counter.tally("a").unwrap(), Tally::new());
    }

    #[test]
    fn what_is_no_word_or_no_question_is_refused() {
        let (_folder, counter) = counter();
        for name in ["", "a b", "a=b", "a\nring"] {
            assert!(counter.ring("a", name).is_err(), "{name:?}");
        }
        assert!(counter.ask(&["what"]).is_err());
        assert!(Counter::at("/nowhere/at/all".into()).tally("a").is_err());
    }
}
