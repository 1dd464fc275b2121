//! From a manifest, the operator's rules and what a server offers now to the tools that can be called.
//!
//! Closed in both directions: what is not pinned stays out, and what has no rule stays out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use portcullis_canon::{Digest, Schema, Value, sanitize};
use portcullis_domain::tool::{SpecError, ToolSpec};

use super::diff::{differs, renames};
use super::hints::Hints;
use super::likeness::Known;
use super::manifest::Manifest;
use super::part::{Part, PinnedTool};
use super::report::{Fate, LoadReport, Refused, ReportLine, Severity};
use super::rule::ToolRule;
use super::server_name::ServerName;
use super::{shape, words};
use crate::listing::Listing;

/// The longest name of a registered tool, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// What a tool says of itself that says nothing.
const NO_DESCRIPTION: &str = "(no description)";

/// What a server's tools are held against.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// What was pinned.
    pub manifest: &'a Manifest,
    /// The operator's rules, by the server's names.
    pub rules: &'a BTreeMap<String, ToolRule>,
    /// What the server is, in the operator's configuration: shown to a person and bound by their answer. One short line.
    pub place: &'a str,
    /// How long a call may take whose rule does not say.
    pub deadline: Duration,
    /// The largest result in bytes of a tool whose rule does not say.
    pub max_result_bytes: u64,
    /// The names that other tools have.
    pub taken: &'a BTreeSet<String>,
}

/// Tools that can be called, and what became of all.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The tools, sorted by the server's names.
    pub tools: Vec<LoadedTool>,
    /// A line for each.
    pub report: LoadReport,
}

/// The manifest is of another server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the manifest is of the server `{0}`, not of `{1}`: pin `{1}`, or name its own manifest")]
pub struct OtherServer(pub ServerName, pub ServerName);

/// A tool as it can be called, with what has to stay true of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedTool {
    spec: ToolSpec,
    pinned: PinnedTool,
    rule: ToolRule,
}

impl LoadedTool {
    /// The spec under which it is registered.
    #[must_use]
    pub const fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// The name by which the server is called.
    #[must_use]
    pub fn server_name(&self) -> &str {
        self.pinned.name()
    }

    /// The parameters with new names: the server's name by the agent's.
    pub(crate) fn renamed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.rule.rename.iter().map(|(old, new)| (new.as_str(), old.as_str()))
    }

    /// Whether a server that lists this now still offers what was pinned.
    ///
    /// # Errors
    /// [`Refused`] says what is different.
    pub fn verify(&self, live: &Listing) -> Result<(), Refused> {
        let live = live.get(self.pinned.name()).map(PinnedTool::of).ok_or(Refused::Gone(None))?;
        unchanged(&self.pinned, &live)?;
        hinted(&[&live], &self.rule)
    }
}

/// Holds what a server offers against the pin and the rules. A tool that does not fit stays out, and only that one.
///
/// # Errors
/// [`OtherServer`] when the manifest is not of this server.
pub fn load(server: &ServerName, terms: &Terms<'_>, live: &Listing) -> Result<Loaded, OtherServer> {
    let offered = Manifest::pin(server.clone(), live, terms.manifest.pinned_at());
    load_offered(server, terms, &offered)
}

/// As [`load`], for whoever only looks: as if the server still offered what was pinned.
///
/// # Errors
/// [`OtherServer`] when the manifest is not of this server.
pub fn load_pinned(server: &ServerName, terms: &Terms<'_>) -> Result<Loaded, OtherServer> {
    load_offered(server, terms, terms.manifest)
}

fn load_offered(
    server: &ServerName,
    terms: &Terms<'_>,
    offered: &Manifest,
) -> Result<Loaded, OtherServer> {
    if terms.manifest.server() != server {
        return Err(OtherServer(terms.manifest.server().clone(), server.clone()));
    }
    let renamed = renames(terms.manifest, offered);
    let loading = Loading { server, terms, offered, renamed };
    let mut fates = loading.fates();
    loading.settle_names(&mut fates);
    loading.settle_probes(&mut fates);
    let lines = loading.lines(&fates);
    let tools = fates.into_values().filter_map(Result::ok).collect();
    Ok(Loaded { tools, report: LoadReport { server: server.clone(), lines } })
}

/// Pinned tools with a rule, each with what became of it.
type Fates = BTreeMap<String, Result<LoadedTool, Refused>>;

struct Loading<'a> {
    server: &'a ServerName,
    terms: &'a Terms<'a>,
    offered: &'a Manifest,
    /// New names, each with the pinned tool that has it now.
    renamed: BTreeMap<&'a str, &'a PinnedTool>,
}

impl Loading<'_> {
    fn fates(&self) -> Fates {
        let ruled = self.terms.manifest.tools().filter_map(|pinned| {
            let rule = self.terms.rules.get(pinned.name())?;
            Some((pinned.name().to_owned(), self.judge(pinned, rule)))
        });
        ruled.collect()
    }

    /// One tool, apart from what it has to do with others.
    fn judge(&self, pinned: &PinnedTool, rule: &ToolRule) -> Result<LoadedTool, Refused> {
        let live = self.offered.get(pinned.name()).ok_or_else(|| self.gone(pinned))?;
        unchanged(pinned, live)?;
        hinted(&[pinned, live], rule)?;
        let own = match pinned.part(Part::Description) {
            None => "",
            Some(text) => text.as_str().ok_or(Refused::Description)?,
        };
        let described = rule.description.as_deref().unwrap_or(own);
        let description = if described.is_empty() { NO_DESCRIPTION } else { described };
        let spec = ToolSpec {
            name: self.name(pinned, rule)?,
            description: description.to_owned(),
            input_schema: shape::shaped(
                pinned.part(Part::InputSchema).unwrap_or(&Value::Null),
                rule,
            )?,
            effect: rule.effect,
            source: rule.source,
            sink: rule.sink,
            authority: rule.authority.clone(),
            deadline_ms: millis(rule.deadline.unwrap_or(self.terms.deadline)),
            terminal: rule.terminal,
            fixed: rule.fix.clone(),
            max_result_bytes: rule.max_result_bytes.unwrap_or(self.terms.max_result_bytes),
            target: Some(self.target(pinned)),
            probe: rule.probe.clone(),
            idempotency_key: rule.idempotency_key.clone(),
        };
        check(&spec)?;
        Ok(LoadedTool { spec, pinned: pinned.clone(), rule: rule.clone() })
    }

    fn gone(&self, pinned: &PinnedTool) -> Refused {
        let mut moved = self.renamed.iter();
        let new = moved.find(|(_, old)| old.name() == pinned.name()).map(|(new, _)| *new);
        Refused::Gone(new.map(words::name))
    }

    fn name(&self, pinned: &PinnedTool, rule: &ToolRule) -> Result<String, Refused> {
        let usual = || format!("{}.{}", self.server, pinned.name());
        let name = rule.name.clone().unwrap_or_else(usual);
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
        let fits = (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(plain);
        if fits { Ok(name) } else { Err(Refused::Name(words::name(&name))) }
    }

    /// The place and the server's own name, so that a person sees through what the operator renamed.
    fn target(&self, pinned: &PinnedTool) -> String {
        let place = sanitize::line(self.terms.place);
        let name = words::signed(&[pinned.name()], words::NAME_BYTES);
        format!("{name} of the MCP server `{}`, {place}", self.server)
    }

    /// A name that another tool has, or that two of these want, is nobody's here.
    fn settle_names(&self, fates: &mut Fates) {
        let mut wanted: BTreeMap<String, usize> = BTreeMap::new();
        for tool in fates.values().flatten() {
            *wanted.entry(tool.spec.name.clone()).or_default() += 1;
        }
        refuse(fates, |tool| {
            let name = &tool.spec.name;
            let taken = self.terms.taken.contains(name);
            let wanted = wanted.get(name).is_some_and(|count| *count > 1);
            (taken || wanted).then(|| Refused::Taken(words::name(name)))
        });
    }

    /// A probe of this server has to be there. Whether a tool of another source can be asked is seen when all are
    /// registered.
    fn settle_probes(&self, fates: &mut Fates) {
        let reads = |tool: &&LoadedTool| !tool.spec.effect.changes_something();
        let asked: BTreeMap<String, ToolSpec> = fates
            .values()
            .flatten()
            .filter(reads)
            .map(|tool| (tool.spec.name.clone(), tool.spec.clone()))
            .collect();
        refuse(fates, |tool| {
            let probe = tool.spec.probe.as_ref()?;
            let takes = |spec: &ToolSpec| {
                let properties = spec.input_schema.get("properties").and_then(Value::as_object);
                let known = |name: &String| properties.is_some_and(|all| all.contains_key(name));
                probe.arguments.as_ref().is_none_or(|mapping| mapping.keys().all(known))
            };
            let there =
                self.terms.taken.contains(&probe.tool) || asked.get(&probe.tool).is_some_and(takes);
            (!there).then(|| Refused::Probe(words::name(&probe.tool)))
        });
    }

    fn lines(&self, fates: &Fates) -> Vec<ReportLine> {
        let pinned = self.terms.manifest.tools().map(PinnedTool::name);
        let offered = self.offered.tools().map(PinnedTool::name);
        let ruled = self.terms.rules.keys().map(String::as_str);
        let all: BTreeSet<&str> = pinned.clone().chain(offered).chain(ruled).collect();
        let taken = self.terms.taken.iter().map(String::as_str);
        let known = Known::new(pinned.chain(taken));
        let line = |name: &str| {
            let pinned = self.terms.manifest.get(name);
            let fate = match (fates.get(name), pinned, self.offered.get(name)) {
                (Some(Ok(tool)), ..) => {
                    Fate::Registered { name: tool.spec.name.clone(), effect: tool.spec.effect }
                }
                (Some(Err(why)), ..) => Fate::Refused(why.clone()),
                (None, Some(_), _) => Fate::Unclassified,
                (None, None, Some(_)) => Fate::Unpinned {
                    renamed_from: self.renamed.get(name).map(|old| words::name(old.name())),
                    like: known.alike(name).map(|(how, other)| (how, words::name(other))),
                },
                (None, None, None) => Fate::Refused(Refused::Unknown),
            };
            let remarks = pinned.map_or(Vec::new(), |pinned| self.remarks(pinned, &known));
            ReportLine { tool: name.to_owned(), fate, remarks }
        };
        all.into_iter().map(line).collect()
    }

    /// What there is to say of a pinned tool, whatever became of it.
    fn remarks(&self, pinned: &PinnedTool, known: &Known<'_>) -> Vec<(Severity, String)> {
        let mut remarks = Vec::new();
        if let Some(live) = self.offered.get(pinned.name()) {
            remarks.extend(changed(pinned, live));
            if let Some(rule) = self.terms.rules.get(pinned.name()).filter(|rule| rule.accept_hints)
                && let Some(why) = hint_mismatch(&[pinned, live], rule)
            {
                remarks.push((Severity::Warning, format!("{why}, and the rule accepts that")));
            }
        }
        if let Some((likeness, other)) = known.alike(pinned.name()) {
            let words = format!("its name {} `{}`", likeness.words(), words::name(other));
            remarks.push((Severity::Warning, words));
        }
        let text = pinned.part(Part::Description).and_then(Value::as_str).unwrap_or_default();
        let plain = text.replace(['\n', '\r', '\t'], " ");
        if sanitize::line(&plain) != plain {
            let words = "its description has characters that cannot be seen";
            remarks.push((Severity::Warning, words.to_owned()));
        }
        remarks
    }
}

fn refuse(fates: &mut Fates, why: impl Fn(&LoadedTool) -> Option<Refused>) {
    for fate in fates.values_mut() {
        if let Some(refused) = fate.as_ref().ok().and_then(&why) {
            *fate = Err(refused);
        }
    }
}

/// What a model is told of a tool is what was pinned.
fn unchanged(pinned: &PinnedTool, live: &PinnedTool) -> Result<(), Refused> {
    for part in [Part::InputSchema, Part::Description] {
        if pinned.digest(part) != live.digest(part) {
            return Err(Refused::Changed(part, differs(part, pinned, live)));
        }
    }
    Ok(())
}

fn hinted(sides: &[&PinnedTool], rule: &ToolRule) -> Result<(), Refused> {
    match hint_mismatch(sides, rule) {
        Some(why) if !rule.accept_hints => Err(Refused::Hints(why)),
        _ => Ok(()),
    }
}

/// What the server says against a rule, on the day of the pin or now.
fn hint_mismatch(sides: &[&PinnedTool], rule: &ToolRule) -> Option<&'static str> {
    sides.iter().find_map(|tool| Hints::read(tool.part(Part::Annotations))?.against(rule))
}

/// Changes that keep no tool out.
fn changed(pinned: &PinnedTool, live: &PinnedTool) -> Vec<(Severity, String)> {
    let told = pinned.differences(live).filter_map(|part| {
        let severity = match part {
            // These two refuse it.
            Part::Description | Part::InputSchema => return None,
            Part::Title => Severity::Notice,
            Part::OutputSchema => Severity::Warning,
            Part::Annotations if milder(pinned, live) => Severity::Notice,
            Part::Annotations => Severity::Warning,
        };
        Some((severity, format!("its {} changed: {}", part.words(), differs(part, pinned, live))))
    });
    told.collect()
}

/// True when what the server says now is no worse than what it said.
fn milder(pinned: &PinnedTool, live: &PinnedTool) -> bool {
    let hints = |tool: &PinnedTool| Hints::read(tool.part(Part::Annotations));
    match (hints(live), hints(pinned)) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(live), Some(pinned)) => live.within(pinned),
    }
}

/// What would keep all tools from being registered has to be seen here, where it keeps out one.
fn check(spec: &ToolSpec) -> Result<(), Refused> {
    spec.check()?;
    let properties = spec.input_schema.get("properties");
    let named = |pointer: &String| {
        let first = pointer.strip_prefix('/').and_then(|rest| rest.split('/').next());
        let name = first.map(|token| token.replace("~1", "/").replace("~0", "~"));
        name.zip(properties).is_some_and(|(name, all)| all.get(&name).is_some())
    };
    if let Some(astray) = spec.authority.iter().find(|pointer| !named(pointer)) {
        let words = format!("`{}` points to no parameter", words::name(astray));
        return Err(shape::ShapeError::Rule(words).into());
    }
    let filled = spec.idempotency_key.as_deref().zip(properties);
    if let Some(property) = filled.and_then(|(key, properties)| properties.get(key)) {
        let key = Value::from(Digest::ZERO.hex());
        if !Schema::compile(property).is_ok_and(|schema| schema.check(&key).is_ok()) {
            return Err(SpecError::IdempotencyKey.into());
        }
    }
    Ok(())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
