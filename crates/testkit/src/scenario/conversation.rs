//! What is counted of a conversation in a [`Scenario`].

use portcullis_canon::{Digest, Kind};
use portcullis_domain::event::{Body, ThreadCounted};
use portcullis_domain::observation::ObservationKind;
use portcullis_domain::ports::{Append, Durability};
use portcullis_domain::question::QuestionKind;
use portcullis_domain::run::EndReason;
use portcullis_domain::tally::{Counted, Counting, Returned, ThreadLimits, Trace};
use portcullis_domain::verdict::Verdict;

use super::{Scenario, allow, ask, deny};

/// A call of the scenarios' tool, which nothing is compared of.
pub const CALL: Counting = Counting { changes: true, trace: None };

impl Scenario {
    /// `thread.counted`, of the latest step.
    pub fn counted(&mut self, counted: Counted, limits: ThreadLimits) {
        let body = ThreadCounted { run: self.run, counted, limits };
        self.push_elsewhere(self.thread.into(), Some(self.step), Body::ThreadCounted(body));
    }

    /// Opens a step and records the verdict on its call, which is handed out unrecorded with whatever follows.
    pub fn judging(&mut self, verdict: Verdict) -> Vec<Append> {
        self.step_opened();
        self.proposed(br#"{"kind":"tool_call","tool":"files.move","arguments":{"path":"f.txt"}}"#);
        let recorded = self.driver(Durability::Written);
        self.judged(verdict);
        vec![recorded]
    }

    /// A run of a conversation with everything that can be counted of it.
    pub(super) fn conversing(&mut self) -> Vec<Append> {
        let limits = ThreadLimits {
            max_calls: Some(100),
            max_questions: Some(10),
            loop_threshold: Some(3),
            ..ThreadLimits::NONE
        };
        let mut appends = vec![self.begin()];
        appends.extend(self.judging(allow()));
        self.started();
        let request = Digest::of(Kind::Arguments, b"request");
        let trace = Some(Trace { request, key: Some(self.content(&[9; 32])) });
        self.counted(Counted::Call(Counting { trace, ..CALL }), limits);
        appends.push(self.driver(Durability::Synced));
        self.finished(ObservationKind::ToolResult);
        let result = Digest::of(Kind::Observation, b"result");
        self.counted(Counted::Answer(Returned { request, result }), limits);
        appends.push(self.driver(Durability::Synced));
        appends.extend(self.judging(deny()));
        self.finished(ObservationKind::Denied);
        self.counted(Counted::Denial, limits);
        appends.push(self.driver(Durability::Synced));
        appends.extend(self.judging(ask()));
        self.asked(QuestionKind::Approval, 1);
        self.counted(Counted::Question(CALL), limits);
        appends.push(self.driver(Durability::Synced));
        self.run_finished(EndReason::OperatorCancelled);
        appends.push(self.operator());
        appends
    }
}
