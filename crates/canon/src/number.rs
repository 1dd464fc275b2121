//! Numbers, kept as the one canonical spelling of the exact decimal that was written.
//!
//! The spelling is the one of RFC 8785 (that is, of ECMAScript) applied to *all* the digits of
//! the literal instead of to the nearest double: plain between 1e-6 and 1e21, scientific outside.
//! Where the shortest spelling of a double denotes the literal's decimal, the two agree byte for
//! byte; where no double does, as for 9007199254740993, nothing is lost. `10`, `10.0` and `1e1`
//! are one number, spelled `10`; `-0` is spelled `0`, as RFC 8785 has it.

use crate::limits::{MAX_NUMBER_BYTES, MAX_NUMBER_EXPONENT};
use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::str::FromStr;

/// An exact decimal number.
///
/// Two numbers are equal exactly when they denote the same decimal.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Number(Repr);

/// `Int` holds every number whose spelling is a plain integer within `i64`; all others are `Text`.
/// One decimal thus has one representation, which is what the derived equality relies on.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Int(i64),
    Text(Box<str>),
}

/// Why a literal is no acceptable number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    /// The text does not follow the grammar of a JSON number.
    #[error("not a json number")]
    Syntax,
    /// The literal is longer than 10,000 bytes.
    #[error("number literal is longer than {MAX_NUMBER_BYTES} bytes")]
    TooLong,
    /// The exponent, as written or in scientific form, is beyond 10,000 in either direction.
    #[error("number exponent is beyond {MAX_NUMBER_EXPONENT}")]
    ExponentTooLarge,
}

impl Number {
    /// The number a finite double's shortest spelling denotes; `None` for NaN and infinities.
    #[must_use]
    pub fn from_f64(value: f64) -> Option<Self> {
        if !value.is_finite() {
            return None;
        }
        ryu_js::Buffer::new().format_finite(value).parse().ok()
    }

    /// The value, when it is an integer within `i64`.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match &self.0 {
            Repr::Int(int) => Some(*int),
            Repr::Text(_) => None,
        }
    }

    /// The value, when it is an integer within `u64`.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        match &self.0 {
            Repr::Int(int) => u64::try_from(*int).ok(),
            Repr::Text(text) => text.parse().ok(),
        }
    }

    /// The double whose shortest spelling denotes exactly this decimal; `None` when there is none.
    ///
    /// Never a rounded value: a caller that would round has to say so itself.
    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        const SAFE: u64 = 1 << 53;
        match &self.0 {
            // Within 53 bits each integer has a double of its own, so nothing needs comparing.
            #[allow(clippy::cast_precision_loss, reason = "the guard keeps it within 53 bits")]
            Repr::Int(int) if int.unsigned_abs() <= SAFE => Some(*int as f64),
            _ => {
                let spelling = self.spelling();
                let double: f64 = spelling.parse().ok()?;
                let exact = double.is_finite()
                    && ryu_js::Buffer::new().format_finite(double) == spelling.as_ref();
                exact.then_some(double)
            }
        }
    }

    /// Whether `i64`, `u64` or a double's shortest spelling denotes exactly this decimal.
    ///
    /// An argument of a tool that is not exact is refused: schema, policy and tool could
    /// otherwise see another number than the one that was hashed.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.as_i64().is_some() || self.as_u64().is_some() || self.as_f64().is_some()
    }

    /// Whether the decimal is an integer that is spelled out in full, that is below 1e21.
    pub(crate) fn is_integer(&self) -> bool {
        match &self.0 {
            Repr::Int(_) => true,
            Repr::Text(text) => text.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit()),
        }
    }

    /// The canonical spelling.
    #[must_use]
    pub fn spelling(&self) -> Cow<'_, str> {
        match &self.0 {
            Repr::Int(int) => {
                let mut text = String::new();
                push_int(&mut text, *int);
                Cow::Owned(text)
            }
            Repr::Text(text) => Cow::Borrowed(text),
        }
    }

    /// Appends the canonical spelling.
    pub(crate) fn write_to(&self, out: &mut String) {
        match &self.0 {
            Repr::Int(int) => push_int(out, *int),
            Repr::Text(text) => out.push_str(text),
        }
    }

    /// The number that a scanned literal denotes, within the bounds.
    pub(crate) fn from_literal(literal: &Literal<'_>) -> Result<Self, NumberError> {
        if let Some(int) = literal.small_int() {
            return Ok(Self(Repr::Int(int)));
        }
        // The longest canonical spelling of a number that has one of 10,000 bytes is 8 longer.
        if literal.text.len() > MAX_NUMBER_BYTES + 8 {
            return Err(NumberError::TooLong);
        }
        let decimal = Decimal::of(literal)?;
        let spelling = decimal.spelling();
        // Moving the point and writing the exponent can make a canonical spelling longer than
        // what was written. Such a spelling is accepted again, and only it, so that whatever the
        // encoder writes can be read.
        if literal.text.len() > MAX_NUMBER_BYTES
            && (literal.text != spelling.as_bytes() || decimal.shortest_len() > MAX_NUMBER_BYTES)
        {
            return Err(NumberError::TooLong);
        }
        Ok(spelling.parse::<i64>().map_or_else(
            |_| Self(Repr::Text(spelling.into_boxed_str())),
            |int| Self(Repr::Int(int)),
        ))
    }
}

impl FromStr for Number {
    type Err = NumberError;

    /// Reads one number literal by the grammar of JSON, without space around it.
    fn from_str(text: &str) -> Result<Self, NumberError> {
        let literal = scan(text.as_bytes()).map_err(|_| NumberError::Syntax)?;
        if literal.text.len() != text.len() {
            return Err(NumberError::Syntax);
        }
        Self::from_literal(&literal)
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Self(Repr::Int(value))
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        match i64::try_from(value) {
            Ok(int) => Self(Repr::Int(int)),
            Err(_) => Self(Repr::Text(value.to_string().into_boxed_str())),
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spelling())
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Appends an integer; shorter than the formatting machinery, which shows in benchmarks.
fn push_int(out: &mut String, value: i64) {
    let mut digits = [0_u8; 20];
    let mut rest = value.unsigned_abs();
    let mut used = 0;
    for slot in digits.iter_mut().rev() {
        #[allow(clippy::cast_possible_truncation, reason = "a remainder of ten fits")]
        let digit = (rest % 10) as u8;
        *slot = b'0' + digit;
        used += 1;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push('-');
    }
    out.extend(digits.iter().skip(digits.len() - used).map(|digit| char::from(*digit)));
}

/// A literal taken apart by the grammar, before any arithmetic.
pub(crate) struct Literal<'a> {
    /// The whole literal.
    pub(crate) text: &'a [u8],
    negative: bool,
    int: &'a [u8],
    fraction: &'a [u8],
    exponent_negative: bool,
    exponent: &'a [u8],
}

impl Literal<'_> {
    /// The value of a plain integer of at most 18 digits: what nearly every literal is.
    fn small_int(&self) -> Option<i64> {
        if self.int.len() > 18 || self.text.len() != self.int.len() + usize::from(self.negative) {
            return None;
        }
        let magnitude = self.int.iter().fold(0_i64, |sum, d| sum * 10 + i64::from(d - b'0'));
        Some(if self.negative { -magnitude } else { magnitude })
    }
}

/// Reads what nearly every literal is, a few digits with nothing behind them, and its length.
///
/// `None` says only that [`scan`] has to look.
pub(crate) fn small_natural(bytes: &[u8]) -> Option<(i64, usize)> {
    let mut value = 0_i64;
    for (len, byte) in bytes.iter().enumerate().take(19) {
        match byte {
            b'0'..=b'9' if len < 18 => value = value * 10 + i64::from(byte - b'0'),
            b'.' | b'e' | b'E' | b'-' | b'0'..=b'9' => return None,
            // A leading zero is left to the grammar.
            _ if len > 1 && bytes.first() == Some(&b'0') => return None,
            _ if len > 0 => return Some((value, len)),
            _ => return None,
        }
    }
    None
}

/// Splits the literal that `bytes` begin with, or says at which offset the grammar is broken.
pub(crate) fn scan(bytes: &[u8]) -> Result<Literal<'_>, usize> {
    let at = |index: usize| bytes.get(index).copied();
    let digits = |from: usize| {
        let tail = bytes.get(from..).unwrap_or_default();
        let len = tail.iter().position(|b| !b.is_ascii_digit()).unwrap_or(tail.len());
        tail.get(..len).unwrap_or_default()
    };
    let negative = at(0) == Some(b'-');
    let mut end = usize::from(negative);
    let mut int = digits(end);
    if int.is_empty() {
        return Err(end);
    }
    if int.first() == Some(&b'0') && int.len() > 1 {
        // The grammar ends the literal after a leading zero; the next digit is what is wrong.
        int = int.get(..1).unwrap_or_default();
    }
    end += int.len();
    if int == b"0" && at(end).is_some_and(|b| b.is_ascii_digit()) {
        return Err(end);
    }
    let mut fraction: &[u8] = &[];
    if at(end) == Some(b'.') {
        fraction = digits(end + 1);
        end += 1 + fraction.len();
        if fraction.is_empty() {
            return Err(end);
        }
    }
    let (mut exponent_negative, mut exponent): (bool, &[u8]) = (false, &[]);
    if matches!(at(end), Some(b'e' | b'E')) {
        let sign = at(end + 1);
        exponent_negative = sign == Some(b'-');
        let from = end + 1 + usize::from(matches!(sign, Some(b'+' | b'-')));
        exponent = digits(from);
        end = from + exponent.len();
        if exponent.is_empty() {
            return Err(end);
        }
    }
    let text = bytes.get(..end).unwrap_or_default();
    Ok(Literal { text, negative, int, fraction, exponent_negative, exponent })
}

/// Drops the zeros in front and says how many there were.
fn trim_leading(digits: &[u8]) -> (&[u8], usize) {
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    (digits.get(zeros..).unwrap_or_default(), zeros)
}

/// `0.DIGITS × 10^point`, without zeros at either end of the digits; zero has no digits.
struct Decimal {
    negative: bool,
    digits: String,
    point: i64,
}

impl Decimal {
    fn of(literal: &Literal<'_>) -> Result<Self, NumberError> {
        let (exponent, _) = trim_leading(literal.exponent);
        if exponent.len() > 5 {
            return Err(NumberError::ExponentTooLarge);
        }
        let magnitude = exponent.iter().fold(0_i64, |sum, d| sum * 10 + i64::from(d - b'0'));
        if magnitude > MAX_NUMBER_EXPONENT {
            return Err(NumberError::ExponentTooLarge);
        }
        let exponent = if literal.exponent_negative { -magnitude } else { magnitude };
        let (int, int_zeros) = trim_leading(literal.int);
        let (fraction, fraction_zeros) =
            if int.is_empty() { trim_leading(literal.fraction) } else { (literal.fraction, 0) };
        let mut digits = String::with_capacity(int.len() + fraction.len());
        digits.extend(int.iter().chain(fraction).map(|digit| char::from(*digit)));
        digits.truncate(digits.trim_end_matches('0').len());
        if digits.is_empty() {
            return Ok(Self { negative: false, digits, point: 0 });
        }
        let shift = |len: usize| i64::try_from(len).map_err(|_| NumberError::TooLong);
        let point =
            shift(literal.int.len())? - shift(int_zeros)? - shift(fraction_zeros)? + exponent;
        if (point - 1).abs() > MAX_NUMBER_EXPONENT {
            return Err(NumberError::ExponentTooLarge);
        }
        Ok(Self { negative: literal.negative, digits, point })
    }

    /// The canonical spelling.
    fn spelling(&self) -> String {
        let count = i64::try_from(self.digits.len()).unwrap_or(i64::MAX);
        let mut out = String::with_capacity(self.digits.len() + 8);
        if count == 0 {
            out.push('0');
            return out;
        }
        if self.negative {
            out.push('-');
        }
        let split = |at: i64| self.digits.split_at(usize::try_from(at).unwrap_or_default());
        let zeros = |len: i64| std::iter::repeat_n('0', usize::try_from(len).unwrap_or_default());
        if (1..=21).contains(&self.point) {
            let (int, fraction) = split(self.point.min(count));
            out.push_str(int);
            out.extend(zeros(self.point - count));
            if !fraction.is_empty() {
                out.push('.');
                out.push_str(fraction);
            }
        } else if (-5..=0).contains(&self.point) {
            out.push_str("0.");
            out.extend(zeros(-self.point));
            out.push_str(&self.digits);
        } else {
            let (first, rest) = split(1);
            out.push_str(first);
            if !rest.is_empty() {
                out.push('.');
                out.push_str(rest);
            }
            // Writing to a string cannot fail.
            let _ = write!(out, "e{:+}", self.point - 1);
        }
        out
    }

    /// The length of the shortest literal that denotes this number.
    fn shortest_len(&self) -> usize {
        let count = self.digits.len();
        let shortest = (1..=count)
            .map(|before_point| {
                let exponent = self.point - i64::try_from(before_point).unwrap_or(i64::MAX);
                let written = match exponent {
                    0 => 0,
                    exponent => 1 + exponent.to_string().len(),
                };
                usize::from(before_point < count) + written
            })
            .min()
            .unwrap_or_default();
        usize::from(self.negative) + count + shortest
    }
}
