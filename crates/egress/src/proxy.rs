//! A proxy of the operator's. Without a rule there is none, whatever the environment says.

use crate::address::{AddressClass, classify};
use crate::names::is_metadata;
use crate::rules::LOCALHOST;
use crate::target::{Place, Target, TargetFault};

/// The most hosts that may be reached without the proxy.
const MAX_DIRECT: usize = 256;

/// Why a proxy is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyFault {
    /// Its URL is not read.
    #[error("the proxy cannot be used: {0}")]
    Url(#[from] TargetFault),
    /// More than an origin.
    #[error("the proxy's URL is an origin only: scheme, host and port")]
    Path,
    /// It lies where nothing is reachable.
    #[error("the proxy is {0}, which is never dialled")]
    Closed(AddressClass),
    /// An entry of the list of direct hosts.
    #[error(
        "an entry of the list without proxy is no host and no `.suffix` (networks such as 10.0.0.0/8 are not read)"
    )]
    Direct,
}

/// One proxy for http and https, and the hosts that are reached without it. It takes no user and no password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    url: Target,
    /// Exact hosts, or suffixes with a dot in front.
    direct: Vec<String>,
}

impl Proxy {
    /// A proxy at an origin such as `http://proxy.corp:3128`; `direct` are hosts (`a.example`) and suffixes (`.corp`).
    ///
    /// # Errors
    /// What is no origin, and entries that are no hosts.
    pub fn new<'a>(
        url: &str,
        direct: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, ProxyFault> {
        let url = Target::parse(url)?;
        if url.url().path() != "/" || url.url().query().is_some() {
            return Err(ProxyFault::Path);
        }
        match url.place() {
            Place::Literal(address) => match classify(*address) {
                AddressClass::Public
                | AddressClass::Private
                | AddressClass::Shared
                | AddressClass::Loopback => {}
                class => return Err(ProxyFault::Closed(class)),
            },
            Place::Name(name) if is_metadata(name) => {
                return Err(ProxyFault::Closed(AddressClass::Metadata));
            }
            Place::Name(_) => {}
        }
        let direct: Vec<String> = direct.into_iter().map(str::to_ascii_lowercase).collect();
        let is_host = |entry: &String| {
            let host = entry.strip_prefix('.').unwrap_or(entry);
            Target::parse(&format!("https://{host}/")).is_ok_and(|read| read.host() == host)
        };
        if direct.len() > MAX_DIRECT || !direct.iter().all(is_host) {
            return Err(ProxyFault::Direct);
        }
        Ok(Self { url, direct })
    }

    /// What the variables of the environment say, for an operator who wants that: `HTTPS_PROXY`, else `ALL_PROXY`, and
    /// `NO_PROXY`, each also in lower case, which wins. `lookup` reads a variable.
    ///
    /// # Errors
    /// As [`Proxy::new`].
    pub fn from_environment(
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, ProxyFault> {
        let first = |names: [&str; 2]| {
            names.into_iter().filter_map(&lookup).find(|value| !value.is_empty())
        };
        let url =
            first(["https_proxy", "HTTPS_PROXY"]).or_else(|| first(["all_proxy", "ALL_PROXY"]));
        let Some(url) = url else { return Ok(None) };
        let direct = first(["no_proxy", "NO_PROXY"]).unwrap_or_default();
        if direct.trim() == "*" {
            return Ok(None);
        }
        let mut entries = Vec::new();
        for entry in direct.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            entries.push(entry.to_owned());
            // There, a name means the names below it too.
            if !entry.starts_with('.') && !entry.contains([':', '[']) {
                entries.push(format!(".{entry}"));
            }
        }
        // An address has nothing below it.
        entries.retain(|entry| {
            entry.strip_prefix('.').is_none_or(|host| host.parse::<std::net::Ipv4Addr>().is_err())
        });
        Self::new(&url, entries.iter().map(String::as_str)).map(Some)
    }

    /// The host that is dialled in place of others.
    pub(crate) fn host(&self) -> &str {
        self.url.host()
    }

    pub(crate) const fn url(&self) -> &url::Url {
        self.url.url()
    }

    /// Whether a host is reached without the proxy. This machine always is: what goes there stays there.
    pub(crate) fn leaves_out(&self, host: Option<url::Host<&str>>) -> bool {
        let name = match host {
            Some(url::Host::Ipv4(address)) if address.is_loopback() => return true,
            Some(url::Host::Ipv6(address)) if address.is_loopback() => return true,
            Some(url::Host::Ipv4(address)) => address.to_string(),
            Some(url::Host::Ipv6(address)) => format!("[{address}]"),
            Some(url::Host::Domain(name)) => name.to_owned(),
            None => return false,
        };
        let below = |entry: &String| entry.starts_with('.') && name.ends_with(entry.as_str());
        name == LOCALHOST || self.direct.iter().any(|entry| *entry == name || below(entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves_out(proxy: &Proxy, url: &str) -> bool {
        proxy.leaves_out(Target::parse(url).expect(url).url().host())
    }

    #[test]
    fn this_machine_and_the_listed_hosts_are_reached_directly() {
        let direct = ["a.example", ".corp", "10.0.0.1"];
        let proxy = Proxy::new("http://proxy.corp:3128", direct).expect("a proxy");
        for url in [
            "http://127.0.0.1:1/",
            "http://127.9.9.9/",
            "http://[::1]/",
            "http://localhost/",
            "https://a.example/",
            "https://b.corp/",
            "https://10.0.0.1/",
        ] {
            assert!(leaves_out(&proxy, url), "{url}");
        }
        for url in [
            "https://b.a.example/",
            "https://xa.example/",
            "https://corp.example/",
            "https://10.0.0.2/",
        ] {
            assert!(!leaves_out(&proxy, url), "{url}");
        }
    }

    #[test]
    fn odd_proxies_are_refused() {
        let refused = |url: &str| Proxy::new(url, []).err();
        assert_eq!(
            refused("http://user:word@proxy/"),
            Some(ProxyFault::Url(TargetFault::UserInfo))
        );
        assert_eq!(refused("socks5://proxy/"), Some(ProxyFault::Url(TargetFault::Scheme)));
        assert_eq!(refused("http://proxy/path"), Some(ProxyFault::Path));
        let metadata = Some(ProxyFault::Closed(AddressClass::LinkLocal));
        assert_eq!(refused("http://169.254.169.254/"), metadata);
        let network = Proxy::new("http://proxy/", ["10.0.0.0/8"]).err();
        assert_eq!(network, Some(ProxyFault::Direct));
    }

    #[test]
    fn the_environment_is_read_only_through_what_is_handed_in() {
        let variables = [
            ("HTTPS_PROXY", "http://upper:1"),
            ("https_proxy", "http://lower:2"),
            ("NO_PROXY", "a.example, .b.example,10.0.0.1"),
        ];
        let lookup = |name: &str| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        let proxy = Proxy::from_environment(lookup).expect("read").expect("a proxy");
        assert_eq!(proxy.host(), "lower");
        assert!(
            leaves_out(&proxy, "https://x.a.example/") && leaves_out(&proxy, "https://10.0.0.1/")
        );
        assert_eq!(Proxy::from_environment(|_| None), Ok(None));
        let all = |name: &str| (name != "no_proxy").then(|| "http://p:1".to_owned());
        assert!(Proxy::from_environment(all).is_err(), "a URL in NO_PROXY is no host");
    }
}
