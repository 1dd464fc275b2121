//! What the command is killed in: a few lives of a run, each a list of processes.

/// What a process is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Init,
    Run,
    /// `run`, killed right after it made `a.txt` and before anybody knows.
    RunCut,
    Resume,
    Approve,
    Reject,
    Cancel,
    /// `answer`, by what is in the folder.
    Answer,
}

impl Verb {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Run | Self::RunCut => "run",
            Self::Resume => "resume",
            Self::Approve => "approve",
            Self::Reject => "reject",
            Self::Cancel => "cancel",
            Self::Answer => "answer",
        }
    }
}

/// One process: what it is asked, the exit code that it has, and whether it is killed, or only leads up to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leg {
    pub(crate) verb: Verb,
    pub(crate) exit: i32,
    pub(crate) is_tried: bool,
}

const fn tried(verb: Verb, exit: i32) -> Leg {
    Leg { verb, exit, is_tried: true }
}

const fn before(verb: Verb, exit: i32) -> Leg {
    Leg { verb, exit, is_tried: false }
}

/// What a change does to its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    Makes,
    Removes,
}

/// A change that the agent asks for, and whether it happens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) file: &'static str,
    pub(crate) does: Does,
    pub(crate) is_wanted: bool,
}

/// One life of a run.
#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) name: &'static str,
    /// The agent's proposals, one a line.
    pub(crate) script: &'static str,
    pub(crate) legs: &'static [Leg],
    /// What the operator does about a call that waits for leave.
    pub(crate) reply: Verb,
    pub(crate) changes: &'static [Change],
    /// The status in which the run ends.
    pub(crate) ends: &'static str,
}

/// The content of the file that is made.
pub(crate) const CONTENT: &str = "made";

/// The file that is there from the start.
pub(crate) const OLD: &str = "old.txt";

const BOTH: &str = r#"{"kind":"tool_call","tool":"files.list","arguments":{}}
{"kind":"tool_call","tool":"files.create","arguments":{"path":"a.txt","content":"made"}}
{"kind":"tool_call","tool":"files.delete","arguments":{"path":"old.txt"}}
{"kind":"complete"}
"#;

const ONE: &str = r#"{"kind":"tool_call","tool":"files.read","arguments":{"path":"old.txt"}}
{"kind":"tool_call","tool":"files.create","arguments":{"path":"a.txt","content":"made"}}
{"kind":"complete"}
"#;

const MADE: Change = Change { file: "a.txt", does: Does::Makes, is_wanted: true };

const KEPT: Change = Change { file: OLD, does: Does::Removes, is_wanted: false };

/// `run`, the answers, `resume` and `cancel`; there is no command that erases.
pub(crate) const STORIES: &[Story] = &[
    Story {
        name: "approved",
        script: BOTH,
        legs: &[
            tried(Verb::Init, 0),
            tried(Verb::Run, 3),
            tried(Verb::Approve, 0),
            tried(Verb::Resume, 0),
        ],
        reply: Verb::Approve,
        changes: &[MADE, Change { file: OLD, does: Does::Removes, is_wanted: true }],
        ends: "completed",
    },
    Story {
        name: "rejected",
        script: BOTH,
        legs: &[before(Verb::Init, 0), before(Verb::Run, 3), tried(Verb::Reject, 0)],
        reply: Verb::Reject,
        changes: &[MADE, KEPT],
        ends: "cancelled",
    },
    Story {
        name: "cancelled",
        script: BOTH,
        legs: &[before(Verb::Init, 0), before(Verb::Run, 3), tried(Verb::Cancel, 0)],
        reply: Verb::Cancel,
        changes: &[MADE, KEPT],
        ends: "cancelled",
    },
    Story {
        name: "unknown",
        script: ONE,
        legs: &[
            before(Verb::Init, 0),
            before(Verb::RunCut, 137),
            tried(Verb::Resume, 3),
            tried(Verb::Answer, 0),
            tried(Verb::Resume, 0),
        ],
        reply: Verb::Approve,
        changes: &[MADE],
        ends: "completed",
    },
];
