//! The load report: what became of each tool of a server, one line a tool.

use std::fmt;

use portcullis_canon::{Object, Value};
use portcullis_domain::tool::{EffectClass, SpecError};

use super::likeness::Likeness;
use super::part::Part;
use super::server_name::ServerName;
use super::shape::ShapeError;
use super::words;

/// Why a tool does not register. Every message is safe to print.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It was pinned, and the server does not offer it any more.
    #[error("the server does not offer it any more{}", .0.as_deref().map_or(String::new(), |new| format!(", it offers the same as `{new}`")))]
    Gone(Option<String>),
    /// What the model is told is not what was pinned.
    #[error("its {} changed: {}", .0.words(), .1)]
    Changed(Part, String),
    /// Its description is of another type than text.
    #[error("its description is no text")]
    Description,
    /// The server says that it does more than the rule says.
    #[error("{0}")]
    Hints(&'static str),
    /// The name cannot be that of a tool.
    #[error(
        "`{0}` is no name of 1 to 64 letters, digits, `_`, `-` or `.`: give it one with `name`"
    )]
    Name(String),
    /// Another tool has the name.
    #[error("another tool is called `{0}`: give it another name with `name`")]
    Taken(String),
    /// Its schema cannot be used, or not under its rule.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The rule and the schema do not make a tool.
    #[error("{0}")]
    Spec(#[from] SpecError),
    /// The tool that would be asked is not there, changes something, or does not take what it would be handed.
    #[error("its probe `{0}` is no tool here that only reads and takes what it is to be handed")]
    Probe(String),
    /// There is a rule, and no such tool anywhere.
    #[error("it has a rule, and the server neither offers it nor did when it was pinned")]
    Unknown,
}

impl Refused {
    /// The stable name.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Gone(_) => "gone",
            Self::Changed(Part::InputSchema, _) => "schema_changed",
            Self::Changed(..) => "description_changed",
            Self::Description => "description_no_text",
            Self::Hints(_) => "hint_mismatch",
            Self::Name(_) => "name",
            Self::Taken(_) => "name_taken",
            Self::Shape(ShapeError::NotObject) => "schema_no_object",
            Self::Shape(ShapeError::Outside(_)) => "schema_leads_outside",
            Self::Shape(ShapeError::Schema(_)) => "schema_unusable",
            Self::Shape(ShapeError::Rule(_)) => "rule",
            Self::Shape(ShapeError::Hidden(..)) => "cannot_be_hidden",
            Self::Shape(ShapeError::Fixed(_)) => "fixed_value",
            Self::Spec(_) => "spec",
            Self::Probe(_) => "probe",
            Self::Unknown => "unknown",
        }
    }
}

/// What became of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It can be called.
    Registered {
        /// Under this name.
        name: String,
        /// What a call can change, as the rule says.
        effect: EffectClass,
    },
    /// It was pinned and has a rule, and stays out.
    Refused(Refused),
    /// It was pinned, and no rule says what it does: it stays out.
    Unclassified,
    /// The server offers it, and it was not pinned: it stays out.
    Unpinned {
        /// The pinned tool that is gone and was the same but for its name; safe to print.
        renamed_from: Option<String>,
        /// A name that it could be taken for; safe to print.
        like: Option<(Likeness, String)>,
    },
}

impl Fate {
    /// The stable name.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Registered { .. } => "registered",
            Self::Refused(_) => "refused",
            Self::Unclassified => "unclassified",
            Self::Unpinned { .. } => "unpinned",
        }
    }
}

/// How much a remark matters. None of them keeps a tool out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// To know.
    Notice,
    /// To look at.
    Warning,
}

impl Severity {
    /// The stable name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Notice => "notice",
            Self::Warning => "warning",
        }
    }
}

/// One tool of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportLine {
    /// The name as the server spells it: not safe to print.
    pub tool: String,
    /// What became of it.
    pub fate: Fate,
    /// What else there is to say, each safe to print.
    pub remarks: Vec<(Severity, String)>,
}

/// One line, safe to print.
impl fmt::Display for ReportLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ", words::name(&self.tool))?;
        match &self.fate {
            Fate::Registered { name, effect } => {
                write!(f, "is `{}` ({})", words::name(name), effect.as_str())?;
            }
            Fate::Refused(why) => write!(f, "is refused: {why}")?,
            Fate::Unclassified => f.write_str("stays out: no rule says what it does")?,
            Fate::Unpinned { renamed_from, like } => {
                f.write_str("stays out: it is not pinned")?;
                if let Some(old) = renamed_from {
                    write!(f, ", and is `{old}` under another name")?;
                }
                if let Some((likeness, other)) = like {
                    write!(f, ", and its name {} `{other}`", likeness.words())?;
                }
            }
        }
        for (severity, remark) in &self.remarks {
            write!(f, "; {}: {remark}", severity.as_str())?;
        }
        Ok(())
    }
}

/// What became of each tool that was pinned, is offered, or has a rule; sorted by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadReport {
    /// The server.
    pub server: ServerName,
    /// A line for each tool.
    pub lines: Vec<ReportLine>,
}

impl LoadReport {
    /// How many tools can be called.
    #[must_use]
    pub fn registered(&self) -> usize {
        self.lines.iter().filter(|line| matches!(line.fate, Fate::Registered { .. })).count()
    }

    /// The report for programs: `server`, `registered` and `tools`, each with `tool`, `fate`, what the fate brings with it
    /// (`name` and `effect`; `reason` and `message`; `renamed_from`, `like` and `likeness`) and `remarks`.
    #[must_use]
    pub fn value(&self) -> Value {
        let mut object = Object::new();
        object.insert("server", self.server.as_str());
        object.insert("registered", self.registered());
        object.insert("tools", self.lines.iter().map(line).collect::<Vec<_>>());
        Value::Object(object)
    }
}

fn line(line: &ReportLine) -> Value {
    let mut object = Object::new();
    object.insert("tool", line.tool.as_str());
    object.insert("fate", line.fate.as_str());
    match &line.fate {
        Fate::Registered { name, effect } => {
            object.insert("name", name.as_str());
            object.insert("effect", effect.as_str());
        }
        Fate::Refused(why) => {
            object.insert("reason", why.code());
            object.insert("message", why.to_string());
        }
        Fate::Unclassified => {}
        Fate::Unpinned { renamed_from, like } => {
            object.insert("renamed_from", renamed_from.clone());
            object.insert("like", like.as_ref().map(|(_, other)| other.clone()));
            object.insert("likeness", like.as_ref().map(|(likeness, _)| likeness.as_str()));
        }
    }
    let remarks = line.remarks.iter().map(|(severity, words)| {
        let mut remark = Object::new();
        remark.insert("severity", severity.as_str());
        remark.insert("message", words.as_str());
        Value::Object(remark)
    });
    object.insert("remarks", remarks.collect::<Vec<_>>());
    Value::Object(object)
}
