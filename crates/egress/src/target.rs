//! Where a request goes: a URL with one reading, the one that is judged, shown and dialled.

use std::fmt;
use std::net::IpAddr;

use url::{Host, Url};

use crate::address::{AddressClass, classify};
use crate::rules::LOCALHOST;

/// The longest URL, in bytes.
pub const MAX_URL: usize = 8 * 1024;

/// The longest name of a host, in bytes.
const MAX_NAME: usize = 253;

/// Why a text is no URL that this crate goes to. None of them repeats the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetFault {
    /// Over [`MAX_URL`].
    #[error("the URL is longer than {MAX_URL} bytes")]
    TooLong,
    /// Spaces, control characters, backslashes, or anything beyond ASCII.
    #[error("the URL has a character that has to be percent-encoded (in a name: as punycode)")]
    Character,
    /// Not `http://` or `https://`, in lower case.
    #[error("the URL does not begin with `https://` or `http://`")]
    Scheme,
    /// A name or a password before the host.
    #[error("the URL carries a user or a password; name a credential instead")]
    UserInfo,
    /// No host, or one that is no name and no address.
    #[error("the URL has no usable host")]
    Host,
    /// An address or a name in a spelling that other programs read otherwise: `0x7f.1`, `017700000001`, a dot at the end.
    #[error("the URL's host is spelled in an odd way; write the plain address or name")]
    OddHost,
    /// Not a number from 1 to 65535 in plain digits.
    #[error("the URL's port is not a plain number from 1 to 65535")]
    Port,
    /// A part that is never sent.
    #[error("the URL has a fragment (`#`), which is never sent; leave it out")]
    Fragment,
    /// Dots, backslashes or characters that would be rewritten before sending.
    #[error("the URL's path or query would be rewritten; write it as it is sent")]
    Rewritten,
}

/// A URL that was read strictly. Its debug form has no path and no query, since tokens stand there.
///
/// ```
/// use portcullis_egress::{Target, TargetFault};
///
/// let target = Target::parse("https://api.example.com/v1/chat?stream=true")?;
/// assert_eq!(target.origin(), "https://api.example.com");
/// assert_eq!(Target::parse("http://0x7f.1/").unwrap_err(), TargetFault::OddHost);
/// # Ok::<(), TargetFault>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    url: Url,
    place: Place,
}

/// The host of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// An address that was written out.
    Literal(IpAddr),
    /// A name in lower case.
    Name(String),
}

impl Target {
    /// Reads a URL that has exactly one meaning.
    ///
    /// # Errors
    /// Everything that a second reader could understand differently; see [`TargetFault`].
    pub fn parse(text: &str) -> Result<Self, TargetFault> {
        if text.len() > MAX_URL {
            return Err(TargetFault::TooLong);
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
            return Err(TargetFault::Character);
        }
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let rest = rest.ok_or(TargetFault::Scheme)?;
        let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(TargetFault::UserInfo);
        }
        if tail.contains('#') {
            return Err(TargetFault::Fragment);
        }
        let (host, port) = split_port(authority)?;
        let url = Url::parse(text).map_err(|_| TargetFault::Host)?;
        let place = place(&url, host)?;
        if port.is_some_and(|port| Some(port) != url.port_or_known_default()) {
            return Err(TargetFault::Port);
        }
        if !is_sent_as(tail, &url) {
            return Err(TargetFault::Rewritten);
        }
        Ok(Self { url, place })
    }

    /// The host: a name in lower case, or an address (IPv6 in brackets).
    #[must_use]
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// The port, the scheme's own when none is written.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or_default()
    }

    /// Whether the connection is encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Host and port, the port only where it is not the scheme's own: what credentials are bound to.
    #[must_use]
    pub fn authority(&self) -> String {
        match self.url.port() {
            Some(port) => format!("{}:{port}", self.host()),
            None => self.host().to_owned(),
        }
    }

    /// Scheme, host and port: what may be shown and logged.
    #[must_use]
    pub fn origin(&self) -> String {
        format!("{}://{}", self.url.scheme(), self.authority())
    }

    /// Whether it is this machine beyond doubt: a loopback address that is written out, or `localhost`, for which loopback
    /// addresses are dialled and nobody is asked.
    #[must_use]
    pub fn is_this_machine(&self) -> bool {
        match &self.place {
            Place::Literal(address) => classify(*address) == AddressClass::Loopback,
            Place::Name(name) => name == LOCALHOST,
        }
    }

    /// The path, which begins with `/`.
    #[must_use]
    pub fn path(&self) -> &str {
        self.url.path()
    }

    /// The whole of it, as it is sent. Tokens may stand in a query, so it is shown to nobody but who is meant to open it.
    #[must_use]
    pub fn text(&self) -> &str {
        self.url.as_str()
    }

    /// The whole of it as text, with these pairs at the end of its query: to be opened by a person, and not by this crate.
    #[must_use]
    pub fn with_query(&self, pairs: &[(&str, &str)]) -> String {
        let mut url = self.url.clone();
        url.query_pairs_mut().extend_pairs(pairs);
        url.into()
    }

    pub(crate) const fn url(&self) -> &Url {
        &self.url
    }

    pub(crate) const fn place(&self) -> &Place {
        &self.place
    }
}

/// What a query says, pair by pair: `a=1&b=2`, with its escapes read.
#[must_use]
pub fn pairs(query: &str) -> Vec<(String, String)> {
    url::form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&self.origin()).finish()
    }
}

/// Splits a port off: plain digits without a zero in front.
fn split_port(authority: &str) -> Result<(&str, Option<u16>), TargetFault> {
    let end = if authority.starts_with('[') {
        authority.find(']').map(|at| at + 1)
    } else {
        Some(authority.find(':').unwrap_or(authority.len()))
    };
    let split = end.and_then(|end| authority.split_at_checked(end));
    let (host, rest) = split.filter(|(host, _)| !host.is_empty()).ok_or(TargetFault::Host)?;
    if rest.is_empty() {
        return Ok((host, None));
    }
    let digits = rest.strip_prefix(':').ok_or(TargetFault::Host)?;
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    let port = digits.parse().ok().filter(|_| plain);
    port.map(|port| (host, Some(port))).ok_or(TargetFault::Port)
}

/// The host as it was read, if it was written the way that it is read.
fn place(url: &Url, written: &str) -> Result<Place, TargetFault> {
    let read = url.host_str().ok_or(TargetFault::Host)?;
    if !written.eq_ignore_ascii_case(read) {
        return Err(TargetFault::OddHost);
    }
    match url.host() {
        Some(Host::Ipv4(address)) => Ok(Place::Literal(address.into())),
        Some(Host::Ipv6(address)) => Ok(Place::Literal(address.into())),
        Some(Host::Domain(name)) => check_name(name).map(|()| Place::Name(name.to_owned())),
        None => Err(TargetFault::Host),
    }
}

/// Labels of 1 to 63 letters, digits, `-` and `_`; not a number at the end, which resolvers take for an address.
fn check_name(name: &str) -> Result<(), TargetFault> {
    if name.ends_with('.') {
        return Err(TargetFault::OddHost);
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    let fits = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(plain);
    let last_is_name = name.rsplit('.').next().is_some_and(|label| {
        label.bytes().any(|b| !b.is_ascii_digit()) && !label.starts_with("0x")
    });
    if name.len() <= MAX_NAME && name.split('.').all(fits) && last_is_name {
        Ok(())
    } else {
        Err(TargetFault::Host)
    }
}

/// Whether path and query leave the machine as they were written. A missing path is `/`.
fn is_sent_as(tail: &str, url: &Url) -> bool {
    let (path, query) = match tail.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (tail, None),
    };
    let path = if path.is_empty() { "/" } else { path };
    path == url.path() && query == url.query()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> TargetFault {
        Target::parse(text).expect_err(text)
    }

    #[test]
    fn plain_urls_are_read() {
        for (text, host, port) in [
            ("https://api.example.com/v1/x?y=1&z=%20", "api.example.com", 443),
            ("http://127.0.0.1:11434/api/chat", "127.0.0.1", 11434),
            ("http://[::1]:8080/", "[::1]", 8080),
            ("https://API.Example.com", "api.example.com", 443),
            ("https://xn--bcher-kva.example:443/", "xn--bcher-kva.example", 443),
            ("https://example.com?x", "example.com", 443),
        ] {
            let target = Target::parse(text).expect(text);
            assert_eq!((target.host(), target.port()), (host, port), "{text}");
        }
    }

    #[test]
    fn odd_spellings_of_hosts_are_refused() {
        for text in [
            "http://0x7f.1/",
            "http://0x7f000001/",
            "http://017700000001/",
            "http://2130706433/",
            "http://127.1/",
            "http://127.0.0.01/",
            "http://0177.0.0.1/",
            "http://127.0.0.1./",
            "http://%31%32%37.0.0.1/",
            "http://ex%61mple.com/",
            "http://[0:0:0:0:0:0:0:1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::0001]/",
            "https://example.com./",
        ] {
            assert_eq!(fault(text), TargetFault::OddHost, "{text}");
        }
        // Zone ids, and what is no host at all.
        for text in [
            "http://[fe80::1%25eth0]/",
            "http://[fe80::1%eth0]/",
            "http://[::1",
            "http:///x",
            "http://a..b/",
            "http://.a/",
            "http://1.2.3.4.5/",
            "http://256.1.1.1/",
            "http://a.b*c/",
            "http://-x!/",
        ] {
            assert_eq!(fault(text), TargetFault::Host, "{text}");
        }
    }

    #[test]
    fn what_a_second_reader_could_misread_is_refused() {
        for (text, expected) in [
            ("https://user@example.com/", TargetFault::UserInfo),
            ("https://example.com@127.0.0.1/", TargetFault::UserInfo),
            ("https://example.com\\@127.0.0.1/", TargetFault::Character),
            ("https://ex\u{e4}mple.com/", TargetFault::Character),
            ("https://１２７.0.0.1/", TargetFault::Character),
            ("https://example.com/a b", TargetFault::Character),
            ("https://example.com/\n", TargetFault::Character),
            ("HTTPS://example.com/", TargetFault::Scheme),
            ("ftp://example.com/", TargetFault::Scheme),
            ("file:///etc/passwd", TargetFault::Scheme),
            ("https:example.com", TargetFault::Scheme),
            ("https://example.com/#x", TargetFault::Fragment),
            ("https://example.com:/", TargetFault::Port),
            ("https://example.com:0/", TargetFault::Port),
            ("https://example.com:0443/", TargetFault::Port),
            ("https://example.com:65536/", TargetFault::Port),
            ("https://example.com:+443/", TargetFault::Port),
            ("https://example.com/a/../b", TargetFault::Rewritten),
            ("https://example.com/a/%2e%2e/b", TargetFault::Rewritten),
            ("https://example.com/./a", TargetFault::Rewritten),
            ("https://example.com/a\"b", TargetFault::Rewritten),
            ("https://example.com/?a='b'", TargetFault::Rewritten),
        ] {
            assert_eq!(fault(text), expected, "{text}");
        }
        let long = format!("https://example.com/{}", "a".repeat(MAX_URL));
        assert_eq!(fault(&long), TargetFault::TooLong);
    }

    #[test]
    fn the_debug_form_has_no_path_and_no_query() {
        let target = Target::parse("https://example.com/canary-path?canary-query").expect("a URL");
        let shown = format!("{target:?}");
        assert!(shown.contains("https://example.com") && !shown.contains("canary"), "{shown}");
    }

    proptest::proptest! {
        /// Whatever is accepted is sent as it was written, and the standard library reads its address the same.
        #[test]
        fn what_is_accepted_has_one_reading(
            scheme in "https?",
            host in "(\\[[0-9a-f:.%]{1,20}\\]|[0-9a-zA-ZxX.%@_-]{1,24})",
            port in "(:[0-9+-]{0,6})?",
            tail in "([/?#][ -~]{0,24})?",
        ) {
            let text = format!("{scheme}://{host}{port}{tail}");
            if let Ok(target) = Target::parse(&text) {
                let bare = target.host().trim_start_matches('[').trim_end_matches(']');
                match target.place() {
                    Place::Literal(address) => {
                        proptest::prop_assert_eq!(bare.parse::<IpAddr>().ok(), Some(*address));
                    }
                    Place::Name(name) => {
                        proptest::prop_assert!(bare.parse::<IpAddr>().is_err());
                        proptest::prop_assert_eq!(name.as_str(), host.to_ascii_lowercase());
                    }
                }
                proptest::prop_assert!(text.to_ascii_lowercase().contains(target.host()));
                proptest::prop_assert!(target.url().as_str().ends_with(tail.as_str()) || tail.is_empty()
                    || tail.starts_with('?'));
                let again = Target::parse(target.url().as_str());
                proptest::prop_assert_eq!(again, Ok(target));
            }
        }
    }
}
