//! `[http]`: the places that the HTTP tools may go to, and which credentials go there.

use std::collections::BTreeMap;
use std::time::Duration;

use portcullis_egress::CredentialRef;
use portcullis_tools::http::http_method;
use portcullis_tools::{HttpFault, HttpPlace, HttpRules};
use serde::Deserialize;
use toml::Spanned;

use super::Misfit;
use super::credentials::{CredentialSource, Credentials, Written};
use super::numbers::{Given, Number};

/// What the operator said of the HTTP tools. It holds no secret: only where each lies.
#[derive(Debug)]
pub(crate) struct HttpChoice {
    /// The places, and the bounds of a call.
    pub(crate) rules: HttpRules,
    /// The credentials that places name.
    pub(crate) credentials: Vec<ChosenCredential>,
}

/// A credential, where it lies, and where it goes.
#[derive(Debug)]
pub(crate) struct ChosenCredential {
    /// Its name in the configuration.
    pub(crate) name: String,
    /// Where the secret lies.
    pub(crate) source: CredentialSource,
    /// The hosts that it goes to, with the port where it is not the usual one.
    pub(crate) places: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawHttp {
    timeout_ms: Given,
    max_content_bytes: Given,
    headers: Option<Spanned<Vec<String>>>,
    places: Vec<RawPlace>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPlace {
    origin: Spanned<String>,
    methods: Option<Spanned<Vec<String>>>,
    credential: Option<Spanned<String>>,
    credential_header: Option<Spanned<String>>,
    credential_user: Option<Spanned<String>>,
    #[serde(default)]
    private: bool,
    keeps_keys: Option<Spanned<String>>,
}

const TIMEOUT: Number =
    Number { key: "timeout_ms", unit: "milliseconds", least: 1_000, most: Some(600_000) };

const MAX_CONTENT: Number =
    Number { key: "max_content_bytes", unit: "bytes", least: 1, most: Some(2_097_152) };

/// What stands there; nothing where no place is named.
pub(super) fn read(raw: RawHttp, credentials: &Credentials) -> Result<Option<HttpChoice>, Misfit> {
    let (timeout, most) =
        (TIMEOUT.read(&raw.timeout_ms)?, MAX_CONTENT.read(&raw.max_content_bytes)?);
    let mut chosen: BTreeMap<&str, ChosenCredential> = BTreeMap::new();
    let mut places = Vec::with_capacity(raw.places.len());
    for said in &raw.places {
        let mut place = place(said)?;
        if let Some(reference) = reference(said)? {
            place = place.credential(reference);
        }
        if let Some(name) = &said.credential {
            let source = credentials.named(name)?;
            let of_name = chosen.entry(name.get_ref()).or_insert_with(|| ChosenCredential {
                name: name.get_ref().clone(),
                source: source.clone(),
                places: Vec::new(),
            });
            let authority = said.origin.get_ref().split_once("://").map(|(_, host)| host);
            of_name.places.push(authority.unwrap_or_default().to_owned());
        }
        places.push(place);
        // The first place with which the rules do not hold is the one to look at.
        hold(&places).map_err(|fault| at(&said.origin, &fault))?;
    }
    if places.is_empty() {
        return Ok(None);
    }
    let rules = bounds(places, timeout, most, raw.headers.as_ref())?;
    Ok(Some(HttpChoice { rules, credentials: chosen.into_values().collect() }))
}

fn at<T>(said: &Spanned<T>, fault: &HttpFault) -> Misfit {
    Misfit::at(&said.span(), fault.to_string())
}

fn hold(places: &[HttpPlace]) -> Result<(), HttpFault> {
    HttpRules::new(places.iter().cloned())?.reachable().map(drop)
}

fn place(said: &RawPlace) -> Result<HttpPlace, Misfit> {
    let mut place =
        HttpPlace::new(said.origin.get_ref()).map_err(|fault| at(&said.origin, &fault))?;
    if let Some(names) = &said.methods {
        let methods: Option<Vec<_>> =
            names.get_ref().iter().map(|name| http_method(name)).collect();
        let known = "methods are GET, HEAD, POST, PUT, PATCH and DELETE, in capitals";
        place = place.methods(methods.ok_or_else(|| Misfit::at(&names.span(), known))?);
    }
    if said.private {
        place = place.private();
    }
    match &said.keeps_keys {
        Some(header) => place.keeps_keys(header.get_ref()).map_err(|fault| at(header, &fault)),
        None => Ok(place),
    }
}

/// How the credential of a place is written into its requests; nothing where it has none.
fn reference(said: &RawPlace) -> Result<Option<CredentialRef>, Misfit> {
    let written = Written {
        credential: said.credential.as_ref(),
        header: said.credential_header.as_ref(),
        user: said.credential_user.as_ref(),
    };
    written.reference("place")
}

fn bounds(
    places: Vec<HttpPlace>,
    timeout_ms: Option<u64>,
    max_content: Option<u64>,
    headers: Option<&Spanned<Vec<String>>>,
) -> Result<HttpRules, Misfit> {
    // Numbers out of range were told with their keys.
    let plain = |fault: HttpFault| Misfit { at: None, message: fault.to_string() };
    let mut rules = HttpRules::new(places).map_err(plain)?;
    if let Some(ms) = timeout_ms {
        rules = rules.timeout(Duration::from_millis(ms)).map_err(plain)?;
    }
    if let Some(bytes) = max_content {
        rules = rules.max_content(bytes).map_err(plain)?;
    }
    match headers {
        Some(names) => rules
            .headers(names.get_ref().iter().map(String::as_str))
            .map_err(|fault| at(names, &fault)),
        None => Ok(rules),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::parse;
    use super::*;

    fn good(text: &str) -> Option<HttpChoice> {
        parse(text, Path::new("/etc/base")).unwrap_or_else(|m| panic!("{}", m.sentence(text))).http
    }

    #[track_caller]
    fn bad(text: &str, sentence: &str) {
        let found = parse(text, Path::new("/")).unwrap_err().sentence(text);
        assert!(found.starts_with(sentence), "{found:?} does not begin with {sentence:?}");
    }

    #[test]
    fn nothing_said_is_no_tools() {
        assert!(good("").is_none());
        assert!(good("[http]\ntimeout_ms = 2000\n").is_none());
    }

    #[test]
    fn everything_that_can_be_said_of_places() {
        let choice = good(
            "[http]\ntimeout_ms = 2000\nmax_content_bytes = 10\nheaders = ['x-rate']\n\
             [[http.places]]\norigin = 'https://a.example'\nmethods = ['GET', 'POST']\ncredential = 'k'\n\
             credential_header = 'x-api-key'\n\
             [[http.places]]\norigin = 'http://localhost:8080'\nkeeps_keys = 'idempotency-key'\n\
             methods = ['PUT']\ncredential = 'k'\n\
             [[http.places]]\norigin = 'https://b.corp'\nprivate = true\ncredential = 'f'\n\
             credential_user = 'ann'\n\
             [credentials.k]\nenv = 'A_KEY'\n[credentials.f]\nfile = 'f.key'\n",
        );
        let choice = choice.unwrap();
        let [f, k] = choice.credentials.as_slice() else { panic!("two") };
        assert_eq!((f.name.as_str(), f.places.as_slice()), ("f", &["b.corp".to_owned()][..]));
        assert_eq!(k.places, ["a.example", "localhost:8080"]);
        assert_eq!(k.source.place(), "A_KEY");
        assert_eq!(f.source.place(), "/etc/base/f.key");
        assert!(choice.rules.reachable().is_ok());
    }

    #[test]
    fn what_does_not_fit_is_named_by_its_place() {
        let place = |rest: &str| format!("[[http.places]]\norigin = 'https://a.example'\n{rest}");
        bad(
            "[[http.places]]\norigin = 'a.example'\n",
            "line 2, column 10: a place is no origin such as",
        );
        bad(
            "[[http.places]]\norigin = 'https://a.example/v1'\n",
            "line 2, column 10: a place is scheme",
        );
        bad(&place("methods = ['get']\n"), "line 3, column 11: methods are GET, HEAD, POST");
        bad(&place("methods = []\n"), "line 2, column 10: no method is admitted");
        bad(
            &place("credential = 'k'\n"),
            "line 3, column 14: `credential` names a table [credentials.NAME]",
        );
        bad(&place("keeps_keys = 'host'\n"), "line 3, column 14: a header's name");
        bad(&place("follow = true\n"), "line 3, column 1: unknown field `follow`");
        bad(&(place("") + &place("")), "line 4, column 10: two rules name `https://a.example`");
        bad(
            "[[http.places]]\norigin = 'http://169.254.169.254'\n",
            "line 2, column 10: a rule names",
        );
        bad(
            "[http]\ntimeout_ms = 10\n",
            "line 2, column 14: `timeout_ms` is a whole number of milli",
        );
        bad("[http]\nmax_content_bytes = 0\n", "line 2, column 21: `max_content_bytes` is a whole");
        bad(
            "[http]\nheaders = ['set-cookie']\n[[http.places]]\norigin = 'https://a.example'\n",
            "line 2, column 11: a header's name",
        );
    }

    #[test]
    fn a_credential_is_written_in_one_way_and_goes_over_no_clear_wire() {
        let with = |rest: &str| {
            format!(
                "[[http.places]]\norigin = 'https://a.example'\n{rest}\n[credentials.k]\nenv = 'A'\n"
            )
        };
        bad(
            &with("credential = 'k'\ncredential_header = 'x-k'\ncredential_user = 'u'"),
            "line 4, column 21: a place has `credential_header` or",
        );
        bad(
            &with("credential = 'k'\ncredential_header = 'cookie'"),
            "line 4, column 21: this header is written by",
        );
        bad(
            &with("credential_header = 'x-k'"),
            "line 3, column 21: this place names no `credential`",
        );
        bad(&with("credential_user = 'u'"), "line 3, column 19: this place names no `credential`");
        bad(
            "[[http.places]]\norigin = 'http://a.example'\ncredential = 'k'\n[credentials.k]\nenv = 'A'\n",
            "line 2, column 10: a credential goes to `http://a.example` over https only",
        );
    }
}
