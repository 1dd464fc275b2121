//! What the command writes on standard output: lines that are safe on a terminal, and JSON lines.
//!
//! Every text that is not the program's own passes [`text`], [`table`] or [`card`] before it gets here.

pub(crate) mod asked;
pub(crate) mod card;
pub(crate) mod invalid;
pub(crate) mod prompt;
pub(crate) mod screen;
pub(crate) mod table;
pub(crate) mod text;
pub(crate) mod verdict;

use std::io::{self, BufWriter, Stdout, Write};

use serde::Serialize;

/// Standard output, written in pieces of some size.
#[derive(Debug)]
pub(crate) struct Out {
    to: BufWriter<Stdout>,
}

impl Out {
    pub(crate) fn new() -> Self {
        Self { to: BufWriter::new(io::stdout()) }
    }

    /// Writes lines that are safe already.
    pub(crate) fn line(&mut self, line: &str) -> io::Result<()> {
        self.to.write_all(line.as_bytes())?;
        self.to.write_all(b"\n")
    }

    /// Writes one value as one line of canonical JSON in which nothing can disturb a terminal.
    pub(crate) fn json<T: Serialize>(&mut self, value: &T) -> io::Result<()> {
        let bytes = portcullis_canon::to_vec(value).map_err(io::Error::other)?;
        let json = String::from_utf8(bytes).map_err(io::Error::other)?;
        self.line(&text::json(&json))
    }

    /// Hands everything on; to be called before the process ends or asks something.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
