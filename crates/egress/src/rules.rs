//! The operator's rules: where requests may go, how long they may take, how much may come back.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use crate::address::{AddressClass, classify};
use crate::error::Fault;
use crate::names::{is_metadata, is_special};
use crate::proxy::{Proxy, ProxyFault};
use crate::target::{Place, Target, TargetFault};
use crate::tls::{ExtraRoots, RootsFault};

/// The bound on a body unless the rules name another: 16 MiB.
pub const DEFAULT_MAX_BODY: u64 = 16 * 1024 * 1024;

/// The longest time that a deadline may be: one hour.
pub const MAX_DEADLINE: Duration = Duration::from_secs(3600);

/// Why rules, or a client made from them, are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RulesFault {
    /// A host of a rule is no host.
    #[error("a rule names a host that cannot be one: {0}")]
    Host(TargetFault),
    /// A rule for this machine, which has rules of its own.
    #[error("a rule names this machine (`localhost` or a loopback address); admit it by its port")]
    Loopback,
    /// A rule for a place that stays closed.
    #[error("a rule names {0}, which no rule can open")]
    Closed(AddressClass),
    /// A cloud's name for its metadata.
    #[error("a rule names a cloud's metadata service, which no rule can open")]
    Metadata,
    /// Two rules for one host that do not reach as far.
    #[error("two rules open one host, one of them for private addresses too; let both say it")]
    Twice,
    /// A deadline of zero, over [`MAX_DEADLINE`], or longer than the whole.
    #[error("deadlines are from one millisecond to an hour, and no part is longer than the whole")]
    Deadlines,
    /// A bound of zero.
    #[error("the bound on a body cannot be zero")]
    MaxBody,
    /// The file of further roots.
    #[error(transparent)]
    Roots(#[from] RootsFault),
    /// The proxy.
    #[error(transparent)]
    Proxy(#[from] ProxyFault),
    /// The TLS or HTTP library did not accept its settings.
    #[error("the HTTP client could not be made; this is a fault of the program")]
    Client,
}

/// What may be behind a host that a rule names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Public addresses only.
    Public,
    /// Also addresses of private networks, of a carrier's shared range, and of this machine.
    Private,
}

/// Leave for one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRule {
    host: String,
    ports: BTreeSet<u16>,
    reach: Reach,
}

impl HostRule {
    /// The host by its exact name or address, on port 443.
    ///
    /// # Errors
    /// What is no host, this machine, and what no rule can open.
    pub fn new(host: &str, reach: Reach) -> Result<Self, RulesFault> {
        let target = Target::parse(&format!("https://{host}/")).map_err(RulesFault::Host)?;
        // A port in the name would be read as part of it.
        if target.host() != host.to_ascii_lowercase() {
            return Err(RulesFault::Host(TargetFault::Host));
        }
        match target.place() {
            Place::Literal(address) => match classify(*address) {
                AddressClass::Loopback => return Err(RulesFault::Loopback),
                AddressClass::Public => {}
                AddressClass::Private | AddressClass::Shared if reach == Reach::Private => {}
                class => return Err(RulesFault::Closed(class)),
            },
            Place::Name(name) if name == LOCALHOST => return Err(RulesFault::Loopback),
            Place::Name(name) if is_metadata(name) => return Err(RulesFault::Metadata),
            Place::Name(_) => {}
        }
        Ok(Self { host: target.host().to_owned(), ports: BTreeSet::from([443]), reach })
    }

    /// These ports in place of 443.
    #[must_use]
    pub fn ports(mut self, ports: impl IntoIterator<Item = u16>) -> Self {
        self.ports = ports.into_iter().collect();
        self
    }
}

/// The one name of this machine.
pub(crate) const LOCALHOST: &str = "localhost";

/// How long the parts of a request may take, by the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// From sending to the head of the answer; a model that does not stream thinks in this time. 2 minutes.
    pub header: Duration,
    /// Between two pieces of a body. 1 minute.
    pub idle: Duration,
    /// The whole, with credentials and body. 15 minutes.
    pub total: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            header: Duration::from_secs(120),
            idle: Duration::from_secs(60),
            total: Duration::from_secs(900),
        }
    }
}

impl Deadlines {
    /// Whether each is more than nothing and no more than an hour, and none is longer than the whole.
    pub(crate) fn are_usable(&self) -> bool {
        let fits = |part: Duration| part >= Duration::from_millis(1) && part <= self.total;
        self.total <= MAX_DEADLINE && fits(self.header) && fits(self.idle) && fits(self.total)
    }
}

/// Which ports of this machine are reachable.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ThisMachine {
    Ports(BTreeSet<u16>),
    AnyPort,
}

/// The rules of one client, built once. Closed: what no rule names is not reachable.
///
/// TLS is always verified, and there is no rule against that. Link-local addresses, metadata services, addresses that
/// hide others and those of no single machine are never reachable.
#[derive(Clone, Debug)]
pub struct EgressRules {
    public: bool,
    this_machine: ThisMachine,
    hosts: BTreeMap<String, HostRule>,
    pub(crate) connect: Duration,
    pub(crate) deadlines: Deadlines,
    pub(crate) max_body: u64,
    pub(crate) roots: Option<ExtraRoots>,
    pub(crate) proxy: Option<Proxy>,
}

impl EgressRules {
    /// Nothing is reachable; 10 seconds to connect, [`Deadlines::default`], [`DEFAULT_MAX_BODY`].
    #[must_use]
    pub fn closed() -> Self {
        Self {
            public: false,
            this_machine: ThisMachine::Ports(BTreeSet::new()),
            hosts: BTreeMap::new(),
            connect: Duration::from_secs(10),
            deadlines: Deadlines::default(),
            max_body: DEFAULT_MAX_BODY,
            roots: None,
            proxy: None,
        }
    }

    /// Admits every host on the public internet, on any port.
    #[must_use]
    pub fn public(mut self) -> Self {
        self.public = true;
        self
    }

    /// Admits one host. A second rule for it adds its ports.
    ///
    /// # Errors
    /// When another rule has the host with another reach.
    pub fn host(mut self, rule: HostRule) -> Result<Self, RulesFault> {
        match self.hosts.entry(rule.host.clone()) {
            Entry::Vacant(place) => {
                place.insert(rule);
            }
            Entry::Occupied(mut known) if known.get().reach == rule.reach => {
                known.get_mut().ports.extend(rule.ports);
            }
            Entry::Occupied(_) => return Err(RulesFault::Twice),
        }
        Ok(self)
    }

    /// Admits one port of this machine: a local model server.
    #[must_use]
    pub fn loopback_port(mut self, port: u16) -> Self {
        if let ThisMachine::Ports(ports) = &mut self.this_machine {
            ports.insert(port);
        }
        self
    }

    /// Admits every port of this machine. Whatever listens there is then within reach.
    #[must_use]
    pub fn loopback(mut self) -> Self {
        self.this_machine = ThisMachine::AnyPort;
        self
    }

    /// Other deadlines than the default: `connect` covers name, connection and TLS.
    ///
    /// # Errors
    /// Those under a millisecond or over an hour, and a part that is longer than the whole.
    pub fn deadlines(
        mut self,
        connect: Duration,
        deadlines: Deadlines,
    ) -> Result<Self, RulesFault> {
        let connects = connect >= Duration::from_millis(1) && connect <= deadlines.total;
        if !connects || !deadlines.are_usable() {
            return Err(RulesFault::Deadlines);
        }
        self.connect = connect;
        self.deadlines = deadlines;
        Ok(self)
    }

    /// Another bound on bodies, in bytes. A request can ask for less, never for more.
    ///
    /// # Errors
    /// Zero.
    pub fn max_body(mut self, bytes: u64) -> Result<Self, RulesFault> {
        if bytes == 0 {
            return Err(RulesFault::MaxBody);
        }
        self.max_body = bytes;
        Ok(self)
    }

    /// Also trusts the certificate authorities of a PEM file of the operator's, at most 1 MiB.
    ///
    /// # Errors
    /// A file that others can write or that has no certificate.
    pub fn extra_roots(mut self, file: &Path) -> Result<Self, RulesFault> {
        self.roots = Some(ExtraRoots::read(file)?);
        Ok(self)
    }

    /// Sends everything but what goes to this machine through a proxy. The proxy resolves names, so that for a name only
    /// the name is judged.
    #[must_use]
    pub fn proxy(mut self, proxy: Proxy) -> Self {
        self.proxy = Some(proxy);
        self
    }

    /// Whether a target is within the rules, by what can be known before its name is resolved.
    pub(crate) fn admit(&self, target: &Target) -> Result<(), Fault> {
        let refused = || Fault::NotAdmitted { host: target.authority() };
        let rule = self.hosts.get(target.host()).filter(|rule| rule.ports.contains(&target.port()));
        match target.place() {
            Place::Literal(address) => {
                let class = classify(*address);
                if class == AddressClass::Loopback {
                    return self.reaches_port(target.port()).then_some(()).ok_or_else(refused);
                }
                let open = self.public && class == AddressClass::Public;
                let open = open && !self.hosts.contains_key(target.host());
                if rule.is_some() || open {
                    return Ok(());
                }
                Err(match class {
                    AddressClass::Public => refused(),
                    class => Fault::Address { host: target.host().to_owned(), class },
                })
            }
            Place::Name(name) if name == LOCALHOST => {
                self.reaches_port(target.port()).then_some(()).ok_or_else(refused)
            }
            Place::Name(name) => {
                let open = self.public && !is_special(name) && !self.is_proxy(name);
                // A rule for a host is the whole of what is said about it, ports included.
                let open = open && !self.hosts.contains_key(name);
                (rule.is_some() || open).then_some(()).ok_or_else(refused)
            }
        }
    }

    /// What may be behind a name that is about to be resolved; `None` when nothing admits it.
    pub(crate) fn reach(&self, name: &str) -> Option<Reach> {
        if is_metadata(name) {
            None
        } else if self.is_proxy(name) {
            Some(Reach::Private)
        } else if let Some(rule) = self.hosts.get(name) {
            Some(rule.reach)
        } else {
            (self.public && !is_special(name)).then_some(Reach::Public)
        }
    }

    fn reaches_port(&self, port: u16) -> bool {
        match &self.this_machine {
            ThisMachine::AnyPort => true,
            ThisMachine::Ports(ports) => ports.contains(&port),
        }
    }

    fn is_proxy(&self, name: &str) -> bool {
        self.proxy.as_ref().is_some_and(|proxy| proxy.host() == name)
    }
}

impl Reach {
    /// Whether an address that a name leads to is within reach.
    pub(crate) fn judge(self, address: IpAddr) -> Result<(), AddressClass> {
        match (classify(address), self) {
            (AddressClass::Public, _)
            | (
                AddressClass::Private | AddressClass::Shared | AddressClass::Loopback,
                Self::Private,
            ) => Ok(()),
            (class, _) => Err(class),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(rules: &EgressRules, url: &str) -> bool {
        rules.admit(&Target::parse(url).expect(url)).is_ok()
    }

    #[test]
    fn nothing_is_reachable_without_a_rule() {
        let rules = EgressRules::closed();
        for url in
            ["https://example.com/", "https://1.1.1.1/", "http://127.0.0.1/", "http://localhost/"]
        {
            assert!(!admits(&rules, url), "{url}");
        }
        assert_eq!(rules.reach("example.com"), None);
    }

    #[test]
    fn the_public_internet_is_no_private_place() {
        let rules = EgressRules::closed().public();
        for url in [
            "https://example.com/",
            "http://example.com:8080/",
            "https://1.1.1.1/",
            "https://[2606:4700::1]/",
        ] {
            assert!(admits(&rules, url), "{url}");
        }
        for url in [
            "http://127.0.0.1/",
            "http://localhost/",
            "http://10.0.0.1/",
            "http://169.254.169.254/latest/meta-data/",
            "http://[::ffff:a9fe:a9fe]/",
            "http://[fe80::1]/",
            "http://metadata.google.internal/",
            "http://metadata/",
            "http://printer/",
            "http://nas.local/",
            "http://app.localhost/",
            "http://db.corp.internal/",
        ] {
            assert!(!admits(&rules, url), "{url}");
        }
        assert_eq!(rules.reach("metadata.google.internal"), None);
        assert_eq!(rules.reach("nas.local"), None);
    }

    #[test]
    fn a_host_is_admitted_with_its_ports_only() {
        let rule = HostRule::new("Models.corp.internal", Reach::Private).expect("a rule");
        let rules = EgressRules::closed().host(rule.ports([8443])).expect("one rule");
        assert!(admits(&rules, "https://models.corp.internal:8443/"));
        assert!(!admits(&rules, "https://models.corp.internal/"));
        assert!(!admits(&rules, "https://x.models.corp.internal:8443/"));
        // With the public internet beside it, a rule stays the whole of what is said about its host.
        let rule = HostRule::new("api.example.com", Reach::Public).expect("a rule");
        let rules = EgressRules::closed().public().host(rule).expect("one rule");
        assert!(admits(&rules, "https://api.example.com/"));
        assert!(!admits(&rules, "https://api.example.com:8443/"));
    }

    #[test]
    fn this_machine_is_admitted_by_port() {
        let rules = EgressRules::closed().loopback_port(11434);
        for host in ["127.0.0.1", "127.1.2.3", "[::1]", "localhost"] {
            assert!(admits(&rules, &format!("http://{host}:11434/")), "{host}");
            assert!(!admits(&rules, &format!("http://{host}:11435/")), "{host}");
        }
        assert!(!admits(&rules, "http://10.0.0.1:11434/"));
    }

    #[test]
    fn no_rule_opens_what_stays_closed() {
        let refused = |host: &str| HostRule::new(host, Reach::Private).err();
        assert_eq!(refused("localhost"), Some(RulesFault::Loopback));
        assert_eq!(refused("127.0.0.2"), Some(RulesFault::Loopback));
        assert_eq!(refused("169.254.169.254"), Some(RulesFault::Closed(AddressClass::LinkLocal)));
        assert_eq!(refused("[fd00:ec2::254]"), Some(RulesFault::Closed(AddressClass::Metadata)));
        assert_eq!(refused("[64:ff9b::a00:1]"), Some(RulesFault::Closed(AddressClass::Transition)));
        assert_eq!(refused("metadata.google.internal"), Some(RulesFault::Metadata));
        assert_eq!(refused("a.example:8443"), Some(RulesFault::Host(TargetFault::Host)));
        assert_eq!(refused("0x7f.1"), Some(RulesFault::Host(TargetFault::OddHost)));
        assert_eq!(refused("10.0.0.5"), None);
        let public = HostRule::new("10.0.0.5", Reach::Public).err();
        assert_eq!(public, Some(RulesFault::Closed(AddressClass::Private)));
    }

    #[test]
    fn rules_of_one_host_are_one_with_all_ports() {
        let rule = |reach, port| HostRule::new("a.example", reach).expect("a rule").ports([port]);
        let rules = EgressRules::closed().host(rule(Reach::Public, 443)).expect("the first");
        let both = rules.clone().host(rule(Reach::Public, 8443)).expect("more ports");
        let admits = |rules: &EgressRules, url: &str| {
            rules.admit(&Target::parse(url).expect("a target")).is_ok()
        };
        for url in ["https://a.example/", "https://a.example:8443/"] {
            assert!(admits(&both, url), "{url}");
        }
        assert!(!admits(&rules, "https://a.example:8443/"));
        assert!(!admits(&both, "https://a.example:8080/"));
        let wider = rules.host(rule(Reach::Private, 443));
        assert_eq!(wider.err(), Some(RulesFault::Twice));
    }

    #[test]
    fn bounds_are_bounded() {
        let second = Duration::from_secs(1);
        let all = |part| Deadlines { header: part, idle: part, total: part };
        assert!(EgressRules::closed().deadlines(second, all(second)).is_ok());
        for (connect, deadlines) in [
            (Duration::ZERO, all(second)),
            (second * 2, all(second)),
            (second, all(second * 3601)),
            (second, Deadlines { idle: second * 2, ..all(second) }),
            (second, Deadlines { header: Duration::ZERO, ..all(second) }),
        ] {
            let refused = EgressRules::closed().deadlines(connect, deadlines).err();
            assert_eq!(refused, Some(RulesFault::Deadlines));
        }
        assert_eq!(EgressRules::closed().max_body(0).err(), Some(RulesFault::MaxBody));
    }
}
