//! Reads of the tables in memory.

use portcullis_canon::{Digest, Kind};
use portcullis_domain::approval::Approval;
use portcullis_domain::budget::Budget;
use portcullis_domain::content::Content;
use portcullis_domain::fold::RunState;
use portcullis_domain::id::{BudgetId, QuestionId, RunId, ThreadId};
use portcullis_domain::ports::{
    DamagedRow, EventFilter, Notice, OpenOutcome, Page, Rows, StoreError, StoredEvent,
};
use portcullis_domain::question::{Question, QuestionStatus};
use portcullis_domain::row::{Cell, Row};
use portcullis_domain::run::{Run, RunStatus};
use portcullis_domain::scope::Tenant;
use portcullis_domain::step::Step;
use portcullis_domain::thread::Thread;

use super::raw::State;
use crate::state::Tail;
use crate::tables::{check_limit, check_page, need_row, read_row};

fn blob(bytes: &[u8]) -> Cell {
    Cell::Blob(bytes.to_vec())
}

fn text(text: &str) -> Cell {
    Cell::Text(text.to_owned())
}

/// The cell of a row in the column with this name.
fn cell<'a, R: Row>(row: &'a [Cell], column: &str) -> Option<&'a Cell> {
    R::COLUMNS.iter().position(|name| *name == column).and_then(|place| row.get(place))
}

/// A page of rows that were selected and put in order.
fn page_of<R: Row>(rows: &[&Vec<Cell>], page: Page) -> Rows<R> {
    let skip = usize::try_from(page.offset).unwrap_or(usize::MAX);
    let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
    Rows {
        rows: rows.iter().skip(skip).take(limit).map(|row| read_row(row)).collect(),
        total: u64::try_from(rows.len()).unwrap_or(u64::MAX),
    }
}

impl State {
    /// Rows whose cells in these columns are these, in the order in which they were made.
    fn select<R: Row>(&self, wanted: &[(&str, &Cell)]) -> Vec<&Vec<Cell>> {
        let fits = |row: &&Vec<Cell>| {
            wanted.iter().all(|(column, value)| cell::<R>(row, column) == Some(*value))
        };
        self.raw.table(R::TABLE).iter().filter(fits).collect()
    }

    fn steps_of(&self, run: RunId) -> Vec<&Vec<Cell>> {
        let mut rows = self.select::<Step>(&[("run", &blob(run.as_bytes()))]);
        rows.sort_by_key(|row| cell::<Step>(row, "index"));
        rows
    }

    /// A run of any tenant.
    pub(super) fn run_state(&self, id: RunId) -> Result<Option<RunState>, StoreError> {
        if let Some(state) = self.states.get(&id) {
            return Ok(Some(state.clone()));
        }
        let Some(row) = self.row(Run::TABLE, &[blob(id.as_bytes())]) else { return Ok(None) };
        let run: Run = need_row(row)?;
        let mut tail = Tail::of(&run);
        for row in self.steps_of(id).iter().rev() {
            if !tail.wants_more() {
                break;
            }
            tail.push(need_row(row)?);
        }
        let question = match tail.latest().and_then(|step| step.question) {
            Some(id) => self.question(id)?,
            None => None,
        };
        let approvals = match &question {
            Some(question) => self.approvals(question.id)?,
            None => Vec::new(),
        };
        tail.assemble(run, question, approvals).map(Some)
    }

    pub(super) fn own_run(
        &self,
        tenant: &Tenant,
        id: RunId,
    ) -> Result<Option<RunState>, StoreError> {
        Ok(self.run_state(id)?.filter(|state| state.run.tenant == *tenant))
    }

    pub(super) fn thread(&self, id: ThreadId) -> Result<Option<Thread>, StoreError> {
        self.row(Thread::TABLE, &[blob(id.as_bytes())]).map(|row| need_row(row)).transpose()
    }

    /// A budget of any tenant.
    pub(super) fn budget(&self, id: BudgetId) -> Result<Option<Budget>, StoreError> {
        self.row(Budget::TABLE, &[blob(id.as_bytes())]).map(|row| need_row(row)).transpose()
    }

    pub(super) fn held_budgets(
        &self,
        tenant: &Tenant,
        page: Page,
    ) -> Result<Rows<Budget>, StoreError> {
        check_page(page)?;
        let mut rows = self.select::<Budget>(&[("tenant", &text(tenant.as_str()))]);
        rows.retain(|row| cell::<Budget>(row, "holds") != Some(&text("[]")));
        Ok(page_of(&rows, page))
    }

    pub(super) fn children(
        &self,
        tenant: &Tenant,
        parent: RunId,
        page: Page,
    ) -> Result<Rows<Run>, StoreError> {
        check_page(page)?;
        let of = (text(tenant.as_str()), blob(parent.as_bytes()));
        Ok(page_of(&self.select::<Run>(&[("tenant", &of.0), ("parent", &of.1)]), page))
    }

    pub(super) fn orphans(&self, tenant: &Tenant, page: Page) -> Result<Rows<Run>, StoreError> {
        check_page(page)?;
        let open = |row: &[Cell]| cell::<Run>(row, "finished_at") == Some(&Cell::Null);
        let mut rows = self.select::<Run>(&[("tenant", &text(tenant.as_str()))]);
        rows.retain(|row| {
            let parent = cell::<Run>(row, "parent");
            let parent = parent.and_then(|id| self.row(Run::TABLE, std::slice::from_ref(id)));
            open(row) && parent.is_some_and(|parent| !open(parent))
        });
        Ok(page_of(&rows, page))
    }

    pub(super) fn question(&self, id: QuestionId) -> Result<Option<Question>, StoreError> {
        self.row(Question::TABLE, &[blob(id.as_bytes())]).map(|row| need_row(row)).transpose()
    }

    /// The questions about outcomes of an owner's calls that are neither answered for good nor closed.
    pub(super) fn open_outcomes(
        &self,
        tenant: &Tenant,
        owner: &str,
    ) -> Result<Vec<OpenOutcome>, StoreError> {
        let mut open = Vec::new();
        for id in &self.outcomes {
            let damaged = StoreError::Damaged { table: Question::TABLE };
            let asked = self.question(*id)?.ok_or(damaged)?;
            let run = blob(asked.run.as_bytes());
            let run = self.row(Run::TABLE, std::slice::from_ref(&run));
            let is = |column, wanted: &str| {
                run.is_some_and(|row| cell::<Run>(row, column) == Some(&text(wanted)))
            };
            if is("tenant", tenant.as_str()) && is("owner", owner) {
                let damaged = StoreError::Damaged { table: Step::TABLE };
                let row = self.row(Step::TABLE, &[blob(asked.step.as_bytes())]);
                let step: Step = row.map(|row| need_row(row)).ok_or(damaged.clone())??;
                let call = step.admitted.ok_or(damaged)?;
                open.push(OpenOutcome { question: *id, call });
            }
        }
        Ok(open)
    }

    fn approvals(&self, question: QuestionId) -> Result<Vec<Approval>, StoreError> {
        let rows = self.select::<Approval>(&[("question", &blob(question.as_bytes()))]);
        rows.into_iter().map(|row| need_row(row)).collect()
    }

    /// Whether a run's row says that it is this tenant's, without reading the rest of it.
    fn owns(&self, tenant: &Tenant, run: &Cell) -> bool {
        self.row(Run::TABLE, std::slice::from_ref(run))
            .is_some_and(|row| cell::<Run>(row, "tenant") == Some(&text(tenant.as_str())))
    }

    pub(super) fn own_approvals(
        &self,
        tenant: &Tenant,
        question: QuestionId,
    ) -> Result<Vec<Approval>, StoreError> {
        match self.row(Question::TABLE, &[blob(question.as_bytes())]) {
            Some(row) if cell::<Question>(row, "run").is_some_and(|run| self.owns(tenant, run)) => {
                self.approvals(question)
            }
            _ => Ok(Vec::new()),
        }
    }

    pub(super) fn own_content(
        &self,
        tenant: &Tenant,
        digest: Digest,
    ) -> Result<Option<Content>, StoreError> {
        match self.raw.contents.get(digest.as_bytes().as_slice()) {
            Some(row) if row.tenant == tenant.as_str() && !row.is_erased() => {
                checked_content(digest, &row.salt, row.bytes.clone()).map(Some)
            }
            _ => Ok(None),
        }
    }

    pub(super) fn checked_spec(&self, digest: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        match self.raw.specs.get(digest.as_bytes().as_slice()) {
            Some(bytes) => checked_spec(digest, bytes.clone()).map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn runs(
        &self,
        tenant: &Tenant,
        status: Option<RunStatus>,
        page: Page,
    ) -> Result<Rows<Run>, StoreError> {
        check_page(page)?;
        let tenant = text(tenant.as_str());
        let status = status.map(|status| text(status.as_str()));
        let mut wanted = vec![("tenant", &tenant)];
        wanted.extend(status.as_ref().map(|status| ("status", status)));
        let mut rows = self.select::<Run>(&wanted);
        rows.reverse();
        Ok(page_of(&rows, page))
    }

    pub(super) fn steps(
        &self,
        tenant: &Tenant,
        run: RunId,
        page: Page,
    ) -> Result<Rows<Step>, StoreError> {
        check_page(page)?;
        let own = self.owns(tenant, &blob(run.as_bytes()));
        let rows = if own { self.steps_of(run) } else { Vec::new() };
        Ok(page_of(&rows, page))
    }

    pub(super) fn questions(
        &self,
        tenant: &Tenant,
        run: Option<RunId>,
        status: Option<QuestionStatus>,
        page: Page,
    ) -> Result<Rows<Question>, StoreError> {
        check_page(page)?;
        let run = run.map(|run| blob(run.as_bytes()));
        let status = status.map(|status| text(status.as_str()));
        let mut wanted = Vec::new();
        wanted.extend(run.as_ref().map(|run| ("run", run)));
        wanted.extend(status.as_ref().map(|status| ("status", status)));
        let mut rows = self.select::<Question>(&wanted);
        rows.retain(|row| cell::<Question>(row, "run").is_some_and(|run| self.owns(tenant, run)));
        Ok(page_of(&rows, page))
    }

    /// A question of a run of this tenant.
    pub(super) fn own_question(
        &self,
        tenant: &Tenant,
        id: QuestionId,
    ) -> Result<Option<Question>, StoreError> {
        let Some(row) = self.row(Question::TABLE, &[blob(id.as_bytes())]) else { return Ok(None) };
        let own = cell::<Question>(row, "run").is_some_and(|run| self.owns(tenant, run));
        if own { need_row(row).map(Some) } else { Ok(None) }
    }

    pub(super) fn due(
        &self,
        tenant: &Tenant,
        notice: Notice,
        page: Page,
    ) -> Result<Vec<Result<Question, DamagedRow>>, StoreError> {
        check_page(page)?;
        let is_due = |question: &Question| {
            let ends = question.ends_at().filter(|end| *end <= notice.until);
            let noted = self.reminders.contains_key(&(question.id, question.status));
            ends.filter(|end| *end < notice.now || !noted)
        };
        let rows = self.raw.table(Question::TABLE).iter();
        let own = rows
            .filter(|row| cell::<Question>(row, "run").is_some_and(|run| self.owns(tenant, run)));
        let read = own.filter_map(|row| read_row::<Question>(row).ok());
        let mut due: Vec<_> = read.filter_map(|q| is_due(&q).map(|end| (end, q))).collect();
        due.sort_by_key(|(end, _)| *end);
        let skip = usize::try_from(page.offset).unwrap_or(usize::MAX);
        let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
        Ok(due.into_iter().skip(skip).take(limit).map(|(_, question)| Ok(question)).collect())
    }

    pub(super) fn events(
        &self,
        tenant: &Tenant,
        filter: EventFilter,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        check_limit(filter.limit)?;
        let fits = |event: &&StoredEvent| {
            event.tenant == tenant.as_str()
                && u64::try_from(event.journal_seq).is_ok_and(|seq| seq > filter.after)
                && filter.stream.is_none_or(|stream| {
                    event.stream_kind == stream.kind.as_str() && event.stream_id == stream.id
                })
        };
        let limit = usize::try_from(filter.limit).unwrap_or(usize::MAX);
        Ok(self.raw.events.iter().filter(fits).take(limit).cloned().collect())
    }
}

/// A content that is what its digest says.
pub(crate) fn checked_content(
    digest: Digest,
    salt: &[u8],
    bytes: Vec<u8>,
) -> Result<Content, StoreError> {
    let damaged = StoreError::Damaged { table: "contents" };
    let Ok(salt) = salt.try_into() else { return Err(damaged) };
    let content = Content::from_stored(salt, bytes);
    if content.reference().digest == digest { Ok(content) } else { Err(damaged) }
}

/// A spec that is what its digest says.
pub(crate) fn checked_spec(digest: Digest, bytes: Vec<u8>) -> Result<Vec<u8>, StoreError> {
    if Digest::of(Kind::ToolSpec, &bytes) == digest {
        Ok(bytes)
    } else {
        Err(StoreError::Damaged { table: "specs" })
    }
}
