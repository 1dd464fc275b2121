//! The manifest of a server: its tools as they were advertised on the day of the pin.

use std::collections::BTreeMap;

use portcullis_canon::{Digest, Limits, Object, ParseError, Value, parse};
use portcullis_domain::time::Timestamp;

use super::files::PinnedFiles;
use super::part::{Part, PinnedTool};
use super::server_name::ServerName;
use crate::listing::{Listing, MAX_TOOLS};

/// The largest manifest, in bytes: 16 MiB.
pub const MAX_MANIFEST_BYTES: usize = 16 * 1024 * 1024;

/// The format that is written, and the only one that is read.
const VERSION: u64 = 1;

/// All tools of one server, pinned. What it holds cannot be made otherwise than from a listing or from the bytes of a
/// manifest whose digests are right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    server: ServerName,
    pinned_at: Timestamp,
    files: PinnedFiles,
    tools: BTreeMap<String, PinnedTool>,
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
        "the manifest has another format than {VERSION}; pin the server again with this version"
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
        Self { server, pinned_at: now, files: PinnedFiles::default(), tools: tools.collect() }
    }

    /// The same with the files that the server's program is made of.
    #[must_use]
    pub fn with_files(self, files: PinnedFiles) -> Self {
        Self { files, ..self }
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
        if version.ok_or(ManifestError::Shape("version"))? != VERSION {
            return Err(ManifestError::Version);
        }
        let text = |key| value.get(key).and_then(Value::as_str).ok_or(ManifestError::Shape(key));
        only(&value, &["version", "server", "pinned_at", "files", "tools"], "top")?;
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
        let files = value.get("files").map(read_files).transpose()?.unwrap_or_default();
        Ok(Self { server, pinned_at, files, tools })
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
            assert_eq!(text(&made).lines().count(), tools.len() + 2, "one tool a line");
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
        check("\"version\":1", "\"version\":2", Version);
        check("\"version\":1", "\"version\":\"1\"", Shape("version"));
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
