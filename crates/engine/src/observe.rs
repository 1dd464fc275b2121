//! Observations: what is recorded and shown of a step's outcome, as canonical JSON with labels.

use portcullis_canon::{Digest, Fault, Kind, Limits, Object, Value, parse, sanitize};
use portcullis_domain::content::Content;
use portcullis_domain::label::{Labels, Origin};
use portcullis_domain::observation::{Failure, Observation, ObservationKind};
use portcullis_domain::ports::{Entropy, Lack, ToolOutput};
use portcullis_domain::refusal::Refusal;
use portcullis_domain::step::StepStatus;
use portcullis_domain::tool::ToolSpec;

use crate::admit::Invalid;

/// Bytes that are kept of a result that is too large or that is no JSON.
const KEPT_BYTES: usize = 4096;

/// An observation, the content that it names, and the status of the step that it ends.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: StepStatus,
    pub(crate) observation: Observation,
    pub(crate) content: Content,
    /// The content as a value, for the agent's next view.
    pub(crate) value: Value,
}

/// Builds observations of one run: their fingerprints are keyed by its salt.
pub(crate) struct Observer<'a> {
    pub(crate) salt: &'a [u8],
    pub(crate) entropy: &'a dyn Entropy,
}

impl Observer<'_> {
    /// A proposal that was not admitted.
    pub(crate) fn invalid(&self, invalid: &Invalid) -> Outcome {
        let mut object = Object::new();
        object.insert("refusal", invalid.refusal.as_str());
        if let Some((path, rule)) = &invalid.place {
            object.insert("path", path.as_str());
            object.insert("rule", rule.as_str());
        }
        if let Some(call) = invalid.call {
            object.insert("call", call);
        }
        let shape =
            Shape { refusal: Some(invalid.refusal), ..Shape::of(ObservationKind::InvalidProposal) };
        self.outcome(StepStatus::Failed, shape, object, Labels::none())
    }

    /// The policy, a person or the machine said no.
    pub(crate) fn denied(&self, refusal: Refusal, note: Option<&str>, labels: Labels) -> Outcome {
        let mut object = Object::new();
        object.insert("refusal", refusal.as_str());
        if let Some(note) = note {
            object.insert("note", note);
        }
        let shape = Shape { refusal: Some(refusal), ..Shape::of(ObservationKind::Denied) };
        self.outcome(StepStatus::Failed, shape, object, labels)
    }

    /// Several calls that came together were refused as a whole, because of the one with this number, from one.
    pub(crate) fn batch_refused(
        &self,
        number: usize,
        refusal: Refusal,
        because: Option<Refusal>,
    ) -> Outcome {
        let mut object = Object::new();
        object.insert("refusal", refusal.as_str());
        object.insert("call", u64::try_from(number).unwrap_or(u64::MAX));
        if let Some(because) = because {
            object.insert("because", because.as_str());
        }
        let shape = Shape { refusal: Some(refusal), ..Shape::of(ObservationKind::Denied) };
        self.outcome(StepStatus::Failed, shape, object, Labels::none())
    }

    /// A tool failed, and what it did is known.
    pub(crate) fn failed(&self, failure: Failure, message: &str, labels: Labels) -> Outcome {
        let mut object = Object::new();
        object.insert("failure", failure.as_str());
        object.insert("message", message);
        let shape = Shape { failure: Some(failure), ..Shape::of(ObservationKind::ToolError) };
        self.outcome(StepStatus::Failed, shape, object, labels)
    }

    /// The tool changed nothing, since something is not there.
    pub(crate) fn lacking(&self, lack: &Lack, message: &str, labels: Labels) -> Outcome {
        let failure = Failure::Error;
        let mut object = Object::new();
        object.insert("failure", failure.as_str());
        object.insert("lacks", lack.to_value());
        object.insert("message", message);
        let shape = Shape { failure: Some(failure), ..Shape::of(ObservationKind::ToolError) };
        self.outcome(StepStatus::Failed, shape, object, labels)
    }

    /// The receiver answered that it failed: known, and no longer than a result may be. It is marked as `reported`, since
    /// nobody says that nothing was changed.
    pub(crate) fn refused(&self, spec: &ToolSpec, message: &str) -> Outcome {
        let most = usize::try_from(spec.max_result_bytes).unwrap_or(usize::MAX);
        let failure = Failure::Error;
        let mut object = Object::new();
        object.insert("failure", failure.as_str());
        object.insert("message", sanitize::clip(message, most).as_str());
        object.insert("reported", true);
        let shape = Shape { failure: Some(failure), ..Shape::of(ObservationKind::ToolError) };
        let labels = Labels::of(Origin::external(&spec.name));
        self.outcome(StepStatus::Failed, shape, object, labels)
    }

    /// The run that the call was ended without being done. It is not for the gate to start it again.
    pub(crate) fn child_failed(
        &self,
        status: &str,
        reason: &str,
        note: Option<&str>,
        labels: Labels,
    ) -> Outcome {
        let failure = Failure::Error;
        let mut object = Object::new();
        object.insert("failure", failure.as_str());
        object.insert("message", "the run that was started ended without being done");
        object.insert("status", status);
        object.insert("reason", reason);
        if let Some(note) = note {
            object.insert("note", note);
        }
        let shape = Shape { failure: Some(failure), ..Shape::of(ObservationKind::ToolError) };
        self.outcome(StepStatus::Failed, shape, object, labels)
    }

    /// A call that can have changed nothing was cut off.
    pub(crate) fn interrupted(&self, failure: Failure) -> Outcome {
        let mut object = Object::new();
        object.insert("failure", failure.as_str());
        let shape = Shape { failure: Some(failure), ..Shape::of(ObservationKind::Interrupted) };
        self.outcome(StepStatus::Interrupted, shape, object, Labels::none())
    }

    /// A tool answered: its result, or why it cannot be kept as one.
    pub(crate) fn answered(&self, spec: &ToolSpec, output: ToolOutput) -> Outcome {
        self.output(&spec.name, spec.max_result_bytes, output)
    }

    /// What came back of a call to the tool of that name: a result, or why it cannot be kept as one.
    pub(crate) fn output(&self, tool: &str, max_bytes: u64, output: ToolOutput) -> Outcome {
        let labels = output.labels.unwrap_or_else(|| Labels::of(Origin::external(tool)));
        let bytes = if output.content.is_empty() { b"{}".to_vec() } else { output.content };
        let cap = usize::try_from(max_bytes).unwrap_or(usize::MAX);
        match parse(&bytes, &Limits::BARE.with_max_bytes(cap)) {
            Ok(value) => self.result(value, labels, false),
            Err(error) if error.fault == Fault::TooLarge => {
                let mut object = kept(&bytes);
                object.insert("cut", true);
                self.result(Value::Object(object), labels, true)
            }
            Err(error) => {
                let mut object = kept(&bytes);
                object.insert("failure", Failure::InvalidContent.as_str());
                object.insert(
                    "message",
                    format!("the tool ran, and its result is not strict JSON: {}", error.fault),
                );
                let shape = Shape {
                    failure: Some(Failure::InvalidContent),
                    ..Shape::of(ObservationKind::ToolError)
                };
                self.outcome(StepStatus::Failed, shape, object, labels)
            }
        }
    }

    /// A result, whoever says what it was.
    pub(crate) fn result(&self, value: Value, labels: Labels, cut: bool) -> Outcome {
        let shape = Shape { cut, ..Shape::of(ObservationKind::ToolResult) };
        self.seal(StepStatus::Done, shape, value, labels)
    }

    fn outcome(&self, status: StepStatus, shape: Shape, object: Object, labels: Labels) -> Outcome {
        self.seal(status, shape, Value::Object(object), labels)
    }

    fn seal(&self, status: StepStatus, shape: Shape, value: Value, labels: Labels) -> Outcome {
        let bytes = value.to_canonical();
        let fingerprint = fingerprint(self.salt, shape.kind, &bytes);
        let content = Content::seal(bytes, self.entropy);
        let observation = Observation {
            kind: shape.kind,
            failure: shape.failure,
            refusal: shape.refusal,
            content: Some(content.reference()),
            fingerprint: Some(fingerprint),
            labels,
            cut: shape.cut,
        };
        Outcome { status, observation, content, value }
    }
}

/// The digest of what came back, keyed by a salt.
pub(crate) fn fingerprint(salt: &[u8], kind: ObservationKind, bytes: &[u8]) -> Digest {
    Digest::of_parts(Kind::Observation, &[salt, kind.as_str().as_bytes(), bytes])
}

/// The parts of an observation that its kind decides.
struct Shape {
    kind: ObservationKind,
    failure: Option<Failure>,
    refusal: Option<Refusal>,
    cut: bool,
}

impl Shape {
    const fn of(kind: ObservationKind) -> Self {
        Self { kind, failure: None, refusal: None, cut: false }
    }
}

/// The beginning of bytes that cannot be kept whole, and how many there were.
fn kept(bytes: &[u8]) -> Object {
    let head = bytes.get(..KEPT_BYTES).unwrap_or(bytes);
    let mut object = Object::new();
    object.insert("head", String::from_utf8_lossy(head).into_owned());
    object.insert("bytes", u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    object
}
