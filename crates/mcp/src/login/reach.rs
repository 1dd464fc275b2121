//! Which addresses a login may go to: those that the operator named, and those that an issuer of theirs names, on the
//! public internet.

use portcullis_egress::{EgressRules, HostRule, Reach, RulesFault, Target};

use super::error::LoginError;

/// The rules with leave for one address.
pub(super) fn admit(
    rules: EgressRules,
    target: &Target,
    reach: Reach,
) -> Result<EgressRules, RulesFault> {
    if target.is_this_machine() {
        return Ok(rules.loopback_port(target.port()));
    }
    rules.host(HostRule::new(target.host(), reach)?.ports([target.port()]))
}

/// The rules with leave for an endpoint that `issuer` names. It is reached as the issuer itself where it is on the same
/// host; else at public addresses only, and never on this machine.
///
/// # Errors
/// An address that cannot be gone to.
pub fn admit_endpoint(
    rules: EgressRules,
    endpoint: &Target,
    issuer: &str,
    reach: Reach,
) -> Result<EgressRules, LoginError> {
    const WHAT: &str = "the issuer";
    let issuer = read(WHAT, issuer)?;
    if endpoint.is_this_machine() && !issuer.is_this_machine() {
        return Err(LoginError::Place(WHAT, endpoint.origin()));
    }
    let reach = if endpoint.host() == issuer.host() { reach } else { Reach::Public };
    Ok(admit(rules, endpoint, reach)?)
}

/// An address out of a document: over TLS, or on this machine.
pub(super) fn read(what: &'static str, text: &str) -> Result<Target, LoginError> {
    let place = |why: String| LoginError::Place(what, why);
    let target = Target::parse(text).map_err(|fault| place(fault.to_string()))?;
    if target.is_encrypted() || target.is_this_machine() {
        return Ok(target);
    }
    Err(place(format!("`{}` is on plain http", target.origin())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_public_unless_they_are_the_issuers_own_host() {
        let admitted = |endpoint: &str, issuer: &str, reach| {
            let endpoint = Target::parse(endpoint).unwrap();
            let rules = admit_endpoint(EgressRules::closed(), &endpoint, issuer, reach);
            rules.map(|_| ()).map_err(|error| error.to_string())
        };
        let own = "https://login.example";
        assert_eq!(admitted("https://login.example/token", own, Reach::Public), Ok(()));
        assert_eq!(admitted("https://tokens.example/token", own, Reach::Public), Ok(()));
        assert_eq!(admitted("http://127.0.0.1:1/t", "http://localhost:2", Reach::Public), Ok(()));
        let private = "https://10.0.0.1";
        assert_eq!(admitted("https://10.0.0.1/token", private, Reach::Private), Ok(()));
        for (endpoint, issuer, reach) in [
            ("http://127.0.0.1:1/token", own, Reach::Private),
            ("https://localhost/token", own, Reach::Private),
            ("https://10.0.0.1/token", own, Reach::Private),
            ("https://10.0.0.1/token", private, Reach::Public),
            ("https://169.254.169.254/token", own, Reach::Private),
        ] {
            assert!(admitted(endpoint, issuer, reach).is_err(), "{endpoint} {issuer}");
        }
        for text in ["http://login.example/", "ftp://x", "https://a@b.example/", ""] {
            assert!(read("it", text).is_err(), "{text}");
        }
    }
}
