//! The HTTP tools as the operator configured them: the one client under their rules, with their credentials.

use std::sync::Arc;

use portcullis::system::SystemClock;
use portcullis_egress::{Credential, CredentialFault, Credentials, Egress};
use portcullis_tools::Http;

use crate::config::{ChosenCredential, EgressChoice, HttpChoice};
use crate::failure::{Code, Failure};

/// What tools are opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// To be called: their credentials have to be there.
    Calls,
    /// To be looked at: no secret is opened.
    Specs,
}

/// Opens the tools. Nothing is sent.
pub(crate) fn open(choice: &HttpChoice, way: &EgressChoice, purpose: For) -> Result<Http, Failure> {
    let wanted = match purpose {
        For::Calls => choice.credentials.as_slice(),
        For::Specs => &[],
    };
    let opened = wanted.iter().map(|chosen| Ok((chosen.name.as_str(), credential(chosen)?)));
    let credentials = Credentials::new(opened.collect::<Result<Vec<_>, Failure>>()?);
    let credentials = credentials.map_err(Failure::from)?;
    let reachable = choice.rules.reachable().map_err(|fault| {
        Failure::new(Code::Http, format!("the HTTP tools cannot be used: {fault}"))
    })?;
    let unusable = |fault| Failure::from(fault).of("the HTTP tools cannot be used");
    let admitted = wanted.iter().try_fold(reachable, |rules, chosen| chosen.source.admit(rules));
    let rules = admitted.and_then(|rules| way.over(rules)).map_err(unusable)?;
    let egress = Egress::new(rules, credentials, Arc::new(SystemClock::new())).map_err(unusable)?;
    Ok(Http::new(egress, choice.rules.clone()))
}

fn credential(chosen: &ChosenCredential) -> Result<Credential, Failure> {
    let bound = |credential: Credential| {
        chosen.places.iter().try_fold(credential, |credential, place| credential.only_to(place))
    };
    chosen.source.open().and_then(bound).map_err(|fault: CredentialFault| {
        Failure::from(fault)
            .of(&format!("the HTTP tools have no credential `{}`", chosen.name))
            .hint("see [credentials] in the configuration")
    })
}
