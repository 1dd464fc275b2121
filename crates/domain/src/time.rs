//! Wall-clock time: microseconds in tables, RFC 3339 with six digits on the wire.
//!
//! Time never orders anything; sequence numbers do.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Microseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

/// From the start of year 1 to the last microsecond that jiff can write, in December 9999.
const RANGE: std::ops::RangeInclusive<i64> = -62_135_596_800_000_000..=253_402_207_199_999_999;

/// A text that is not an instant in the wire form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an instant: expected RFC 3339 in UTC with six digits, such as 2026-01-31T12:00:00.000000Z"
)]
pub struct ParseTimestampError;

impl Timestamp {
    /// The instant this many microseconds after the epoch, kept within the years 1 to 9999 (the last day and two hours cut off).
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        if micros < *RANGE.start() {
            Self(*RANGE.start())
        } else if micros > *RANGE.end() {
            Self(*RANGE.end())
        } else {
            Self(micros)
        }
    }

    /// Microseconds since the epoch.
    #[must_use]
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// This instant and then `duration`; stops at the end of the year 9999.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self::from_micros(self.0.saturating_add(micros))
    }

    /// Microseconds from `earlier` to this instant; zero when the clock went backwards.
    #[must_use]
    pub fn micros_since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(instant) => write!(f, "{instant:.6}"),
            Err(_) => Err(fmt::Error),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Timestamp {
    type Err = ParseTimestampError;

    fn from_str(text: &str) -> Result<Self, ParseTimestampError> {
        let parsed: jiff::Timestamp = text.parse().map_err(|_| ParseTimestampError)?;
        let instant = Self(parsed.as_microsecond());
        // Only our own spelling: two texts for one instant would be two payloads for one fact.
        if RANGE.contains(&instant.0) && instant.to_string() == text {
            Ok(instant)
        } else {
            Err(ParseTimestampError)
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_digits_always() {
        assert_eq!(Timestamp::from_micros(0).to_string(), "1970-01-01T00:00:00.000000Z");
        assert_eq!(
            Timestamp::from_micros(1_790_000_000_500_000).to_string(),
            "2026-09-21T14:13:20.500000Z"
        );
        assert_eq!(Timestamp::from_micros(-1).to_string(), "1969-12-31T23:59:59.999999Z");
    }

    #[test]
    fn only_the_wire_spelling_is_read() {
        let text = "2026-09-21T14:13:20.500000Z";
        assert_eq!(text.parse::<Timestamp>().map(|t| t.to_string()), Ok(text.to_owned()));
        for other in [
            "2026-09-21T14:13:20.5Z",
            "2026-09-21T14:13:20.500000+00:00",
            "2026-09-21 14:13:20.500000Z",
            "",
        ] {
            assert!(other.parse::<Timestamp>().is_err(), "{other}");
        }
    }

    #[test]
    fn sums_saturate() {
        let end = Timestamp::from_micros(i64::MAX);
        assert_eq!(end.after(Duration::from_secs(1)), end);
        assert_eq!(Timestamp::from_micros(5).micros_since(end), 0);
        assert_eq!(end.to_string(), "9999-12-30T21:59:59.999999Z");
        assert_eq!(Timestamp::from_micros(i64::MIN).to_string(), "0001-01-01T00:00:00.000000Z");
    }
}
