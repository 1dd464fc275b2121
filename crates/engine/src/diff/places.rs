//! Where two JSON values are not alike.

use std::collections::BTreeSet;

use portcullis_canon::Value;

/// A JSON pointer, and what stands there on each side.
pub(super) type Place = (String, Option<Value>, Option<Value>);

/// The first places at which the values differ, at most `most`; none when they are equal. Objects are compared by their
/// members and arrays by position; anything else whole.
pub(super) fn places(one: &Value, other: &Value, most: usize) -> Vec<Place> {
    let mut walk = Walk { at: String::new(), found: Vec::new(), most };
    walk.compare(Some(one), Some(other));
    walk.found
}

struct Walk {
    at: String,
    found: Vec<Place>,
    most: usize,
}

impl Walk {
    /// Goes as deep as the values do, which were parsed within a bound.
    fn compare(&mut self, one: Option<&Value>, other: Option<&Value>) {
        if one == other || self.found.len() >= self.most {
            return;
        }
        match (one, other) {
            (Some(Value::Object(one)), Some(Value::Object(other))) => {
                let keys: BTreeSet<&str> = one.keys().chain(other.keys()).collect();
                for key in keys {
                    let step = key.replace('~', "~0").replace('/', "~1");
                    self.inside(&step, one.get(key), other.get(key));
                }
            }
            (Some(Value::Array(one)), Some(Value::Array(other))) => {
                for at in 0..one.len().max(other.len()) {
                    self.inside(&at.to_string(), one.get(at), other.get(at));
                }
            }
            (one, other) => self.found.push((self.at.clone(), one.cloned(), other.cloned())),
        }
    }

    fn inside(&mut self, step: &str, one: Option<&Value>, other: Option<&Value>) {
        let kept = self.at.len();
        self.at.push('/');
        self.at.push_str(step);
        self.compare(one, other);
        self.at.truncate(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_canon::{Limits, parse};

    #[track_caller]
    fn check(one: &str, other: &str, expected: &[&str]) {
        let read = |text: &str| parse(text.as_bytes(), &Limits::BARE).unwrap();
        let found = places(&read(one), &read(other), 4);
        let at: Vec<&str> = found.iter().map(|(at, ..)| at.as_str()).collect();
        assert_eq!(at, expected, "{one} {other}");
        let back = places(&read(other), &read(one), 4);
        let turned: Vec<Place> =
            back.into_iter().map(|(at, one, other)| (at, other, one)).collect();
        assert_eq!(found, turned);
    }

    #[test]
    fn places_are_pointers_to_what_differs() {
        check("{}", "{}", &[]);
        check("1", "2", &[""]);
        check(r#"{"a":1,"b":2}"#, r#"{"a":1,"c":2}"#, &["/b", "/c"]);
        check(r#"{"a":{"x/y":[1,{"~":2}]}}"#, r#"{"a":{"x/y":[1,{"~":3}]}}"#, &["/a/x~1y/1/~0"]);
        check("[1,2,3]", "[1,3]", &["/1", "/2"]);
        check(r#"{"a":null}"#, "{}", &["/a"]);
        check("[1]", r#"{"0":1}"#, &[""]);
        check("[1,2,3,4,5,6]", "[]", &["/0", "/1", "/2", "/3"]);
    }

    #[test]
    fn nothing_is_told_from_null() {
        let one = parse(br#"{"a":null}"#, &Limits::BARE).unwrap();
        let other = parse(b"{}", &Limits::BARE).unwrap();
        assert_eq!(places(&one, &other, 4), [("/a".to_owned(), Some(Value::Null), None)]);
    }
}
