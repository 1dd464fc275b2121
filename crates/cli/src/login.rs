//! The tokens of logins: where they lie, and whether they are for the server that is about to be asked.

use portcullis_egress::{Credential, CredentialFault, EgressRules, Login, OAuthFault};
use portcullis_mcp::{HttpServer, admit_endpoint};

use crate::config::{LoginChoice, ServerChoice};
use crate::failure::{Code, Failure};

/// The token of a server's login, and the rules with leave for the place where it is refreshed. Nothing is sent, and nobody
/// is asked: without a good login the server cannot be used.
pub(crate) fn token(
    choice: &ServerChoice,
    login: &LoginChoice,
    server: &HttpServer,
    rules: EgressRules,
) -> Result<(Credential, EgressRules), Failure> {
    if login.tokens.symlink_metadata().is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound) {
        return Err(refused(choice, "nobody is logged in"));
    }
    let of_secret = |fault: CredentialFault| refused(choice, &fault.to_string());
    let of_file = |fault: OAuthFault| refused(choice, &format!("its login is no good: {fault}"));
    let kept = Login::read(&login.tokens, login.secret().map_err(of_secret)?).map_err(of_file)?;
    if login.issuer.as_deref().is_some_and(|issuer| issuer != kept.issuer()) {
        return Err(refused(choice, "its login is at another issuer than the configuration names"));
    }
    let kept = match login.client.as_deref() {
        Some(client) => kept.of_client(client).map_err(|_| {
            refused(choice, "its login is another client's than the configuration names")
        })?,
        None => kept,
    };
    let rules = admit_endpoint(rules, kept.endpoint(), kept.issuer(), login.reach)
        .map_err(|error| refused(choice, &error.to_string()))?;
    let token = Credential::login(kept, &server.target).map_err(of_file)?;
    Ok((token, rules))
}

fn refused(choice: &ServerChoice, why: &str) -> Failure {
    let sentence = format!("the MCP server `{}` cannot be used: {why}", choice.name);
    Failure::new(Code::Login, sentence).hint(format!("run `portcullis login {}`", choice.name))
}
