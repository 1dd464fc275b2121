//! One spelling for each decimal, and which decimals the machine types hold.

use crate::vectors::{rows, text};
use portcullis_canon::{Limits, Number, NumberError, parse};

fn number(literal: &str) -> Number {
    literal.parse().unwrap_or_else(|error| panic!("{literal}: {error}"))
}

#[test]
fn literals() {
    for row in rows("numbers.jsonl", 50) {
        let literal = text(&row, "literal");
        let read = number(literal);
        assert_eq!(read.to_string(), text(&row, "canonical"), "{literal}");
        assert_eq!(read.is_exact(), row["exact"].as_bool().unwrap(), "{literal}");
        assert_eq!(number(&read.to_string()), read, "{literal}");
    }
}

#[test]
fn doubles_are_spelled_as_ecmascript_spells_them() {
    for row in rows("doubles.jsonl", 200) {
        let double = f64::from_bits(u64::from_str_radix(text(&row, "bits"), 16).unwrap());
        let Some(spelling) = row["text"].as_str() else {
            assert_eq!(Number::from_f64(double), None, "{row}");
            continue;
        };
        let from_double = Number::from_f64(double).unwrap();
        assert_eq!(from_double.to_string(), spelling);
        assert_eq!(number(spelling), from_double);
        assert!(from_double.is_exact(), "{row}");
        // The sign of zero is the one thing that is not kept.
        assert_eq!(from_double.as_f64(), Some(if double == 0.0 { 0.0 } else { double }), "{row}");
    }
}

#[test]
fn machine_types_are_all_or_nothing() {
    let held = |literal: &str| {
        (number(literal).as_i64(), number(literal).as_u64(), number(literal).as_f64())
    };
    assert_eq!(held("10.0"), (Some(10), Some(10), Some(10.0)));
    assert_eq!(held("-3"), (Some(-3), None, Some(-3.0)));
    assert_eq!(held("0.5"), (None, None, Some(0.5)));
    assert_eq!(held("9007199254740993"), (Some(9007199254740993), Some(9007199254740993), None));
    assert_eq!(held("18446744073709551615"), (None, Some(u64::MAX), None));
    assert_eq!(held("9223372036854775808"), (None, Some(1 << 63), None));
    assert_eq!(held("-9223372036854775808"), (Some(i64::MIN), None, None));
    assert_eq!(held("1e20"), (None, None, Some(1e20)));
    assert_eq!(held("1e400"), (None, None, None));
    assert_eq!(held("1e-400"), (None, None, None));
    assert_eq!(Number::from(u64::MAX), number("18446744073709551615"));
    assert_eq!(Number::from(7_u64), Number::from(7_i64));
    assert_eq!(Number::from(i64::MIN).to_string(), i64::MIN.to_string());
}

#[test]
fn the_grammar_is_that_of_json() {
    for text in [
        "", "-", "+1", "01", "-01", "1.", ".1", "1e", "1e+", "1 ", " 1", "1x", "0x1", "NaN",
        "1.e1", "١",
    ] {
        assert_eq!(text.parse::<Number>(), Err(NumberError::Syntax), "{text}");
    }
    assert_eq!("1e10001".parse::<Number>(), Err(NumberError::ExponentTooLarge));
    assert_eq!("1".repeat(10_001).parse::<Number>(), Err(NumberError::TooLong));
}

/// Numbers whose canonical spelling is longer than what was written are read again all the same.
#[test]
fn what_grew_past_the_bound_is_accepted_again() {
    let ones = |count: usize| "1".repeat(count);
    let grown = [
        ones(10_000),
        format!("-{}", ones(9_999)),
        format!("{}e-9999", ones(9_994)),
        format!("-1.{}e-6", ones(9_994)),
        format!("1.{}e-7", ones(9_995)),
        format!("{}e3", ones(9_997)),
        format!("0.{}e-9", ones(9_995)),
    ];
    for literal in grown {
        let bytes = literal.as_bytes();
        assert!(bytes.len() <= 10_000, "{}", bytes.len());
        let value = parse(bytes, &Limits::BARE).unwrap();
        let canonical = value.to_canonical();
        let again = parse(&canonical, &Limits::BARE).unwrap();
        assert_eq!(again, value);
        assert_eq!(again.to_canonical(), canonical);
    }
    // One digit more has no spelling within the bound, so that its canonical one is refused too.
    let longest = format!("1.{}e+9999", ones(9_999));
    assert!(longest.parse::<Number>().is_ok());
    let longer = format!("1.{}e+9999", ones(10_000));
    assert_eq!(longer.parse::<Number>(), Err(NumberError::TooLong));
    // Nor does a long literal pass that is not the canonical one.
    let padded = format!("1.{}E+9999", ones(9_999));
    assert_eq!(padded.parse::<Number>(), Err(NumberError::TooLong));
}

mod properties {
    use super::number;
    use portcullis_canon::Number;
    use proptest::prelude::*;
    use std::str::FromStr;

    proptest! {
        #[test]
        fn every_double_comes_back(bits in any::<u64>()) {
            let double = f64::from_bits(bits);
            prop_assume!(double.is_finite() && double != 0.0);
            prop_assert_eq!(Number::from_f64(double).unwrap().as_f64(), Some(double));
        }

        #[test]
        fn every_integer_comes_back(int in any::<i64>(), wide in any::<u64>()) {
            prop_assert_eq!(Number::from(int).as_i64(), Some(int));
            prop_assert_eq!(Number::from(int), number(&int.to_string()));
            prop_assert_eq!(Number::from(wide).as_u64(), Some(wide));
            prop_assert_eq!(Number::from(wide), number(&wide.to_string()));
        }

        #[test]
        fn moving_the_point_changes_nothing(
            digits in "[1-9][0-9]{0,40}", by in 0_usize..40, exponent in -300_i32..300,
        ) {
            let plain = number(&format!("{digits}e{exponent}"));
            let cut = by.min(digits.len() - 1);
            let (int, fraction) = digits.split_at(digits.len() - cut);
            let moved = i64::from(exponent) + i64::try_from(cut).unwrap();
            let point = if fraction.is_empty() { String::new() } else { format!(".{fraction}") };
            prop_assert_eq!(&number(&format!("{int}{point}e{moved}")), &plain);
            let zeros = "0".repeat(by);
            prop_assert_eq!(&number(&format!("{digits}{zeros}e{}", i64::from(exponent) - i64::try_from(by).unwrap())), &plain);
            prop_assert_eq!(Number::from_str(&plain.to_string()).unwrap(), plain);
        }

        #[test]
        fn spelling_agrees_with_the_shortest_double(literal in "-?(0|[1-9][0-9]{0,15})(\\.[0-9]{1,8})?(e-?[0-9]{1,2})?") {
            let read = number(&literal);
            if let Some(double) = read.as_f64() {
                let shortest = ryu_js::Buffer::new().format(double + 0.0).to_owned();
                prop_assert_eq!(shortest, read.to_string());
                prop_assert_eq!(double, literal.parse::<f64>().unwrap());
            }
        }
    }
}
