//! What runs are killed in: short stories that together append every type of event.

use std::time::Duration;

use portcullis::domain::limits::Limits;
use portcullis::domain::run::EndReason;
use portcullis::domain::tool::EffectClass;
use portcullis::policy::{ClassTable, Outcome};

use super::judge::Finding;

/// Who runs the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The driver, to the end or to a question.
    Driver,
    /// A host with its own loop that lets the run go after each step.
    Host,
    /// A host that makes its calls by itself, and is told what it may.
    Hooked,
}

/// What a person does when a call waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Approve,
    Reject,
    /// Ends the whole run.
    Cancel,
    /// Nobody answers, and the question is swept up when it is due.
    Sweep,
}

/// One line of an agent's script: a call of a tool with the line's number, or raw text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Call(&'static str),
    Raw(&'static str),
}

/// One story.
#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) name: &'static str,
    pub(crate) way: Way,
    pub(crate) script: &'static [Line],
    /// What people do about the calls on these lines.
    pub(crate) replies: &'static [(u64, Reply)],
    /// What becomes of the changes when nothing is killed. Lines that change nothing are not in it.
    pub(crate) ends: &'static [(u64, Finding)],
    /// Why it ends. After a kill it may also end for the later ones.
    pub(crate) reasons: &'static [EndReason],
    /// Whether the goal is erased when all is over.
    pub(crate) erases: bool,
    question_ttl_ms: Option<u64>,
    pub(crate) lease: Duration,
}

const DONE: Line = Line::Raw(r#"{"kind":"complete","result":"done"}"#);

/// What most stories have: the driver runs the loop to the goal, nobody is asked, and the lease outlasts it.
const PLAIN: Story = Story {
    name: "",
    way: Way::Driver,
    script: &[],
    replies: &[],
    ends: &[],
    reasons: &[EndReason::GoalCompleted],
    erases: false,
    question_ttl_ms: None,
    lease: Duration::from_secs(30),
};

/// One run in which nearly everything happens, for kills that fall anywhere.
pub(crate) const WHOLE: &Story = &Story {
    name: "whole",
    script: &[
        Line::Call("look"),
        Line::Raw(r#"{"kind":"tool_call","tool":"write","arguments":"#),
        Line::Call("burn"),
        Line::Call("write"),
        Line::Call("send"),
        Line::Call("send"),
        Line::Call("flaky"),
        DONE,
    ],
    replies: &[(4, Reply::Approve), (5, Reply::Reject)],
    ends: &[
        (2, Finding::NotDone),
        (3, Finding::Once),
        (4, Finding::Once),
        (5, Finding::NotDone),
        (6, Finding::Again),
    ],
    erases: true,
    ..PLAIN
};

/// The stories of the grid, in its order. They are short, since each kill is followed to the end of its story.
pub(crate) const STORIES: &[Story] = &[
    Story {
        name: "alone",
        script: &[
            Line::Call("look"),
            Line::Raw(r#"{"kind":"tool_call","tool":"write","arguments":"#),
            Line::Call("burn"),
            Line::Call("write"),
            DONE,
        ],
        ends: &[(2, Finding::NotDone), (3, Finding::Once)],
        erases: true,
        ..PLAIN
    },
    Story {
        name: "asked",
        script: &[Line::Call("send"), Line::Call("send"), DONE],
        replies: &[(0, Reply::Approve), (1, Reply::Reject)],
        ends: &[(0, Finding::Once), (1, Finding::NotDone)],
        ..PLAIN
    },
    Story {
        name: "flaky",
        script: &[Line::Call("flaky"), DONE],
        ends: &[(0, Finding::Again)],
        ..PLAIN
    },
    Story {
        name: "keyed",
        script: &[Line::Call("keyed"), DONE],
        ends: &[(0, Finding::Once)],
        ..PLAIN
    },
    Story {
        name: "probed",
        script: &[Line::Call("probed"), DONE],
        ends: &[(0, Finding::Once)],
        ..PLAIN
    },
    Story {
        name: "models",
        script: &[Line::Call("write"), DONE],
        ends: &[(0, Finding::Once)],
        ..PLAIN
    },
    Story {
        name: "child",
        script: &[
            Line::Raw(
                r#"{"kind":"tool_call","tool":"spawn","arguments":{"goal":"a part","tools":["look"]}}"#,
            ),
            Line::Call("write"),
            DONE,
        ],
        ends: &[(1, Finding::Once)],
        ..PLAIN
    },
    Story {
        name: "host",
        way: Way::Host,
        script: &[Line::Call("write"), Line::Call("look"), Line::Call("write"), DONE],
        ends: &[(0, Finding::Once), (2, Finding::Once)],
        ..PLAIN
    },
    Story {
        name: "advised",
        way: Way::Hooked,
        // What the host does then is its own: nothing of ours may happen.
        script: &[Line::Call("write")],
        ends: &[(0, Finding::NotDone)],
        ..PLAIN
    },
    Story {
        name: "batch",
        // Two reads at once between a change and the last word.
        script: &[
            Line::Call("write"),
            Line::Raw(
                r#"{"kind":"tool_calls","calls":[{"tool":"look","arguments":{"n":1}},{"tool":"look","arguments":{"n":2}}]}"#,
            ),
            DONE,
        ],
        ends: &[(0, Finding::Once)],
        ..PLAIN
    },
    Story {
        name: "late",
        // A read that is cut off is not made again, so a last word follows it.
        script: &[Line::Call("slow"), Line::Call("end"), DONE],
        ends: &[(0, Finding::Once)],
        ..PLAIN
    },
    Story {
        name: "halted",
        script: &[Line::Call("halt"), DONE],
        ends: &[(0, Finding::Unsettled)],
        reasons: &[EndReason::OperatorCancelled, EndReason::GoalCompleted],
        ..PLAIN
    },
    Story {
        name: "two-people",
        script: &[Line::Call("shred"), DONE],
        replies: &[(0, Reply::Approve)],
        ends: &[(0, Finding::Once)],
        ..PLAIN
    },
    Story {
        name: "cancelled",
        script: &[Line::Call("write"), Line::Call("send"), DONE],
        replies: &[(1, Reply::Cancel)],
        ends: &[(0, Finding::Once), (1, Finding::NotDone)],
        reasons: &[EndReason::OperatorCancelled],
        ..PLAIN
    },
    Story {
        name: "expired",
        script: &[Line::Call("send"), DONE],
        replies: &[(0, Reply::Sweep)],
        ends: &[(0, Finding::NotDone)],
        reasons: &[EndReason::ApprovalExpired],
        question_ttl_ms: Some(1),
        ..PLAIN
    },
    Story {
        name: "renewed",
        script: &[Line::Call("linger"), DONE],
        ends: &[(0, Finding::Once)],
        // Long enough that a busy machine does not let it end between two renewals.
        lease: Duration::from_secs(4),
        ..PLAIN
    },
];

impl Story {
    pub(crate) fn named(name: &str) -> &'static Self {
        [WHOLE].into_iter().chain(STORIES).find(|story| story.name == name).unwrap()
    }

    /// The agent's script, one proposal a line.
    pub(crate) fn text(&self) -> String {
        let lines = self.script.iter().zip(0_u64..).map(|(line, n)| match line {
            Line::Call(tool) => {
                format!(r#"{{"kind":"tool_call","tool":"{tool}","arguments":{{"n":{n}}}}}"#)
            }
            Line::Raw(text) => (*text).to_owned(),
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits {
            max_consecutive_failures: 10,
            question_ttl_ms: self.question_ttl_ms,
            ..Limits::default()
        }
    }

    pub(crate) fn reply(&self, line: u64) -> Reply {
        self.replies.iter().find(|(at, _)| *at == line).unwrap().1
    }

    /// Sending asks one person, and their no is an observation; `shred` asks two, `burn` is in no class that may.
    pub(crate) fn table(&self) -> ClassTable {
        let two = Outcome::ask("operator", 2).unwrap();
        let table = ClassTable::default().with(
            EffectClass::RemoteMutation,
            Outcome::ask("operator", 1).unwrap().observing_rejection(),
        );
        if self.name == "two-people" { table.with(EffectClass::Destructive, two) } else { table }
    }
}
