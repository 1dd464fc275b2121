//! Secrets: values that can be used at the edge of a request and nowhere else.

use portcullis_canon::sanitize;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// The longest secret, in bytes.
pub const MAX_SECRET: usize = 8 * 1024;

/// The shortest secret, in bytes: anything shorter is a slip, or is guessed.
pub const MIN_SECRET: usize = 8;

/// What stands in a variable when something went wrong before it was set.
const PLACEHOLDERS: &[&str] =
    &["undefined", "[object object]", "changeme", "your-api-key", "password"];

/// Why a value is no secret. Never repeats the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretFault {
    /// Nothing there.
    #[error("it is empty")]
    Empty,
    /// Under [`MIN_SECRET`].
    #[error("it is shorter than {MIN_SECRET} bytes")]
    Short,
    /// Over [`MAX_SECRET`].
    #[error("it is longer than {MAX_SECRET} bytes")]
    Long,
    /// A space, a line break, a control character, or anything beyond ASCII.
    #[error("it has a character that no header can carry (a space, a line break, or no ASCII)")]
    Character,
    /// A word such as `undefined`.
    #[error("it is a placeholder, not a secret")]
    Placeholder,
}

/// A key, a token or a password.
///
/// It is wiped from memory when dropped. It has no debug form, no display form, no serde form, no clone and no `==`, and
/// only this crate can read it:
///
/// ```compile_fail,E0277
/// let secret = portcullis_egress::Secret::new("long enough".to_owned()).unwrap();
/// println!("{secret:?}");
/// ```
/// ```compile_fail,E0277
/// let secret = portcullis_egress::Secret::new("long-enough".to_owned()).unwrap();
/// println!("{secret}");
/// ```
/// ```compile_fail,E0369
/// let secret = portcullis_egress::Secret::new("long-enough".to_owned()).unwrap();
/// let same = secret == secret;
/// ```
/// ```
/// let secret = portcullis_egress::Secret::new("long-enough".to_owned()).unwrap();
/// assert!(secret.matches(&secret));
/// ```
///
/// The HTTP library copies what it sends into buffers of its own, as the parser of a token's file does with what it
/// reads, and those are not wiped.
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes a value over. One line break at its end is taken off, since files have one.
    ///
    /// # Errors
    /// What cannot be sent in a header, or is obviously no secret.
    pub fn new(value: String) -> Result<Self, SecretFault> {
        let mut value = Zeroizing::new(value);
        if value.ends_with('\n') {
            value.pop();
            if value.ends_with('\r') {
                value.pop();
            }
        }
        if value.is_empty() {
            return Err(SecretFault::Empty);
        }
        if !value.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(SecretFault::Character);
        }
        if PLACEHOLDERS.iter().any(|word| value.eq_ignore_ascii_case(word)) {
            return Err(SecretFault::Placeholder);
        }
        match value.len() {
            ..MIN_SECRET => Err(SecretFault::Short),
            MIN_SECRET..=MAX_SECRET => Ok(Self(value)),
            _ => Err(SecretFault::Long),
        }
    }

    /// Whether both are the same, in a time that says nothing about where they differ.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.0.as_bytes().ct_eq(other.0.as_bytes()).into()
    }

    /// The value. Only for what puts it into a request or into the owner's file.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

/// A name that may be shown: at most 64 bytes, safe for a terminal.
pub(crate) fn shown(name: &str) -> String {
    sanitize::clip(&sanitize::line(name), 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a type implements a trait, without requiring it: the method of the type itself wins where the bound holds.
    macro_rules! implements {
        ($type:ty: $bound:path) => {{
            struct Probe<T: ?Sized>(std::marker::PhantomData<T>);
            #[allow(dead_code, reason = "of the two, one answers")]
            trait Otherwise {
                fn holds(&self) -> bool {
                    false
                }
            }
            impl<T: ?Sized> Otherwise for Probe<T> {}
            #[allow(dead_code, reason = "of the two, one answers")]
            impl<T: ?Sized + $bound> Probe<T> {
                fn holds(&self) -> bool {
                    true
                }
            }
            Probe::<$type>(std::marker::PhantomData).holds()
        }};
    }

    #[test]
    fn a_secret_has_no_form_that_shows_or_copies_it() {
        assert!(!implements!(Secret: std::fmt::Debug));
        assert!(!implements!(Secret: std::fmt::Display));
        assert!(!implements!(Secret: serde::Serialize));
        assert!(!implements!(Secret: Clone));
        assert!(!implements!(Secret: PartialEq));
        assert!(!implements!(Secret: std::hash::Hash));
        assert!(!implements!(Secret: AsRef<str>));
        // The probe sees what is there.
        assert!(implements!(String: std::fmt::Debug) && implements!(String: serde::Serialize));
        assert!(implements!(String: PartialEq) && implements!(String: Clone));
    }

    #[test]
    fn slips_are_refused() {
        let refused = |text: &str| Secret::new(text.to_owned()).err();
        assert_eq!(refused(""), Some(SecretFault::Empty));
        assert_eq!(refused("\n"), Some(SecretFault::Empty));
        assert_eq!(refused("short"), Some(SecretFault::Short));
        assert_eq!(refused("Undefined"), Some(SecretFault::Placeholder));
        assert_eq!(refused("two words here"), Some(SecretFault::Character));
        assert_eq!(refused("line\r\nX-Other: 1"), Some(SecretFault::Character));
        assert_eq!(refused("schl\u{fc}ssel-lang"), Some(SecretFault::Character));
        assert_eq!(refused(&"k".repeat(MAX_SECRET + 1)), Some(SecretFault::Long));
        assert_eq!(refused("a-real-secret"), None);
    }

    #[test]
    fn a_line_break_at_the_end_is_taken_off() {
        let secret = |text: &str| Secret::new(text.to_owned()).expect("a secret");
        assert!(secret("a-real-secret\r\n").matches(&secret("a-real-secret")));
        assert!(!secret("a-real-secret").matches(&secret("a-real-secreT")));
        assert!(!secret("a-real-secret").matches(&secret("a-real-secret2")));
    }
}
