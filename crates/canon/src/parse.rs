//! Reading JSON strictly.
//!
//! Checks come in one order, so that a document with several faults always gets the same answer:
//! size, depth, UTF-8, one well-formed value, lone surrogates, repeated keys, number bounds.
//! Nothing here recurses. An error says what and where, never what stood there.

use crate::limits::Limits;
use crate::number::{Number, NumberError, scan, small_natural};
use crate::object::Object;
use crate::scan::plain_run;
use crate::value::Value;

/// What is wrong with a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    /// More bytes than the limit.
    #[error("json is longer than the limit")]
    TooLarge,
    /// More open brackets than the limit.
    #[error("json is nested deeper than the limit")]
    TooDeep,
    /// A byte sequence that is no UTF-8.
    #[error("json is not valid utf-8")]
    Utf8,
    /// A byte order mark in front.
    #[error("json begins with a byte order mark")]
    ByteOrderMark,
    /// Nothing, or nothing but space.
    #[error("json is empty")]
    Empty,
    /// The text ends inside a value.
    #[error("json ends too early")]
    UnexpectedEnd,
    /// A byte that the grammar does not allow here.
    #[error("json is malformed")]
    Syntax,
    /// A raw control character inside a string.
    #[error("json string holds a raw control character")]
    ControlCharacter,
    /// A backslash sequence that JSON does not have.
    #[error("json string holds an unknown escape")]
    Escape,
    /// Something after the value.
    #[error("json goes on after its value")]
    TrailingData,
    /// An escaped surrogate without its other half.
    #[error("json string holds an unpaired surrogate")]
    LoneSurrogate,
    /// A key that stands twice in one object, compared after unescaping.
    #[error("json object repeats a key")]
    DuplicateKey,
    /// A number literal longer than 10,000 bytes.
    #[error("json number is too long")]
    NumberTooLong,
    /// An exponent beyond 10,000.
    #[error("json number has an exponent that is too large")]
    NumberExponent,
}

impl Fault {
    /// The stable name, in `snake_case`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::TooDeep => "too_deep",
            Self::Utf8 => "utf8",
            Self::ByteOrderMark => "byte_order_mark",
            Self::Empty => "empty",
            Self::UnexpectedEnd => "unexpected_end",
            Self::Syntax => "syntax",
            Self::ControlCharacter => "control_character",
            Self::Escape => "escape",
            Self::TrailingData => "trailing_data",
            Self::LoneSurrogate => "lone_surrogate",
            Self::DuplicateKey => "duplicate_key",
            Self::NumberTooLong => "number_too_long",
            Self::NumberExponent => "number_exponent",
        }
    }
}

/// A refused document: the fault and the byte offset where it was seen.
///
/// For a repeated key the offset is that of the bracket which closes the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fault} (byte {offset})")]
pub struct ParseError {
    /// What is wrong.
    pub fault: Fault,
    /// Where, in bytes from the start.
    pub offset: usize,
}

/// Reads one JSON value with nothing but space around it.
///
/// # Errors
///
/// The first fault in the order that the module names.
pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Value, ParseError> {
    if bytes.len() > limits.max_bytes {
        return Err(ParseError { fault: Fault::TooLarge, offset: limits.max_bytes });
    }
    check_depth(bytes, limits.max_depth)?;
    let text = std::str::from_utf8(bytes)
        .map_err(|error| ParseError { fault: Fault::Utf8, offset: error.valid_up_to() })?;
    if text.starts_with('\u{FEFF}') {
        return Err(ParseError { fault: Fault::ByteOrderMark, offset: 0 });
    }
    let mut reader = Reader { text, bytes, at: 0, surrogate: None, repeated: None, number: None };
    let value = reader.document()?;
    match reader.surrogate.or(reader.repeated).or(reader.number) {
        Some(error) => Err(error),
        None => Ok(value),
    }
}

/// Counts brackets outside strings, before anything else looks at the text.
fn check_depth(bytes: &[u8], max_depth: u32) -> Result<(), ParseError> {
    let mut depth = 0_u32;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                if depth > max_depth {
                    return Err(ParseError { fault: Fault::TooDeep, offset: at });
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => at = string_end(bytes, at + 1),
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// The offset of the quote that closes the string whose text begins at `at`, or the end.
fn string_end(bytes: &[u8], mut at: usize) -> usize {
    loop {
        at += plain_run(bytes.get(at..).unwrap_or_default());
        match bytes.get(at) {
            None | Some(b'"') => return at,
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
        }
    }
}

/// A container whose closing bracket has not come yet.
enum Open {
    Array(Vec<Value>),
    Object { entries: Vec<(String, Value)>, key: String },
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    // Faults that a malformed rest outranks: the first of each kind is kept until the end.
    surrogate: Option<ParseError>,
    repeated: Option<ParseError>,
    number: Option<ParseError>,
}

impl Reader<'_> {
    fn document(&mut self) -> Result<Value, ParseError> {
        self.skip_space();
        if self.peek().is_none() {
            return Err(self.fail(Fault::Empty));
        }
        let mut open: Vec<Open> = Vec::new();
        loop {
            let mut whole = self.front(&mut open)?;
            // Hand the finished value to the container around it, as often as one closes.
            while let Some(value) = whole {
                let Some(container) = open.last_mut() else {
                    self.skip_space();
                    return match self.peek() {
                        None => Ok(value),
                        Some(_) => Err(self.fail(Fault::TrailingData)),
                    };
                };
                let closed = self.attach(container, value)?;
                whole =
                    if closed { open.pop().map(|container| self.close(container)) } else { None };
            }
        }
    }

    /// Reads a scalar or an empty container; or opens a container, whose first value comes next.
    fn front(&mut self, open: &mut Vec<Open>) -> Result<Option<Value>, ParseError> {
        self.skip_space();
        let value = match self.peek() {
            None => return Err(self.fail(Fault::UnexpectedEnd)),
            Some(b'"') => {
                self.at += 1;
                Value::String(self.string()?)
            }
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b'[') => {
                self.at += 1;
                self.skip_space();
                if self.peek() != Some(b']') {
                    open.push(Open::Array(Vec::new()));
                    return Ok(None);
                }
                self.at += 1;
                Value::Array(Vec::new())
            }
            Some(b'{') => {
                self.at += 1;
                self.skip_space();
                if self.peek() != Some(b'}') {
                    let key = self.key()?;
                    open.push(Open::Object { entries: Vec::new(), key });
                    return Ok(None);
                }
                self.at += 1;
                Value::Object(Object::new())
            }
            Some(b't') => self.word("true", Value::Bool(true))?,
            Some(b'f') => self.word("false", Value::Bool(false))?,
            Some(b'n') => self.word("null", Value::Null)?,
            Some(_) => return Err(self.fail(Fault::Syntax)),
        };
        Ok(Some(value))
    }

    /// Puts a value into the innermost container and reads on: up to the next value, or past the
    /// closing bracket, in which case it answers true.
    fn attach(&mut self, container: &mut Open, value: Value) -> Result<bool, ParseError> {
        self.skip_space();
        let next = self.peek();
        let closing = match container {
            Open::Array(items) => {
                items.push(value);
                b']'
            }
            Open::Object { entries, key } => {
                entries.push((std::mem::take(key), value));
                b'}'
            }
        };
        match next {
            Some(b',') => {
                self.at += 1;
                if let Open::Object { key, .. } = container {
                    self.skip_space();
                    *key = self.key()?;
                }
                Ok(false)
            }
            Some(byte) if byte == closing => {
                self.at += 1;
                Ok(true)
            }
            Some(_) => Err(self.fail(Fault::Syntax)),
            None => Err(self.fail(Fault::UnexpectedEnd)),
        }
    }

    /// The value that a container is once its closing bracket has been read.
    fn close(&mut self, container: Open) -> Value {
        match container {
            Open::Array(items) => Value::Array(items),
            Open::Object { entries, .. } => {
                let (object, unique) = Object::from_read(entries);
                if !unique {
                    let error = ParseError { fault: Fault::DuplicateKey, offset: self.at - 1 };
                    self.repeated.get_or_insert(error);
                }
                Value::Object(object)
            }
        }
    }

    /// Reads a key and the colon after it.
    fn key(&mut self) -> Result<String, ParseError> {
        self.expect(b'"')?;
        let key = self.string()?;
        self.skip_space();
        self.expect(b':')?;
        Ok(key)
    }

    fn expect(&mut self, byte: u8) -> Result<(), ParseError> {
        match self.peek() {
            Some(found) if found == byte => {
                self.at += 1;
                Ok(())
            }
            Some(_) => Err(self.fail(Fault::Syntax)),
            None => Err(self.fail(Fault::UnexpectedEnd)),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, ParseError> {
        for byte in word.bytes() {
            self.expect(byte)?;
        }
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, ParseError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if let Some((int, len)) = small_natural(rest) {
            self.at += len;
            return Ok(Value::Number(int.into()));
        }
        let literal = scan(rest).map_err(|offset| {
            let at = self.at + offset;
            let fault = if at < self.bytes.len() { Fault::Syntax } else { Fault::UnexpectedEnd };
            ParseError { fault, offset: at }
        })?;
        let number = Number::from_literal(&literal).unwrap_or_else(|error| {
            let fault = match error {
                NumberError::ExponentTooLarge => Fault::NumberExponent,
                NumberError::TooLong | NumberError::Syntax => Fault::NumberTooLong,
            };
            let error = self.fail(fault);
            self.number.get_or_insert(error);
            // Never seen by anyone: the kept fault refuses the document.
            Number::from(0_i64)
        });
        self.at += literal.text.len();
        Ok(Value::Number(number))
    }

    /// Reads the rest of a string after its opening quote.
    fn string(&mut self) -> Result<String, ParseError> {
        // Most strings are one run, which is then copied once into just the room that it needs.
        let mut out = self.run().to_owned();
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push(self.escape()?);
                    out.push_str(self.run());
                }
                Some(_) => return Err(self.fail(Fault::ControlCharacter)),
                None => return Err(self.fail(Fault::UnexpectedEnd)),
            }
        }
    }

    /// The text up to the next byte that is special in a string.
    fn run(&mut self) -> &str {
        let start = self.at;
        self.at += plain_run(self.bytes.get(start..).unwrap_or_default());
        // A run ends before an ASCII byte or at the end, hence on a character boundary.
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// Reads an escape after its backslash.
    fn escape(&mut self) -> Result<char, ParseError> {
        let c = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode_escape();
            }
            Some(_) => return Err(self.fail(Fault::Escape)),
            None => return Err(self.fail(Fault::UnexpectedEnd)),
        };
        self.at += 1;
        Ok(c)
    }

    /// Reads four hex digits after `\u`, and the low half that a high surrogate needs at once.
    fn unicode_escape(&mut self) -> Result<char, ParseError> {
        let start = self.at;
        let first = self.four_hex()?;
        let code = if (0xD800..0xDC00).contains(&first) && self.follows(b"\\u") {
            let after_high = self.at;
            self.at += 2;
            let second = self.four_hex()?;
            if (0xDC00..0xE000).contains(&second) {
                0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00)
            } else {
                // What follows is a character of its own: read it again as one.
                self.at = after_high;
                first
            }
        } else {
            first
        };
        Ok(char::from_u32(code).unwrap_or_else(|| {
            let error = ParseError { fault: Fault::LoneSurrogate, offset: start };
            self.surrogate.get_or_insert(error);
            // Never seen by anyone: the kept fault refuses the document.
            char::REPLACEMENT_CHARACTER
        }))
    }

    fn follows(&self, word: &[u8]) -> bool {
        self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(word))
    }

    fn four_hex(&mut self) -> Result<u32, ParseError> {
        let mut code = 0;
        for _ in 0..4 {
            let Some(byte) = self.peek() else { return Err(self.fail(Fault::UnexpectedEnd)) };
            let Some(digit) = char::from(byte).to_digit(16) else {
                return Err(self.fail(Fault::Escape));
            };
            code = code << 4 | digit;
            self.at += 1;
        }
        Ok(code)
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn fail(&self, fault: Fault) -> ParseError {
        ParseError { fault, offset: self.at }
    }
}
