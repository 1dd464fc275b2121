//! The resolver that the HTTP library asks: a name is resolved once, judged whole, and what was judged is dialled.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::error::Fault;
use crate::names::{MAX_ADDRESSES, Names};
use crate::rules::{EgressRules, LOCALHOST};

/// Between the HTTP library and the names. An address that is written out never comes here: the library dials what
/// stands in the URL, and that was judged by [`EgressRules::admit`].
pub(crate) struct Dialler {
    rules: Arc<EgressRules>,
    names: Arc<dyn Names>,
}

impl Dialler {
    pub(crate) fn new(rules: Arc<EgressRules>, names: Arc<dyn Names>) -> Self {
        Self { rules, names }
    }
}

impl Resolve for Dialler {
    fn resolve(&self, name: Name) -> Resolving {
        let (rules, names) = (Arc::clone(&self.rules), Arc::clone(&self.names));
        Box::pin(async move {
            let judged = judged(&rules, names.as_ref(), name.as_str()).await?;
            // The port is the URL's: zero means that none is meant here.
            Ok(Box::new(judged.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

/// The addresses of a name, if every one of them is within reach. One that is not refuses the name: which of them is
/// dialled is not ours to choose, and a name with both is an attack.
async fn judged(rules: &EgressRules, names: &dyn Names, name: &str) -> Result<Vec<IpAddr>, Fault> {
    if name == LOCALHOST {
        // RFC 6761: nobody is asked where this machine is.
        return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
    }
    let host = || name.to_owned();
    let reach = rules.reach(name).ok_or_else(|| Fault::NotAdmitted { host: host() })?;
    let found = names.resolve(name).await.map_err(|_| Fault::Unresolved { host: host() })?;
    if found.is_empty() || found.len() > MAX_ADDRESSES {
        return Err(Fault::Unresolved { host: host() });
    }
    for address in &found {
        reach.judge(*address).map_err(|class| Fault::Address { host: host(), class })?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::AddressClass;
    use crate::names::Unresolved;
    use crate::rules::{HostRule, Reach};
    use portcullis_domain::ports::BoxFuture;

    struct Fixed(Vec<IpAddr>);

    impl Names for Fixed {
        fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, Unresolved>> {
            Box::pin(std::future::ready(Ok(self.0.clone())))
        }
    }

    fn check(name: &str, reach: Reach, found: &[&str]) -> Result<Vec<IpAddr>, Fault> {
        let rule = HostRule::new(name, reach).expect("a rule");
        let rules = EgressRules::closed().host(rule).expect("one rule");
        let found = found.iter().map(|text| text.parse().expect("an address")).collect();
        portcullis_testkit::block_on(judged(&rules, &Fixed(found), name))
    }

    #[test]
    fn one_address_out_of_reach_refuses_the_name() {
        let public = check("a.example", Reach::Public, &["1.1.1.1", "2606:4700::1"]);
        assert_eq!(public.map(|found| found.len()), Ok(2));
        for (bad, class) in [
            ("127.0.0.1", AddressClass::Loopback),
            ("10.0.0.1", AddressClass::Private),
            ("169.254.169.254", AddressClass::LinkLocal),
            ("::ffff:1.1.1.1", AddressClass::Transition),
        ] {
            let mixed = check("a.example", Reach::Public, &["1.1.1.1", bad]);
            let host = "a.example".to_owned();
            assert_eq!(mixed, Err(Fault::Address { host, class }), "{bad}");
        }
    }

    #[test]
    fn a_private_reach_is_no_reach_for_everything() {
        assert!(check("a.corp", Reach::Private, &["10.0.0.1", "127.0.0.1", "100.64.0.1"]).is_ok());
        for bad in ["169.254.169.254", "100.100.100.200", "0.0.0.0", "::ffff:10.0.0.1"] {
            assert!(check("a.corp", Reach::Private, &[bad]).is_err(), "{bad}");
        }
    }

    #[test]
    fn no_addresses_and_too_many_are_refused() {
        let unresolved = Err(Fault::Unresolved { host: "a.example".to_owned() });
        assert_eq!(check("a.example", Reach::Public, &[]), unresolved);
        assert_eq!(check("a.example", Reach::Public, &["1.1.1.1"; MAX_ADDRESSES + 1]), unresolved);
        assert!(check("a.example", Reach::Public, &["1.1.1.1"; MAX_ADDRESSES]).is_ok());
    }

    #[test]
    fn nobody_is_asked_where_this_machine_is() {
        let names = Fixed(vec!["8.8.8.8".parse().expect("an address")]);
        let rules = EgressRules::closed().loopback();
        let found = portcullis_testkit::block_on(judged(&rules, &names, LOCALHOST));
        assert!(found.is_ok_and(|found| found.iter().all(IpAddr::is_loopback)));
    }
}
