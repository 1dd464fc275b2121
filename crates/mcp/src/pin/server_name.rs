//! The operator's name for a server: it stands in names of tools, in labels and in file names.

use std::fmt;

/// The longest name of a server, in bytes.
const MAX_BYTES: usize = 32;

/// 1 to 32 lower-case letters, digits, `-` or `_`, the first a letter or a digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerName(String);

/// A text that is no such name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a server's name is 1 to {MAX_BYTES} lower-case letters, digits, `-` or `_`, and begins with a letter or a digit"
)]
pub struct ServerNameError;

impl ServerName {
    /// Checks and keeps a name.
    ///
    /// # Errors
    /// [`ServerNameError`] says what a name is.
    pub fn new(name: &str) -> Result<Self, ServerNameError> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let fits = (1..=MAX_BYTES).contains(&name.len())
            && name.bytes().all(|b| plain(b) || matches!(b, b'-' | b'_'))
            && name.bytes().next().is_some_and(plain);
        if fits { Ok(Self(name.to_owned())) } else { Err(ServerNameError) }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_everywhere_it_stands() {
        for name in ["a", "7z", "file-system_2", &"x".repeat(MAX_BYTES)] {
            assert_eq!(ServerName::new(name).map(|name| name.to_string()), Ok(name.to_owned()));
        }
        for name in ["", "-a", "_a", "A", "a.b", "a/b", "a b", "\u{430}", &"x".repeat(33)] {
            assert_eq!(ServerName::new(name), Err(ServerNameError), "{name:?}");
        }
    }
}
