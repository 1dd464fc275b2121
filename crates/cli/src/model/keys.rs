//! The keys of providers: from the configuration's table, a variable, or a file of the user's own, by name. Nothing here
//! shows one.

use std::path::PathBuf;

use portcullis_egress::{CredentialFault, Credentials};

use crate::args::{self, Globals};
use crate::config::{self, CredentialSource};
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
    let file = globals.place.config.join("credentials").join(&entry.name);
    if args::variable(variable).is_some() {
        return KeyState::At(CredentialSource::Variable(variable.to_owned()));
    }
    if file.symlink_metadata().is_ok() {
        return KeyState::At(CredentialSource::File(file));
    }
    KeyState::Missing { variable: variable.to_owned(), file }
}

/// The key by its name, which is its provider's, bound to that provider's address; and whether there is one.
pub(crate) fn open(
    entry: &Entry,
    credentials: &config::Credentials,
    globals: &Globals,
) -> Result<(Credentials, Option<String>), Failure> {
    let source = match find(entry, credentials, globals) {
        KeyState::NotNeeded => return Ok((Credentials::none(), None)),
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
    let all = Credentials::new([(entry.name.as_str(), credential)]).map_err(unusable)?;
    Ok((all, Some(entry.name.clone())))
}
