//! How much JSON is accepted before anything looks inside it.

/// The cap on the bytes of one document unless the caller names another: 16 MiB.
pub const DEFAULT_MAX_BYTES: usize = 16 * 1024 * 1024;

/// The longest number literal in bytes, sign and exponent included.
pub const MAX_NUMBER_BYTES: usize = 10_000;

/// The largest magnitude of a written exponent, and of the exponent in scientific form.
pub const MAX_NUMBER_EXPONENT: i64 = 10_000;

/// Bounds that [`parse`](crate::parse) checks first.
///
/// A parsed value takes up to about 50 times the bytes of its text in memory (a text that is
/// nothing but one-digit numbers or objects of one member), so a caller that reads from strangers
/// should set a smaller cap with [`Limits::with_max_bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest accepted document, in bytes.
    pub max_bytes: usize,
    /// The deepest accepted nesting, counted in brackets: `[[]]` is 2, a bare scalar is 0.
    pub max_depth: u32,
}

impl Limits {
    /// For a value that stands alone: arguments, results, schemas.
    pub const BARE: Self = Self { max_bytes: DEFAULT_MAX_BYTES, max_depth: 256 };

    /// For a record that wraps a bare value: sixteen levels more, so that whatever was accepted
    /// can be read back from inside its envelope.
    pub const ENVELOPE: Self = Self { max_bytes: DEFAULT_MAX_BYTES, max_depth: 272 };

    /// The same limits with another cap on bytes.
    #[must_use]
    pub const fn with_max_bytes(self, max_bytes: usize) -> Self {
        Self { max_bytes, ..self }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::BARE
    }
}
