//! Amounts of money as integer micros: millionths of the currency's unit. Nothing is ever a float.

/// Why a text is no amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmountError {
    /// Another form.
    #[error(
        "write an amount such as `$0.50`: digits, and a point with at most six digits behind it"
    )]
    Form,
    /// More digits behind the point than are kept.
    #[error("an amount has at most six digits behind its point; nothing is rounded")]
    TooFine,
    /// It does not fit.
    #[error("the amount is larger than can be counted")]
    TooLarge,
}

/// Reads an amount such as `5`, `4.41`, `$0.50` or `€1` into micros. The sign says nothing: amounts and prices are in the
/// currency that the provider bills in.
///
/// ```
/// use portcullis_models::parse_amount;
///
/// assert_eq!(parse_amount("$0.50"), Ok(500_000));
/// assert!(parse_amount("-1").is_err());
/// ```
///
/// # Errors
/// [`AmountError`]: a sign of plus or minus, an exponent, a separator, more than six decimals, or more than `u64` micros.
pub fn parse_amount(text: &str) -> Result<u64, AmountError> {
    let digits = text.strip_prefix(['$', '€', '£']).unwrap_or(text);
    let (whole, fraction) = match digits.split_once('.') {
        None => (digits, None),
        Some((whole, fraction)) => (whole, Some(fraction)),
    };
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !plain(whole) || fraction.is_some_and(|fraction| !plain(fraction)) {
        return Err(AmountError::Form);
    }
    let fraction = fraction.unwrap_or("0");
    if fraction.len() > 6 {
        return Err(AmountError::TooFine);
    }
    let units: u64 = whole.parse().map_err(|_| AmountError::TooLarge)?;
    let parts: u64 = format!("{fraction:0<6}").parse().map_err(|_| AmountError::Form)?;
    units
        .checked_mul(1_000_000)
        .and_then(|micros| micros.checked_add(parts))
        .ok_or(AmountError::TooLarge)
}

/// An amount for people: two decimals, and more where they are needed.
///
/// ```
/// assert_eq!(portcullis_models::show_amount(500_000), "0.50");
/// assert_eq!(portcullis_models::show_amount(1_000_001), "1.000001");
/// ```
#[must_use]
pub fn show_amount(micros: u64) -> String {
    let fraction = format!("{:06}", micros % 1_000_000);
    let kept = fraction.trim_end_matches('0');
    format!("{}.{kept:0<2}", micros / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, expected: Result<u64, AmountError>) {
        assert_eq!(parse_amount(text), expected, "{text}");
    }

    #[test]
    fn amounts_are_read_to_the_letter() {
        check("5", Ok(5_000_000));
        check("4.41", Ok(4_410_000));
        check("$0.50", Ok(500_000));
        check("€0.000001", Ok(1));
        check("£7.", Err(AmountError::Form));
        check("18446744073709.551615", Ok(u64::MAX));
        check("18446744073709.551616", Err(AmountError::TooLarge));
        check("99999999999999999999", Err(AmountError::TooLarge));
        check("0.0000001", Err(AmountError::TooFine));
        for wrong in [
            "", "$", "-1", "+1", "1e3", "1,000", ".5", " 1", "1 ", "$$1", "NaN", "inf", "1.2.3",
            "１",
        ] {
            check(wrong, Err(AmountError::Form));
        }
    }

    #[test]
    fn money_is_shown_to_the_last_digit_that_counts() {
        for (micros, shown) in [
            (0, "0.00"),
            (1, "0.000001"),
            (500_000, "0.50"),
            (1_234_500, "1.2345"),
            (u64::MAX, "18446744073709.551615"),
        ] {
            assert_eq!(show_amount(micros), shown);
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_again(micros: u64) {
            prop_assert_eq!(parse_amount(&show_amount(micros)), Ok(micros));
        }
    }
}
