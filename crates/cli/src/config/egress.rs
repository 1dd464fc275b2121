//! `[egress]`: the way out of the operator's network, for everything that speaks HTTP.

use std::path::{Path, PathBuf};

use portcullis_egress::{EgressRules, Proxy, ProxyFault, RulesFault};
use serde::Deserialize;
use toml::Spanned;

use super::Misfit;

/// How requests leave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EgressChoice {
    way: Way,
    /// A PEM file of further certificate authorities, absolute.
    roots: Option<PathBuf>,
}

/// Through what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Way {
    /// Nothing: straight.
    #[default]
    Straight,
    /// This proxy.
    Proxy(Proxy),
    /// What the variables of the environment say.
    Environment,
}

impl EgressChoice {
    /// The rules with this way out.
    ///
    /// # Errors
    /// Authorities that cannot be used, and variables that name no proxy.
    pub(crate) fn over(&self, rules: EgressRules) -> Result<EgressRules, RulesFault> {
        self.through(rules, |name| crate::args::variable(name)?.into_string().ok())
    }

    fn through(
        &self,
        mut rules: EgressRules,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<EgressRules, RulesFault> {
        if let Some(file) = &self.roots {
            rules = rules.extra_roots(file)?;
        }
        let proxy = match &self.way {
            Way::Straight => None,
            Way::Proxy(proxy) => Some(proxy.clone()),
            Way::Environment => Proxy::from_environment(lookup)?,
        };
        Ok(match proxy {
            Some(proxy) => rules.proxy(proxy),
            None => rules,
        })
    }

    /// The file of authorities: who writes it decides which servers are believed.
    pub(crate) fn roots(&self) -> Option<&Path> {
        self.roots.as_deref()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawEgress {
    proxy: Option<Spanned<String>>,
    direct: Option<Spanned<Vec<String>>>,
    roots: Option<PathBuf>,
}

/// What stands there. Relative files start at `base`.
pub(super) fn read(raw: RawEgress, base: &Path) -> Result<EgressChoice, Misfit> {
    let way = match (&raw.proxy, &raw.direct) {
        (None, None) => Way::Straight,
        (None, Some(direct)) => {
            return Err(Misfit::at(&direct.span(), "`direct` needs a `proxy` to go around"));
        }
        (Some(proxy), None) if proxy.get_ref() == "environment" => Way::Environment,
        (Some(proxy), Some(direct)) if proxy.get_ref() == "environment" => {
            let message = "with the proxy of the environment NO_PROXY says what goes around it";
            return Err(Misfit::at(&direct.span(), message));
        }
        (Some(url), direct) => {
            let entries = direct.iter().flat_map(|direct| direct.get_ref());
            let proxy = Proxy::new(url.get_ref(), entries.map(String::as_str));
            Way::Proxy(proxy.map_err(|fault| misfit(url, direct.as_ref(), &fault))?)
        }
    };
    Ok(EgressChoice { way, roots: raw.roots.map(|file| base.join(file)) })
}

fn misfit(
    url: &Spanned<String>,
    direct: Option<&Spanned<Vec<String>>>,
    fault: &ProxyFault,
) -> Misfit {
    match (fault, direct) {
        (ProxyFault::Direct, Some(direct)) => Misfit::at(&direct.span(), fault.to_string()),
        _ => Misfit::at(
            &url.span(),
            format!(
                "`proxy` is an origin such as \"http://proxy.corp:3128\", or \"environment\": {fault}"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[track_caller]
    fn bad(rest: &str, sentence: &str) {
        let text = format!("[egress]\n{rest}");
        let found = parse(&text, Path::new("/")).unwrap_err().sentence(&text);
        assert!(found.starts_with(sentence), "{found:?} does not begin with {sentence:?}");
    }

    fn choice(rest: &str) -> EgressChoice {
        let text = format!("[egress]\n{rest}");
        parse(&text, Path::new("/etc/base"))
            .unwrap_or_else(|m| panic!("{}", m.sentence(&text)))
            .egress
    }

    /// Rules have no other form that says where they lead.
    fn shown(choice: &EgressChoice) -> String {
        let variables =
            |name: &str| (name == "https_proxy").then(|| "http://of-env.corp:1".to_owned());
        format!("{:?}", choice.through(EgressRules::closed(), variables).expect("rules"))
    }

    #[test]
    fn nothing_goes_through_a_proxy_that_nobody_named() {
        assert!(!shown(&choice("")).contains("of-env"));
        assert!(shown(&choice("proxy = 'environment'")).contains("of-env.corp"));
    }

    #[test]
    fn a_proxy_has_hosts_that_go_around_it() {
        let choice = choice(
            "proxy = 'http://proxy.corp:3128'\ndirect = ['a.example', '.corp']\nroots = 'ca.pem'",
        );
        let Way::Proxy(proxy) = &choice.way else { panic!("{choice:?}") };
        let told = format!("{proxy:?}");
        assert!(told.contains("proxy.corp") && told.contains(".corp"), "{told}");
        assert_eq!(choice.roots(), Some(Path::new("/etc/base/ca.pem")));
    }

    #[test]
    fn what_is_no_way_out_is_refused_where_it_stands() {
        bad("proxy = 'http://u:p@proxy.corp'", "line 2, column 9: `proxy` is an origin");
        bad("proxy = 'http://proxy.corp/path'", "line 2, column 9: `proxy` is an origin");
        bad("proxy = 'Environment'", "line 2, column 9: `proxy` is an origin");
        bad("direct = ['a']", "line 2, column 10: `direct` needs");
        bad("proxy = 'environment'\ndirect = ['a']", "line 3, column 10: with the proxy of");
        bad("proxy = 'http://p.corp'\ndirect = ['10.0.0.0/8']", "line 3, column 10: an entry");
    }

    #[test]
    fn authorities_that_cannot_be_read_open_nothing() {
        let choice = choice("roots = 'not-there.pem'");
        let fault = choice.through(EgressRules::closed(), |_| None).unwrap_err();
        assert!(matches!(fault, RulesFault::Roots(_)), "{fault}");
    }
}
