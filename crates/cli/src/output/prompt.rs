//! Asking a person at a terminal. Anything but a typed yes decides nothing.

use std::io::{self, Read, Write};

use rustix::stdio;
use rustix::termios::{QueueSelector, isatty, tcflush};

/// The longest line that is read.
const MAX_LINE_BYTES: u64 = 256;

/// What became of the asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// `y` or `yes`.
    Yes,
    /// Something else.
    Other,
    /// The input ended before a line did.
    Nothing,
    /// There is no terminal on which the question was shown and can be answered.
    NoTerminal,
}

/// Asks for a yes. What was typed before the question was there is thrown away.
pub(crate) fn yes(prompt: &str) -> io::Result<Said> {
    if !isatty(stdio::stdin()) || !isatty(stdio::stdout()) {
        return Ok(Said::NoTerminal);
    }
    let mut out = io::stdout().lock();
    // Best effort: a terminal that cannot be flushed is still one.
    let _ = tcflush(stdio::stdin(), QueueSelector::IFlush);
    write!(out, "{prompt} [y/N] ")?;
    out.flush()?;
    read(&mut io::stdin().lock())
}

fn read(input: &mut dyn Read) -> io::Result<Said> {
    let mut line = Vec::new();
    let mut byte = [0_u8; 1];
    let mut input = input.take(MAX_LINE_BYTES);
    while input.read(&mut byte)? == 1 {
        if byte == *b"\n" {
            let said = line.trim_ascii().to_ascii_lowercase();
            let yes = said == b"y" || said == b"yes";
            return Ok(if yes { Said::Yes } else { Said::Other });
        }
        line.extend_from_slice(&byte);
    }
    Ok(Said::Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_line_that_says_yes_is_a_yes() {
        for (input, said) in [
            ("y\n", Said::Yes),
            (" YES \r\n", Said::Yes),
            ("\n", Said::Other),
            ("n\n", Said::Other),
            ("yes please\n", Said::Other),
            ("y", Said::Nothing),
            ("", Said::Nothing),
        ] {
            assert_eq!(read(&mut input.as_bytes()).unwrap(), said, "{input:?}");
        }
        let long = "y".repeat(10_000);
        assert_eq!(read(&mut long.as_bytes()).unwrap(), Said::Nothing);
    }
}
