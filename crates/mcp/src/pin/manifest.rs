//! The manifest of a server: its tools, and what else the operator asked for, as they were advertised on the day of the pin.

use std::collections::BTreeMap;

use portcullis_canon::{Digest, Limits, Object, ParseError, Value, parse};
use portcullis_domain::time::Timestamp;

use super::files::PinnedFiles;
use super::part::{Part, PinnedTool};
use super::server_name::ServerName;
use crate::listing::{Listing, MAX_TOOLS};
use crate::offer::{MAX_OFFERS, Offer, OfferKind};

/// The largest manifest, in bytes: 16 MiB.
pub const MAX_MANIFEST_BYTES: usize = 16 * 1024 * 1024;

/// The format that is written.
const VERSION: u64 = 2;

/// The format that knew tools alone, which is read too.
const TOOLS_ALONE: u64 = 1;

/// All tools of one server, pinned. What it holds cannot be made otherwise than from a listing or from the bytes of a
/// manifest whose digests are right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    server: ServerName,
    pinned_at: Timestamp,
    files: PinnedFiles,
    tools: BTreeMap<String, PinnedTool>,
    offers: BTreeMap<(OfferKind, String), Offer>,
}

/// Why bytes are no manifest. Every message is safe to print.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// They are no acceptable JSON.
    #[error("the manifest is not strict JSON: {0}; pin the server again")]
    Json(#[from] ParseError),
    /// A member is missing, is one too many, or is of another type.
    #[error("the manifest is not one of ours, its `{0}` does not fit; pin the server again")]
    Shape(&'static str),
    /// It was written by another version of this program.
    #[error(
        "the manifest has another format than {TOOLS_ALONE} or {VERSION}; pin the server again with this version"
    )]
    Version,
    /// A digest is not that of what stands beside it: somebody edited the file.
    #[error(
        "the manifest was changed after it was written, in a {0}; look at who did, then pin the server again"
    )]
    Edited(&'static str),
    /// It would be larger than [`MAX_MANIFEST_BYTES`].
    #[error(
        "the server's tools are larger than {MAX_MANIFEST_BYTES} bytes together: they cannot be pinned"
    )]
    TooLarge,
}

impl Manifest {
    /// Pins what a server advertises.
    #[must_use]
    pub fn pin(server: ServerName, listing: &Listing, now: Timestamp) -> Self {
        let tools =
            listing.tools().iter().map(|tool| (tool.name().to_owned(), PinnedTool::of(tool)));
        Self {
            server,
            pinned_at: now,
            files: PinnedFiles::default(),
            tools: tools.collect(),
            offers: BTreeMap::new(),
        }
    }

    /// The same with the files that the server's program is made of.
    #[must_use]
    pub fn with_files(self, files: PinnedFiles) -> Self {
        Self { files, ..self }
    }

    /// The same with these offers in place of those that it has.
    #[must_use]
    pub fn with_offers(mut self, offers: impl IntoIterator<Item = Offer>) -> Self {
        let offers = offers.into_iter();
        self.offers =
            offers.map(|offer| ((offer.kind(), offer.name().to_owned()), offer)).collect();
        self
    }

    /// The server's name in the operator's configuration.
    #[must_use]
    pub const fn server(&self) -> &ServerName {
        &self.server
    }

    /// When it was pinned.
    #[must_use]
    pub const fn pinned_at(&self) -> Timestamp {
        self.pinned_at
    }

    /// The files that its program is made of, as far as the operator named them.
    #[must_use]
    pub const fn files(&self) -> &PinnedFiles {
        &self.files
    }

    /// The tools, sorted by name.
    pub fn tools(&self) -> impl ExactSizeIterator<Item = &PinnedTool> + Clone {
        self.tools.values()
    }

    /// The tool of exactly this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&PinnedTool> {
        self.tools.get(name)
    }

    /// What is pinned beside tools, sorted by kind and name.
    pub fn offers(&self) -> impl Iterator<Item = &Offer> {
        self.offers.values()
    }

    /// The offer of exactly this name.
    #[must_use]
    pub fn offer(&self, kind: OfferKind, name: &str) -> Option<&Offer> {
        self.offers.get(&(kind, name.to_owned()))
    }

    /// The file's bytes: one tool a line, sorted, so that a line of a version history says which tool changed.
    ///
    /// # Errors
    /// [`ManifestError::TooLarge`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, ManifestError> {
        let mut text = format!(
            "{{\"version\":{VERSION},\"server\":\"{}\",\"pinned_at\":\"{}\",",
            self.server, self.pinned_at
        );
        if !self.files.is_empty() {
            let files: Object =
                self.files.iter().map(|(path, digest)| (path, digest.to_string())).collect();
            text.push_str(&format!("\"files\":{},", Value::Object(files).to_canonical_string()));
        }
        text.push_str("\"tools\":[");
        for (index, tool) in self.tools.values().enumerate() {
            text.push_str(if index == 0 { "\n" } else { ",\n" });
            text.push_str(&written(tool).to_canonical_string());
        }
        for kind in OfferKind::ALL {
            text.push_str(&format!("\n],\"{}\":[", kind.member()));
            let of_kind = self.offers().filter(|offer| offer.kind() == kind);
            for (index, offer) in of_kind.enumerate() {
                text.push_str(if index == 0 { "\n" } else { ",\n" });
                text.push_str(&written_offer(offer).to_canonical_string());
            }
        }
        text.push_str("\n]}\n");
        if text.len() > MAX_MANIFEST_BYTES {
            return Err(ManifestError::TooLarge);
        }
        Ok(text.into_bytes())
    }

    /// Reads a manifest strictly, and checks each digest.
    ///
    /// # Errors
    /// [`ManifestError`] says what does not fit.
    pub fn read(bytes: &[u8]) -> Result<Self, ManifestError> {
        let value = parse(bytes, &Limits::ENVELOPE.with_max_bytes(MAX_MANIFEST_BYTES))?;
        let version = value.get("version").and_then(Value::as_u64);
        let members: &[&str] = match version.ok_or(ManifestError::Shape("version"))? {
            TOOLS_ALONE => &["version", "server", "pinned_at", "tools"],
            VERSION => &[
                "version",
                "server",
                "pinned_at",
                "files",
                "tools",
                "resources",
                "resourceTemplates",
                "prompts",
            ],
            _ => return Err(ManifestError::Version),
        };
        let text = |key| value.get(key).and_then(Value::as_str).ok_or(ManifestError::Shape(key));
        only(&value, members, "top")?;
        let server =
            ServerName::new(text("server")?).map_err(|_| ManifestError::Shape("server"))?;
        let pinned_at = text("pinned_at")?.parse();
        let pinned_at = pinned_at.map_err(|_| ManifestError::Shape("pinned_at"))?;
        let listed = value.get("tools").and_then(Value::as_array);
        let listed = listed.filter(|listed| listed.len() <= MAX_TOOLS);
        let mut tools = BTreeMap::new();
        for tool in listed.ok_or(ManifestError::Shape("tools"))? {
            let tool = read_tool(tool)?;
            if tools.insert(tool.name().to_owned(), tool).is_some() {
                return Err(ManifestError::Shape("name"));
            }
        }
        let mut offers = BTreeMap::new();
        for kind in OfferKind::ALL.into_iter().filter(|kind| members.contains(&kind.member())) {
            let shape = || ManifestError::Shape(kind.member());
            let listed = value.get(kind.member()).and_then(Value::as_array);
            for offer in listed.filter(|listed| listed.len() <= MAX_OFFERS).ok_or_else(shape)? {
                let offer = read_offer(kind, offer)?;
                if offers.insert((kind, offer.name().to_owned()), offer).is_some() {
                    return Err(shape());
                }
            }
        }
        let files = value.get("files").map(read_files).transpose()?.unwrap_or_default();
        Ok(Self { server, pinned_at, files, tools, offers })
    }
}

fn read_files(value: &Value) -> Result<PinnedFiles, ManifestError> {
    let misfit = ManifestError::Shape("files");
    let object = value.as_object().ok_or(misfit.clone())?;
    let file = |(path, digest): (&str, &Value)| {
        Some((path.to_owned(), digest.as_str()?.parse::<Digest>().ok()?))
    };
    let files = object.iter().map(file).collect::<Option<BTreeMap<_, _>>>();
    files.and_then(PinnedFiles::stated).ok_or(misfit)
}

fn written_offer(offer: &Offer) -> Value {
    let mut object = Object::new();
    object.insert("shown", offer.shown().clone());
    object.insert("digest", offer.digest().to_string());
    Value::Object(object)
}

fn read_offer(kind: OfferKind, value: &Value) -> Result<Offer, ManifestError> {
    let shape = || ManifestError::Shape(kind.member());
    only(value, &["shown", "digest"], kind.member())?;
    let shown = value.get("shown").ok_or_else(shape)?;
    let offer = Offer::read(kind, shown).map_err(|_| shape())?;
    let stated = value.get("digest").and_then(Value::as_str);
    let stated = stated.and_then(|text| text.parse::<Digest>().ok()).ok_or_else(shape)?;
    // What is not shown has no place here.
    if Value::Object(offer.shown().clone()) != *shown {
        return Err(shape());
    }
    if stated != offer.digest() {
        return Err(ManifestError::Edited(kind.words()));
    }
    Ok(offer)
}

fn written(tool: &PinnedTool) -> Value {
    let mut parts = Object::new();
    let mut digests = Object::new();
    for part in Part::ALL {
        if let Some(value) = tool.part(part) {
            parts.insert(part.key(), value.clone());
        }
        digests.insert(part.key(), tool.digest(part).to_string());
    }
    let mut object = Object::new();
    object.insert("name", tool.name());
    object.insert("parts", parts);
    object.insert("digests", digests);
    Value::Object(object)
}

fn read_tool(value: &Value) -> Result<PinnedTool, ManifestError> {
    only(value, &["name", "parts", "digests"], "tools")?;
    let name = value.get("name").and_then(Value::as_str).ok_or(ManifestError::Shape("name"))?;
    let keys = Part::ALL.map(Part::key);
    let parts = value.get("parts").ok_or(ManifestError::Shape("parts"))?;
    let digests = value.get("digests").ok_or(ManifestError::Shape("digests"))?;
    only(parts, &keys, "parts")?;
    only(digests, &keys, "digests")?;
    let mut kept = BTreeMap::new();
    for part in Part::ALL {
        let value = parts.get(part.key());
        let stated = digests.get(part.key()).and_then(Value::as_str);
        let stated = stated.and_then(|text| text.parse::<Digest>().ok());
        if stated.ok_or(ManifestError::Shape("digests"))? != part.digest(value) {
            return Err(ManifestError::Edited(part.words()));
        }
        kept.extend(value.map(|value| (part, value.clone())));
    }
    Ok(PinnedTool::new(name.to_owned(), kept))
}

/// An object without any member that is not known.
fn only(value: &Value, keys: &[&str], place: &'static str) -> Result<(), ManifestError> {
    let object = value.as_object().ok_or(ManifestError::Shape(place))?;
    match object.keys().all(|key| keys.contains(&key)) {
        true => Ok(()),
        false => Err(ManifestError::Shape(place)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listing::AdvertisedTool;

    fn manifest(tools: &[&str]) -> Manifest {
        let tool = |text: &&str| {
            AdvertisedTool::read(parse(text.as_bytes(), &Limits::BARE).unwrap()).unwrap()
        };
        let listing = Listing::new(tools.iter().map(tool).collect()).unwrap();
        let server = ServerName::new("bank").unwrap();
        Manifest::pin(server, &listing, Timestamp::from_micros(1_500_000))
    }

    fn text(manifest: &Manifest) -> String {
        String::from_utf8(manifest.to_bytes().unwrap()).unwrap()
    }

    const PAY: &str = r#"{"name":"pay","description":"Pays.","inputSchema":{"type":"object","maximum":9007199254740993},"_meta":{"x":1}}"#;

    #[test]
    fn what_is_written_is_read_back() {
        let odd = r#"{"name":"odd\u0007","description":7,"title":null}"#;
        for tools in [&[][..], &[PAY], &[PAY, odd]] {
            let made = manifest(tools);
            assert_eq!(Manifest::read(&made.to_bytes().unwrap()), Ok(made.clone()));
            assert_eq!(text(&made).lines().count(), tools.len() + 5, "one tool a line");
        }
        let made = manifest(&[PAY, odd]);
        assert!(text(&made).contains("9007199254740993"), "digits are kept");
        assert!(!text(&made).contains("_meta"), "what is never shown is not pinned");
        let both = made.tools().map(PinnedTool::name).collect::<Vec<_>>();
        assert_eq!(both, ["odd\u{7}", "pay"]);
    }

    #[track_caller]
    fn check(from: &str, to: &str, expected: ManifestError) {
        let whole = text(&manifest(&[PAY]));
        let changed = whole.replace(from, to);
        assert_ne!(changed, whole, "nothing was changed");
        assert_eq!(Manifest::read(changed.as_bytes()), Err(expected), "{from} to {to}");
    }

    #[test]
    fn whatever_else_is_no_manifest() {
        use ManifestError::{Edited, Shape, Version};
        check("\"version\":2", "\"version\":3", Version);
        check("\"version\":2", "\"version\":1", Shape("top"));
        check("\"version\":2", "\"version\":\"2\"", Shape("version"));
        check("\"prompts\":[", "\"other\":[", Shape("top"));
        check("\"server\":\"bank\"", "\"server\":\"Bank\"", Shape("server"));
        check("\"server\":\"bank\"", "\"server\":\"bank\",\"more\":1", Shape("top"));
        check("1970-01-01T", "1970-01-32T", Shape("pinned_at"));
        check("\"Pays.\"", "\"Pays all.\"", Edited("description"));
        check("\"description\":\"Pays.\"", "\"title\":\"Pays.\"", Edited("title"));
        check("9007199254740993", "9007199254740992", Edited("input schema"));
        check("sha256:", "sha512:", Shape("digests"));
        check("\"name\":\"pay\"", "\"nom\":\"pay\"", Shape("tools"));
        check("\"parts\":{", "\"parts\":{\"icons\":1,", Shape("parts"));
        let twice = manifest(&[PAY]);
        let line = written(twice.get("pay").unwrap()).to_canonical_string();
        let twice = text(&twice).replace(&line, &format!("{line},{line}"));
        assert_eq!(Manifest::read(twice.as_bytes()), Err(Shape("name")));
        assert!(matches!(Manifest::read(b"{"), Err(ManifestError::Json(_))));
    }

    fn offer(kind: OfferKind, text: &str) -> Offer {
        Offer::read(kind, &parse(text.as_bytes(), &Limits::BARE).unwrap()).unwrap()
    }

    #[test]
    fn offers_are_pinned_beside_tools_in_the_words_that_are_shown() {
        let made = manifest(&[PAY]).with_offers([
            offer(
                OfferKind::Prompt,
                r#"{"name":"p","description":"Sums up.","arguments":[{"name":"a"}]}"#,
            ),
            offer(OfferKind::Resource, r#"{"uri":"u:1","size":7}"#),
            offer(OfferKind::Template, r#"{"uriTemplate":"u:{n}"}"#),
        ]);
        let whole = text(&made);
        assert_eq!(Manifest::read(whole.as_bytes()), Ok(made.clone()));
        assert!(made.offer(OfferKind::Prompt, "p").is_some());
        assert_eq!(made.offer(OfferKind::Resource, "p"), None);
        let check = |from: &str, to: &str, expected: ManifestError| {
            let changed = whole.replace(from, to);
            assert_ne!(changed, whole, "nothing was changed");
            assert_eq!(Manifest::read(changed.as_bytes()), Err(expected), "{from} to {to}");
        };
        check("Sums up.", "Sums all.", ManifestError::Edited("prompt"));
        check("\"u:1\"}", "\"u:1\",\"size\":7}", ManifestError::Shape("resources"));
        check("\"shown\":", "\"show\":", ManifestError::Shape("resources"));
        check("\"uriTemplate\"", "\"uri\"", ManifestError::Shape("resourceTemplates"));
    }

    /// A line of the first format, as it was written by then.
    const FIRST: &str = r#"{"digests":{"annotations":"sha256:d1116e83fd25696c728a474d065dc0366dd70d22896f1fc34a8e64c8a97b89eb","description":"sha256:a2d4d3373eeee7f9e579191b5e6d99a802686e5e2a11790ded21adb4227761a3","inputSchema":"sha256:c76e24f92d3f46e10345157d723d9ba6550102afb9b60344abd96ed34594723e","outputSchema":"sha256:45a47b50b2aac302f7279c2806172c954cf434de516c31ef26f3ed8462b5bb62","title":"sha256:79d7bacde93ecded937ff551a6cfe6f68da830f66131ddf1f8fb9f6f5542cb55"},"name":"pay","parts":{"description":"Pays.","inputSchema":{"maximum":9007199254740993,"type":"object"}}}"#;

    #[test]
    fn a_manifest_of_the_first_format_is_read() {
        let first = format!(
            "{{\"version\":1,\"server\":\"bank\",\"pinned_at\":\"1970-01-01T00:00:01.500000Z\",\"tools\":[\n{FIRST}\n]}}\n"
        );
        assert_eq!(Manifest::read(first.as_bytes()), Ok(manifest(&[PAY])));
        let more = first.replace("]}", "],\"prompts\":[]}");
        assert_eq!(Manifest::read(more.as_bytes()), Err(ManifestError::Shape("top")));
    }

    #[test]
    fn what_could_not_be_read_back_is_not_written() {
        let long = "x".repeat(MAX_MANIFEST_BYTES);
        let huge = format!(r#"{{"name":"a","description":"{long}"}}"#);
        let limits = Limits::BARE.with_max_bytes(2 * MAX_MANIFEST_BYTES);
        let raw = parse(huge.as_bytes(), &limits).unwrap();
        let listing = Listing::new(vec![AdvertisedTool::read(raw).unwrap()]).unwrap();
        let server = ServerName::new("a").unwrap();
        let made = Manifest::pin(server, &listing, Timestamp::from_micros(0));
        assert_eq!(made.to_bytes(), Err(ManifestError::TooLarge));
    }
}
