//! Names: asking the system where they lead, and those that are special whatever it answers.

use std::fmt;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::Arc;

use portcullis_domain::ports::BoxFuture;
use tokio::sync::Semaphore;

/// How many addresses of one name are looked at; more is a refusal.
pub(crate) const MAX_ADDRESSES: usize = 64;

/// How many questions to the system may be open at once. One that hangs holds a thread, so there is a bound.
const MAX_QUESTIONS: usize = 16;

/// Names that clouds give to the service which hands out a machine's credentials.
const METADATA: &[&str] = &[
    "metadata",
    "metadata.azure.com",
    "metadata.azure.internal",
    "metadata.goog",
    "metadata.google.internal",
    "metadata.oraclecloud.com",
    "metadata.packet.net",
    "metadata.platformequinix.com",
    "metadata.tencentyun.com",
    "instance-data",
    "instance-data.ec2.internal",
    "instance-data.amazonaws.com",
    "kubernetes.default.svc",
    "rancher-metadata",
];

/// Ends of names that mean something inside a network, or nothing at all.
const INSIDE: &[&str] = &[
    "alt",
    "arpa",
    "corp",
    "domain",
    "example",
    "home",
    "host",
    "intern",
    "internal",
    "intranet",
    "invalid",
    "lan",
    "local",
    "localdomain",
    "localhost",
    "mail",
    "onion",
    "private",
    "svc",
    "test",
];

/// Whether a name is that of a metadata service: no rule opens it.
pub(crate) fn is_metadata(name: &str) -> bool {
    METADATA.contains(&name)
}

/// Whether a name is not one of the public internet: only a rule that names it opens it.
pub(crate) fn is_special(name: &str) -> bool {
    is_metadata(name) || name.rsplit_once('.').is_none_or(|(_, end)| INSIDE.contains(&end))
}

/// The name leads nowhere, or nobody could be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name could not be resolved")]
pub struct Unresolved;

/// Where names lead. What it answers is judged before anything is dialled.
pub trait Names: Send + Sync {
    /// All addresses of a name in lower case.
    ///
    /// # Errors
    /// When there are none, or nobody could be asked.
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, Unresolved>>;
}

/// The names of the operating system, as every other program on this machine sees them.
pub struct SystemNames {
    places: Arc<Semaphore>,
}

impl SystemNames {
    /// Asks the system.
    #[must_use]
    pub fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(MAX_QUESTIONS)) }
    }
}

impl Default for SystemNames {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SystemNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SystemNames")
    }
}

impl Names for SystemNames {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, Unresolved>> {
        let places = Arc::clone(&self.places);
        let name = name.to_owned();
        Box::pin(async move {
            let place = places.acquire_owned().await.map_err(|_| Unresolved)?;
            let asked = tokio::task::spawn_blocking(move || {
                // Held until the system has answered, even when nobody waits any more.
                let _place = place;
                let found = (name.as_str(), 0).to_socket_addrs().map_err(|_| Unresolved)?;
                Ok(found.take(MAX_ADDRESSES + 1).map(|address| address.ip()).collect())
            });
            asked.await.map_err(|_| Unresolved)?
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_names_are_told_from_public_ones() {
        for name in ["example.com", "api.openai.com", "local.example.org", "internal.dev"] {
            assert!(!is_special(name), "{name}");
        }
        for name in
            ["printer", "a.local", "x.y.internal", "metadata.google.internal", "a.home.arpa"]
        {
            assert!(is_special(name), "{name}");
        }
        assert!(is_metadata("metadata.goog") && !is_metadata("metadata.example.com"));
    }

    #[tokio::test]
    async fn the_system_knows_this_machine_and_not_what_cannot_be() {
        let names = SystemNames::new();
        let found = names.resolve("localhost").await.expect("this machine");
        assert!(found.iter().all(IpAddr::is_loopback) && !found.is_empty());
        assert_eq!(names.resolve("does-not-exist.invalid").await, Err(Unresolved));
    }
}
