//! Answering a host: once, whoever is first, and with a deny when the answer cannot be given.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Mutex;

use portcullis_canon::sanitize;

use super::{Answer, Host};

/// The longest reason, in bytes.
const MAX_REASON: usize = 1_000;

/// The code that each host takes as a block.
pub(crate) const BLOCKED: u8 = 2;

/// An answer with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    /// The answer.
    pub(crate) answer: Answer,
    /// Why: one sentence, which the host's model may read.
    pub(crate) reason: String,
}

impl Said {
    /// A no.
    pub(crate) fn deny(reason: impl Into<String>) -> Self {
        Self { answer: Answer::Deny, reason: reason.into() }
    }
}

/// The one place where a host is answered.
pub(crate) struct Mouth {
    host: Host,
    said: Mutex<bool>,
}

impl Mouth {
    /// A mouth that has said nothing.
    pub(crate) const fn new(host: Host) -> Self {
        Self { host, said: Mutex::new(false) }
    }

    /// Says it, and gives the code to exit with; nothing when something was said before.
    pub(crate) fn say(
        &self,
        said: &Said,
        out: &mut impl Write,
        err: &mut impl Write,
    ) -> Option<u8> {
        let mut before = self.said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if std::mem::replace(&mut *before, true) {
            return None;
        }
        let reason = sanitize::clip(&sanitize::line(&said.reason), MAX_REASON);
        let line = self.host.form(said.answer, &reason).to_canonical_string();
        let written = writeln!(out, "{line}").and_then(|()| out.flush());
        let open = written.is_ok() && said.answer != Answer::Deny;
        if !open {
            // The second way to say no, which stands also when nobody reads the first.
            let _ = writeln!(err, "{reason}").and_then(|()| err.flush());
        }
        Some(if open { 0 } else { BLOCKED })
    }

    /// The same on the streams of this process.
    pub(crate) fn say_here(&self, said: &Said) -> Option<ExitCode> {
        let code = self.say(said, &mut std::io::stdout().lock(), &mut std::io::stderr().lock());
        code.map(ExitCode::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(answer: Answer) -> Said {
        Said { answer, reason: "why\nand \u{1b}[2Jhow".to_owned() }
    }

    #[test]
    fn a_deny_is_said_twice_and_whatever_else_once() {
        for (answer, code, twice) in
            [(Answer::Allow, 0, false), (Answer::Ask, 0, false), (Answer::Deny, BLOCKED, true)]
        {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let mouth = Mouth::new(Host::ClaudeCode);
            assert_eq!(mouth.say(&said(answer), &mut out, &mut err), Some(code));
            let out = String::from_utf8(out).unwrap();
            assert!(out.contains(answer.as_str()) && out.lines().count() == 1, "{out}");
            let err = String::from_utf8(err).unwrap();
            assert_eq!(err.lines().count(), usize::from(twice));
            assert!(!err.contains('\u{1b}') && !out.contains('\u{1b}'));
            assert_eq!(mouth.say(&said(Answer::Deny), &mut Vec::new(), &mut Vec::new()), None);
        }
    }

    #[test]
    fn an_allow_that_cannot_be_written_is_a_deny() {
        struct Full;

        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::StorageFull.into())
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        let mut err = Vec::new();
        let mouth = Mouth::new(Host::GeminiCli);
        assert_eq!(mouth.say(&said(Answer::Allow), &mut Full, &mut err), Some(BLOCKED));
        assert!(!err.is_empty());
    }
}
