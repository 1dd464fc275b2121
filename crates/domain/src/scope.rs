//! Whose rows a call may touch: a value that only authentication makes.

use serde::{Deserialize, Serialize};

/// A tenant's name: 1 to 64 bytes of lower-case letters, digits, `-` and `_`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Tenant(String);

/// A text that cannot name a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a tenant name: use 1 to 64 lower-case letters, digits, `-` or `_`")]
pub struct TenantNameError;

impl Tenant {
    /// The tenant of an installation that serves one operator.
    #[must_use]
    pub fn local() -> Self {
        Self("local".to_owned())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Tenant {
    type Error = TenantNameError;

    fn try_from(name: String) -> Result<Self, TenantNameError> {
        let fits = (1..=64).contains(&name.len())
            && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'));
        if fits { Ok(Self(name)) } else { Err(TenantNameError) }
    }
}

impl From<Tenant> for String {
    fn from(tenant: Tenant) -> Self {
        tenant.0
    }
}

/// Leave to read and write the rows of one tenant.
///
/// The only way to one today is [`Scope::of_file_owner`]: the database file admits its owner alone, so
/// whoever opened it has been authenticated by the operating system. A network door adds its own
/// constructor here, from a verified credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    tenant: Tenant,
}

impl Scope {
    /// The scope of whoever owns the state: tenant `local`.
    #[must_use]
    pub fn of_file_owner() -> Self {
        Self { tenant: Tenant::local() }
    }

    /// The tenant.
    #[must_use]
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }
}
