//! `Retry-After`, in seconds or as a date, bounded.

use std::time::{Duration, UNIX_EPOCH};

use portcullis_domain::time::Timestamp;

/// The longest wait that an answer can ask for; more is taken for this: 24 hours.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);

/// The wait that a value asks for. `None` for what is neither seconds nor a date; zero for a date that is over.
pub(crate) fn read(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are a longer wait, not a missing one.
        let seconds = value.parse().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    let since_epoch = date.duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Duration::from_micros(u64::try_from(now.micros()).unwrap_or(0));
    Some(since_epoch.saturating_sub(now).min(MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_all_three_forms_of_dates_are_read_and_bounded() {
        // 1994-11-06T08:49:30Z
        let now = Timestamp::from_micros(784_111_770_000_000);
        let seconds = |value: &str| read(value, now).map(|wait| wait.as_secs());
        assert_eq!(seconds("0"), Some(0));
        assert_eq!(seconds(" 17 "), Some(17));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:37 GMT"), Some(7));
        assert_eq!(seconds("Sunday, 06-Nov-94 08:49:37 GMT"), Some(7));
        assert_eq!(seconds("Sun Nov  6 08:49:37 1994"), Some(7));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0), "a date that is over");
        let day = Some(MAX_RETRY_AFTER.as_secs());
        assert_eq!(seconds("31536000"), day, "a year");
        assert_eq!(seconds("99999999999999999999999999"), day);
        assert_eq!(seconds("Fri, 31 Dec 9999 23:59:59 GMT"), day);
        for garbage in ["", "-1", "1.5", "soon", "+5", "1e3", "Sun, 99 Nov 1994 08:49:37 GMT"] {
            assert_eq!(seconds(garbage), None, "{garbage}");
        }
    }
}
