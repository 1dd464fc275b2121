//! Content as JSON text: as it is when it is text, in base64 when it is not.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis_domain::ports::ToolFailure;
use serde::Deserialize;

use crate::arguments::refused;

/// How content is written in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Encoding {
    /// The text itself.
    #[default]
    Utf8,
    /// RFC 4648 with padding.
    Base64,
}

impl Encoding {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Utf8 => "utf8",
            Self::Base64 => "base64",
        }
    }

    /// The bytes that an argument stands for, whose name is for the message.
    pub(crate) fn decode<'c>(
        self,
        name: &str,
        content: &'c str,
    ) -> Result<Cow<'c, [u8]>, ToolFailure> {
        match self {
            Self::Utf8 => Ok(Cow::Borrowed(content.as_bytes())),
            // The decoder's own message would quote the byte that it did not like.
            Self::Base64 => STANDARD
                .decode(content)
                .map(Cow::Owned)
                .map_err(|_| refused(format!("`{name}` is not base64 with padding"))),
        }
    }
}

/// The text of a text file. A zero byte makes a file binary, as it does for most programs.
pub(crate) fn text_of(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    (!text.contains('\0')).then_some(text)
}

/// Bytes for a JSON string.
pub(crate) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_what_has_no_zero_byte_and_is_utf8() {
        assert_eq!(text_of(b""), Some(""));
        assert_eq!(text_of("é\u{1b}\r\n".as_bytes()), Some("é\u{1b}\r\n"));
        assert_eq!(text_of(b"a\0b"), None);
        assert_eq!(text_of(b"\xff"), None);
    }

    #[test]
    fn base64_is_strict() {
        assert_eq!(Encoding::Base64.decode("content", "AP8=").as_deref(), Ok(&b"\x00\xff"[..]));
        for text in ["AP8", "AP9=", "AP8=\n", "A P8=", "!"] {
            assert!(Encoding::Base64.decode("content", text).is_err(), "{text}");
        }
    }
}
