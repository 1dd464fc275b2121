//! `[decide]`: what the tools of a host can change, for the hooks that `portcullis decide` answers.

use std::collections::BTreeMap;

use portcullis_domain::label::Name;
use portcullis_domain::tool::EffectClass;
use serde::Deserialize;
use toml::Spanned;

use super::Misfit;

/// The most tools that can be named.
const MAX_TOOLS: usize = 1_000;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawDecide {
    tools: BTreeMap<Spanned<String>, Spanned<String>>,
}

/// The tools by name, each with its effect class. One that is not among them is denied.
pub(super) fn read(raw: RawDecide) -> Result<BTreeMap<String, EffectClass>, Misfit> {
    if let Some((name, _)) = raw.tools.iter().nth(MAX_TOOLS) {
        return Err(Misfit::at(&name.span(), format!("more than {MAX_TOOLS} tools")));
    }
    raw.tools.into_iter().map(tool).collect()
}

fn tool(
    (name, class): (Spanned<String>, Spanned<String>),
) -> Result<(String, EffectClass), Misfit> {
    if Name::new(name.get_ref()).is_err() {
        let message = "a tool is the exact name that the host gives it: 1 to 128 bytes without control characters or parentheses";
        return Err(Misfit::at(&name.span(), message));
    }
    if name.get_ref().contains(['*', '?']) {
        return Err(Misfit::at(&name.span(), "a tool is named exactly; there are no patterns"));
    }
    let found = EffectClass::ALL.into_iter().find(|found| found.as_str() == class.get_ref());
    let message = "an effect class is read_only, local_mutation, remote_mutation or destructive";
    let class = found.ok_or_else(|| Misfit::at(&class.span(), message))?;
    Ok((name.into_inner(), class))
}
