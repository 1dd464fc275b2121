//! The request that a person opens, and the answer to it, which has to be that of the one issuer to this one request.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portcullis_domain::ports::Entropy;
use portcullis_egress::{Agreed, Egress, LoginCode, LoginFile, pairs};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::error::LoginError;
use super::issuer::Issuer;

/// The longest answer, in bytes.
const MAX_BYTES: usize = 8 * 1024;

/// What an issuer says when it gives no code (RFC 6749, section 4.1.2.1). Others are not repeated.
const CODES: [&str; 8] = [
    "access_denied",
    "invalid_request",
    "invalid_scope",
    "invalid_target",
    "server_error",
    "temporarily_unavailable",
    "unauthorized_client",
    "unsupported_response_type",
];

/// Why an answer is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// It is too long, or says something twice.
    #[error("the answer is not as the standard has it")]
    Odd,
    /// It is the answer to another request, or somebody made it up.
    #[error("the answer is not to this login (`state`)")]
    State,
    /// It is another issuer's, or does not say whose, as this one's do.
    #[error("the answer is not from the issuer of this login (`iss`)")]
    Issuer,
    /// The issuer gave no code, and says why.
    #[error("the issuer did not agree (`{0}`)")]
    Refused(&'static str),
    /// The issuer gave no code.
    #[error("the answer has no code")]
    NoCode,
}

/// A login that waits for its answer. It is good for one.
pub struct Asked {
    url: String,
    state: String,
    verifier: Zeroizing<String>,
    issuer: String,
    names_itself: bool,
    trade: Trade,
}

/// How the code of an answer becomes tokens, and where they go.
pub(super) struct Trade {
    pub(super) redirect: String,
    pub(super) agreed: Agreed,
    pub(super) egress: Egress,
    pub(super) tokens: LoginFile,
}

impl Asked {
    pub(super) fn new(
        issuer: &Issuer,
        client: &str,
        resource: &str,
        scope: Option<&str>,
        trade: Trade,
        entropy: &dyn Entropy,
    ) -> Self {
        let (state, verifier) = (draw(entropy), Zeroizing::new(draw(entropy)));
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
        let mut query = vec![
            ("response_type", "code"),
            ("client_id", client),
            ("redirect_uri", trade.redirect.as_str()),
            ("state", state.as_str()),
            ("code_challenge", challenge.as_str()),
            ("code_challenge_method", "S256"),
            ("resource", resource),
        ];
        query.extend(scope.map(|scope| ("scope", scope)));
        let url = issuer.authorization.with_query(&query);
        let (issuer, names_itself) = (issuer.id.clone(), issuer.names_itself);
        Self { url, state, verifier, issuer, names_itself, trade }
    }

    /// What the person opens.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The issuer that they log in at.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The code in the query of an answer, when the answer is to this request and from this issuer. An error that it
    /// brings is looked at after that, too.
    ///
    /// # Errors
    /// [`AnswerError`].
    pub fn read(&self, query: &str) -> Result<Zeroizing<String>, AnswerError> {
        if query.len() > MAX_BYTES {
            return Err(AnswerError::Odd);
        }
        let mut all = pairs(query);
        let mut one = |name: &str| {
            let found = all.iter().position(|(known, _)| known == name);
            let value = found.map(|at| all.swap_remove(at).1);
            let again = all.iter().any(|(known, _)| known == name);
            if again { Err(AnswerError::Odd) } else { Ok(value) }
        };
        let (state, issuer) = (one("state")?, one("iss")?);
        let (error, code) = (one("error")?, one("code")?);
        if state.as_deref() != Some(&self.state) {
            return Err(AnswerError::State);
        }
        match issuer {
            Some(issuer) if issuer != self.issuer => return Err(AnswerError::Issuer),
            None if self.names_itself => return Err(AnswerError::Issuer),
            _ => {}
        }
        if let Some(error) = error {
            let known = CODES.into_iter().find(|code| *code == error);
            return Err(AnswerError::Refused(known.unwrap_or("another reason")));
        }
        code.filter(|code| !code.is_empty()).map(Zeroizing::new).ok_or(AnswerError::NoCode)
    }

    /// Trades the code for tokens, which go into the owner's file of the terms.
    ///
    /// # Errors
    /// [`LoginError::Token`].
    pub async fn redeem(self, code: Zeroizing<String>) -> Result<(), LoginError> {
        let Trade { redirect, agreed, egress, tokens } = self.trade;
        let code = LoginCode::new(code, self.verifier, redirect);
        egress.redeem(code, agreed, tokens).await.map_err(LoginError::Token)
    }
}

/// 256 bits as a text of 43 characters.
fn draw(entropy: &dyn Entropy) -> String {
    let mut bytes = Zeroizing::new([0; 32]);
    entropy.fill(bytes.as_mut_slice());
    URL_SAFE_NO_PAD.encode(bytes.as_slice())
}
