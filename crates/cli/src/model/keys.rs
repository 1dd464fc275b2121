//! The keys of providers: from the configuration's table, a variable, or a file of the user's own, by name. Nothing here
//! shows one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use portcullis_domain::ports::Clock;
use portcullis_egress::{CredentialFault, Credentials, Egress};

use crate::args::{self, Globals};
use crate::config::{self, CredentialSource, EgressChoice, SecretSource};
use crate::failure::{Code, Failure};
use crate::words::quote;

use super::providers::Entry;

/// Where a provider's key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyState {
    /// It takes none.
    NotNeeded,
    /// There, as far as can be told without reading it.
    At(CredentialSource),
    /// Nowhere; where it could be.
    Missing {
        /// In this variable.
        variable: String,
        /// Or in this file.
        file: PathBuf,
    },
}

/// Looks for the key of a provider.
pub(crate) fn find(
    entry: &Entry,
    credentials: &config::Credentials,
    globals: &Globals,
) -> KeyState {
    let named = match entry.credential.as_deref() {
        Some("") => return KeyState::NotNeeded,
        Some(named) => credentials.get(named),
        None => credentials.get(&entry.name),
    };
    if let Some(source) = named {
        return KeyState::At(source.clone());
    }
    let Some(variable) = entry.variable else { return KeyState::NotNeeded };
    let at = |source| KeyState::At(CredentialSource::Secret(source));
    let file = globals.place.config.join("credentials").join(&entry.name);
    if args::variable(variable).is_some() {
        return at(SecretSource::Variable(variable.to_owned()));
    }
    if file.symlink_metadata().is_ok() {
        return at(SecretSource::File(file));
    }
    KeyState::Missing { variable: variable.to_owned(), file }
}

/// The key of a provider, under the provider's name and bound to its address.
pub(crate) struct Key {
    credentials: Credentials,
    source: Option<CredentialSource>,
}

/// Opens the key of a provider. Nothing is sent.
pub(crate) fn open(
    entry: &Entry,
    credentials: &config::Credentials,
    globals: &Globals,
) -> Result<Key, Failure> {
    let source = match find(entry, credentials, globals) {
        KeyState::NotNeeded => {
            return Ok(Key { credentials: Credentials::none(), source: None });
        }
        KeyState::At(source) => source,
        KeyState::Missing { variable, file } => {
            let sentence = format!("there is no key for the provider `{}`", entry.name);
            let file = quote(&file.to_string_lossy());
            return Err(Failure::new(Code::Credential, sentence).hint(format!(
                "set {variable}, or put the key into the file {file} of mode 0600"
            )));
        }
    };
    let unusable = |fault: CredentialFault| {
        Failure::from(fault)
            .of(&format!("the key for the provider `{}` cannot be used", entry.name))
    };
    let credential = source.open().map_err(unusable)?;
    let credential = credential.only_to(&entry.target.authority()).map_err(unusable)?;
    let credentials = Credentials::new([(entry.name.as_str(), credential)]).map_err(unusable)?;
    Ok(Key { credentials, source: Some(source) })
}

impl Key {
    /// The client that reaches the provider, and what gives its key, and nothing else; and the key's name there.
    pub(crate) fn client(
        self,
        entry: &Entry,
        way: &EgressChoice,
        timeout: Duration,
        clock: Arc<dyn Clock>,
    ) -> Result<(Egress, Option<String>), Failure> {
        let name = self.source.as_ref().map(|_| entry.name.clone());
        let mut rules = entry.rules(timeout)?;
        if let Some(source) = &self.source {
            rules = source.admit(rules)?;
        }
        let egress = Egress::new(way.over(rules)?, self.credentials, clock)?;
        Ok((egress, name))
    }
}
