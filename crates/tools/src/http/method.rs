//! Methods by the names that agents and operators write.

use portcullis_egress::Method;

/// Every method, those that only read first.
pub(super) const ALL: [(Method, &str); 6] = [
    (Method::Get, "GET"),
    (Method::Head, "HEAD"),
    (Method::Post, "POST"),
    (Method::Put, "PUT"),
    (Method::Patch, "PATCH"),
    (Method::Delete, "DELETE"),
];

/// Whether a method changes nothing by what HTTP says of it (RFC 9110, section 9.2.1).
pub(super) const fn reads(method: Method) -> bool {
    matches!(method, Method::Get | Method::Head)
}

/// A method by its name in capitals.
#[must_use]
pub fn http_method(name: &str) -> Option<Method> {
    ALL.into_iter().find(|(_, known)| *known == name).map(|(method, _)| method)
}

/// Their names in the order of [`ALL`], with commas.
pub(super) fn names(methods: &[Method]) -> String {
    let known = ALL.iter().filter(|(method, _)| methods.contains(method));
    known.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_has_one_spelling() {
        assert_eq!(http_method("DELETE"), Some(Method::Delete));
        for other in ["get", "Get", "TRACE", "CONNECT", "", "GET "] {
            assert_eq!(http_method(other), None, "{other}");
        }
        assert_eq!(names(&[Method::Post, Method::Get]), "GET, POST");
        assert!(reads(Method::Head) && !reads(Method::Delete));
    }
}
