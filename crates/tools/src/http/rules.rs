//! Where the HTTP tools may go, with which methods and which credential: the operator's rules, checked once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use portcullis_domain::ports::Disposition;
use portcullis_egress::{
    CredentialRef, Deadlines, EgressRules, HostRule, Method, Reach, Request, RulesFault, Target,
    TargetFault,
};

use super::method;

/// The most places that rules name.
pub const MAX_HTTP_PLACES: usize = 32;

/// The most bytes of an answer's body that rules can ask for: each may become six in JSON.
pub const MAX_HTTP_CONTENT: u64 = 2 * 1024 * 1024;

/// The most bytes of an answer's body unless the rules name another bound.
const USUAL_CONTENT: u64 = 256 * 1024;

/// The longest that a call may wait.
const MAX_TIMEOUT: Duration = Duration::from_secs(600);

/// How long a call waits unless the rules say otherwise.
const USUAL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long name, connection and TLS may take, within the whole.
const CONNECT: Duration = Duration::from_secs(10);

/// The most headers of an answer that rules add to [`USUAL_HEADERS`].
const MAX_MORE_HEADERS: usize = 32;

/// The headers of an answer that are handed out.
pub(super) const USUAL_HEADERS: [&str; 8] = [
    "allow",
    "content-language",
    "content-type",
    "date",
    "etag",
    "last-modified",
    "location",
    "retry-after",
];

/// Headers of an answer that are never handed out: they carry what lets somebody in.
const NEVER_HEADERS: [&str; 3] = ["set-cookie", "authentication-info", "proxy-authentication-info"];

/// Why rules for the HTTP tools are refused. Places are the operator's own words, as they were checked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpFault {
    /// A place is no origin.
    #[error("a place is no origin such as `https://api.example.com`: {0}")]
    Target(#[from] TargetFault),
    /// A place says more than an origin, or says it in another spelling.
    #[error(
        "a place is scheme, host and, where it is not the usual one, port, in lower case and without a path: `{0}`"
    )]
    Origin(String),
    /// Nothing could be reached.
    #[error("the HTTP tools have no place to go to; name one, or leave them out")]
    NoPlace,
    /// More than [`MAX_HTTP_PLACES`].
    #[error("the HTTP tools go to at most {MAX_HTTP_PLACES} places")]
    TooManyPlaces,
    /// Two rules for one place.
    #[error("two rules name `{0}`; put their methods into one")]
    Twice(String),
    /// Nothing could be done there.
    #[error("no method is admitted at `{0}`; name some, such as `GET`")]
    NoMethod(String),
    /// One host is private in one rule and public in another.
    #[error("the rules for the ports of `{0}` differ in whether it is private")]
    Reach(String),
    /// A credential would go over the wire unencrypted.
    #[error(
        "a credential goes to `{0}` over https only; plain http carries one to this machine alone"
    )]
    ClearCredential(String),
    /// A header's name that is none, or one that is not for this.
    #[error("a header's name is none, or is one that the tools neither send nor hand out")]
    Header,
    /// More than 32 further headers.
    #[error("at most {MAX_MORE_HEADERS} further headers are handed out")]
    TooManyHeaders,
    /// Nothing, or more than ten minutes.
    #[error("a call may take from one second to ten minutes")]
    Timeout,
    /// Nothing, or more than [`MAX_HTTP_CONTENT`].
    #[error("an answer's body is bounded by 1 byte to 2 MiB")]
    Content,
    /// What no rule can open.
    #[error(transparent)]
    Rules(#[from] RulesFault),
}

impl HttpFault {
    /// What the error asks of the caller: in each case a person mends the rules.
    #[must_use]
    pub const fn disposition(&self) -> Disposition {
        Disposition::Operator
    }
}

/// One place and what may be done there: reading by `GET` and `HEAD`, unless other methods are named.
#[derive(Clone, Debug)]
pub struct HttpPlace {
    origin: String,
    target: Target,
    reach: Reach,
    methods: Vec<Method>,
    credential: Option<CredentialRef>,
    keyed: Option<String>,
}

impl HttpPlace {
    /// A place by its origin: scheme, host, and the port where it is not the scheme's own, such as
    /// `https://api.example.com` or `http://localhost:8080`.
    ///
    /// # Errors
    /// [`HttpFault::Target`] and [`HttpFault::Origin`].
    pub fn new(origin: &str) -> Result<Self, HttpFault> {
        let target = Target::parse(&format!("{origin}/"))?;
        if target.origin() != origin {
            return Err(HttpFault::Origin(target.origin()));
        }
        Ok(Self {
            origin: origin.to_owned(),
            target,
            reach: Reach::Public,
            methods: vec![Method::Get, Method::Head],
            credential: None,
            keyed: None,
        })
    }

    /// Admits private addresses behind the name. A place of this machine needs no leave.
    #[must_use]
    pub fn private(mut self) -> Self {
        self.reach = Reach::Private;
        self
    }

    /// These methods in place of `GET` and `HEAD`.
    #[must_use]
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = methods.into_iter().collect();
        self
    }

    /// Sends a credential of the client with each request. Bind it to this place alone: the client puts it in, and
    /// looks only at what it is bound to.
    #[must_use]
    pub fn credential(mut self, credential: CredentialRef) -> Self {
        self.credential = Some(credential);
        self
    }

    /// The operator's word that the place takes two requests with one key in this header for one, and answers both
    /// alike: what changes something goes there by `http.send_keyed`, and is repeated when nobody knows whether it
    /// happened.
    ///
    /// # Errors
    /// [`HttpFault::Header`].
    pub fn keeps_keys(mut self, header: &str) -> Result<Self, HttpFault> {
        let probe = Request::new(Method::Post, self.target.clone());
        probe.header(header, "x").map_err(|_| HttpFault::Header)?;
        self.keyed = Some(header.to_ascii_lowercase());
        Ok(self)
    }

    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// The host, as labels and messages name it.
    pub(super) fn host(&self) -> &str {
        self.target.host()
    }

    pub(super) fn admits(&self, method: Method) -> bool {
        self.methods.contains(&method)
    }

    pub(super) fn named_credential(&self) -> Option<&CredentialRef> {
        self.credential.as_ref()
    }

    /// The header that takes a key, if the place keeps them.
    pub(super) fn key_header(&self) -> Option<&str> {
        self.keyed.as_deref()
    }

    fn check(&self) -> Result<(), HttpFault> {
        if self.methods.is_empty() {
            return Err(HttpFault::NoMethod(self.origin.clone()));
        }
        let open = !self.target.is_encrypted() && !self.target.is_this_machine();
        if open && self.credential.is_some() {
            return Err(HttpFault::ClearCredential(self.origin.clone()));
        }
        Ok(())
    }
}

/// What the HTTP tools may do. Closed: what no place names is not reachable.
#[derive(Clone, Debug)]
pub struct HttpRules {
    places: BTreeMap<String, HttpPlace>,
    timeout: Duration,
    max_content: u64,
    headers: BTreeSet<String>,
}

impl HttpRules {
    /// These places; 30 seconds and 256 KiB a call.
    ///
    /// # Errors
    /// No place, too many, one named twice, and what [`HttpFault`] says of each.
    pub fn new(places: impl IntoIterator<Item = HttpPlace>) -> Result<Self, HttpFault> {
        let mut all = BTreeMap::new();
        for place in places {
            place.check()?;
            if let Some(twice) = all.insert(place.origin.clone(), place) {
                return Err(HttpFault::Twice(twice.origin));
            }
        }
        match all.len() {
            0 => Err(HttpFault::NoPlace),
            1..=MAX_HTTP_PLACES => Ok(Self {
                places: all,
                timeout: USUAL_TIMEOUT,
                max_content: USUAL_CONTENT,
                headers: USUAL_HEADERS.map(str::to_owned).into(),
            }),
            _ => Err(HttpFault::TooManyPlaces),
        }
    }

    /// How long a call may take, from one second to ten minutes.
    ///
    /// # Errors
    /// [`HttpFault::Timeout`].
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, HttpFault> {
        if timeout < Duration::from_secs(1) || timeout > MAX_TIMEOUT {
            return Err(HttpFault::Timeout);
        }
        self.timeout = timeout;
        Ok(self)
    }

    /// How many bytes of an answer's body are handed out, 1 to [`MAX_HTTP_CONTENT`]. More is cut, and said to be.
    ///
    /// # Errors
    /// [`HttpFault::Content`].
    pub fn max_content(mut self, bytes: u64) -> Result<Self, HttpFault> {
        if !(1..=MAX_HTTP_CONTENT).contains(&bytes) {
            return Err(HttpFault::Content);
        }
        self.max_content = bytes;
        Ok(self)
    }

    /// Further headers of answers that are handed out, by name.
    ///
    /// # Errors
    /// [`HttpFault::Header`] and [`HttpFault::TooManyHeaders`].
    pub fn headers<'n>(
        mut self,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Result<Self, HttpFault> {
        for name in names {
            let name = name.to_ascii_lowercase();
            let token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            let fits = (1..=64).contains(&name.len()) && name.bytes().all(token);
            if !fits || NEVER_HEADERS.contains(&name.as_str()) {
                return Err(HttpFault::Header);
            }
            self.headers.insert(name);
        }
        if self.headers.len() > USUAL_HEADERS.len() + MAX_MORE_HEADERS {
            return Err(HttpFault::TooManyHeaders);
        }
        Ok(self)
    }

    /// The rules of a client that reaches these places and no other.
    ///
    /// # Errors
    /// A host that is private in one place and public in another, and hosts that no rule can open.
    pub fn reachable(&self) -> Result<EgressRules, HttpFault> {
        let mut rules =
            EgressRules::closed().deadlines(CONNECT.min(self.timeout), self.deadlines())?;
        for place in self.places.values() {
            let (host, port) = (place.target.host(), place.target.port());
            if place.target.is_this_machine() {
                rules = rules.loopback_port(port);
                continue;
            }
            let rule = HostRule::new(host, place.reach)?.ports([port]);
            rules = rules.host(rule).map_err(|fault| match fault {
                RulesFault::Twice => HttpFault::Reach(host.to_owned()),
                fault => fault.into(),
            })?;
        }
        Ok(rules)
    }

    /// One deadline for all parts of a request: the gate has another for the call.
    pub(super) const fn deadlines(&self) -> Deadlines {
        Deadlines { header: self.timeout, idle: self.timeout, total: self.timeout }
    }

    pub(super) const fn whole(&self) -> Duration {
        self.timeout
    }

    pub(super) const fn content(&self) -> u64 {
        self.max_content
    }

    pub(super) fn hands_out(&self, header: &str) -> bool {
        self.headers.contains(header)
    }

    pub(super) fn handed_out(&self) -> usize {
        self.headers.len()
    }

    pub(super) fn place(&self, origin: &str) -> Option<&HttpPlace> {
        self.places.get(origin)
    }

    pub(super) fn places(&self) -> impl Iterator<Item = &HttpPlace> {
        self.places.values()
    }

    /// The whole of the rules as a person is shown them, and as their answer binds them.
    pub(super) fn shown(&self, places: &[&HttpPlace]) -> String {
        let mut shown = String::new();
        for place in places {
            let between = if shown.is_empty() { "" } else { "; " };
            let methods = method::names(&place.methods);
            let credential = place.credential.as_ref().map(CredentialRef::name);
            let with = credential.map(|name| format!(" with the credential `{name}`"));
            let private = if place.reach == Reach::Private { " (private)" } else { "" };
            // Writing to a text does not fail.
            let _ = write!(
                shown,
                "{between}{methods} {}{private}{}",
                place.origin,
                with.unwrap_or_default()
            );
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(origin: &str) -> HttpPlace {
        HttpPlace::new(origin).unwrap()
    }

    fn refused(places: impl IntoIterator<Item = HttpPlace>) -> HttpFault {
        HttpRules::new(places).and_then(|rules| rules.reachable()).unwrap_err()
    }

    #[test]
    fn a_place_is_an_origin_and_nothing_else() {
        for origin in [
            "https://api.example.com",
            "https://api.example.com:8443",
            "http://localhost:8080",
            "http://[::1]:8080",
        ] {
            assert_eq!(place(origin).origin(), origin);
        }
        for (other, meant) in [
            ("https://API.example.com", "https://api.example.com"),
            ("https://api.example.com:443", "https://api.example.com"),
            ("https://api.example.com/v1", "https://api.example.com"),
            ("https://api.example.com?x", "https://api.example.com"),
        ] {
            let fault = HttpPlace::new(other).err();
            assert_eq!(fault, Some(HttpFault::Origin(meant.to_owned())), "{other}");
        }
        for none in ["api.example.com", "ftp://a.example", "https://u@a.example", "https://*.a", ""]
        {
            assert!(matches!(HttpPlace::new(none), Err(HttpFault::Target(_))), "{none}");
        }
    }

    #[test]
    fn what_means_nothing_is_refused() {
        assert_eq!(refused([]), HttpFault::NoPlace);
        let many = (0..=MAX_HTTP_PLACES).map(|n| place(&format!("https://a{n}.example")));
        assert_eq!(refused(many), HttpFault::TooManyPlaces);
        let a = || place("https://a.example");
        assert_eq!(refused([a(), a()]), HttpFault::Twice("https://a.example".to_owned()));
        let idle = HttpFault::NoMethod("https://a.example".to_owned());
        assert_eq!(refused([a().methods([])]), idle);
        let two = [a(), place("https://a.example:8443").private()];
        assert_eq!(refused(two), HttpFault::Reach("a.example".to_owned()));
        let metadata = refused([place("http://169.254.169.254").private()]);
        assert!(matches!(metadata, HttpFault::Rules(RulesFault::Closed(_))), "{metadata}");
        let private = refused([place("https://10.0.0.5")]);
        assert!(matches!(private, HttpFault::Rules(RulesFault::Closed(_))), "{private}");
        assert!(a().keeps_keys("Idempotency-Key").is_ok());
        for header in ["authorization", "host", "a b", ""] {
            assert_eq!(a().keeps_keys(header).err(), Some(HttpFault::Header), "{header}");
        }
    }

    #[test]
    fn a_credential_never_goes_out_in_the_clear() {
        let with = |origin| place(origin).credential(CredentialRef::bearer("key"));
        let clear = HttpFault::ClearCredential("http://a.example".to_owned());
        assert_eq!(refused([with("http://a.example")]), clear);
        for safe in ["https://a.example", "http://localhost:8080", "http://127.0.0.1:8080"] {
            assert!(HttpRules::new([with(safe)]).is_ok(), "{safe}");
        }
        assert!(HttpRules::new([place("http://a.example")]).is_ok());
    }

    #[test]
    fn bounds_are_bounded() {
        let rules = || HttpRules::new([place("https://a.example")]).unwrap();
        let seconds = Duration::from_secs;
        for refused in [Duration::ZERO, Duration::from_millis(999), seconds(601)] {
            assert_eq!(rules().timeout(refused).err(), Some(HttpFault::Timeout));
        }
        assert!(rules().timeout(seconds(600)).and_then(|rules| rules.reachable()).is_ok());
        for refused in [0, MAX_HTTP_CONTENT + 1] {
            assert_eq!(rules().max_content(refused).err(), Some(HttpFault::Content));
        }
        for refused in ["set-cookie", "Set-Cookie", "a b", "", "x\n"] {
            assert_eq!(rules().headers([refused]).err(), Some(HttpFault::Header), "{refused:?}");
        }
        let names: Vec<String> = (0..=MAX_MORE_HEADERS).map(|n| format!("x-{n}")).collect();
        let many = rules().headers(names.iter().map(String::as_str));
        assert_eq!(many.err(), Some(HttpFault::TooManyHeaders));
        assert!(rules().headers(["X-Rate"]).unwrap().hands_out("x-rate"));
    }

    #[test]
    fn a_person_is_shown_what_may_be_done_where() {
        let two = HttpRules::new([
            place("https://b.example")
                .methods([Method::Post])
                .credential(CredentialRef::bearer("k")),
            place("https://a.example").private(),
        ])
        .unwrap();
        let places: Vec<_> = two.places().collect();
        let expected =
            "GET, HEAD https://a.example (private); POST https://b.example with the credential `k`";
        assert_eq!(two.shown(&places), expected);
    }
}
