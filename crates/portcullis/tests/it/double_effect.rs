//! A test to copy for tools of one's own: the process ends at every point, and each payment has to be made once.
//!
//! The tool below is honest, or says that it only reads, which makes the gate take it for safe to repeat. The test finds
//! the second payment of the dishonest one, and passes the honest one.

use std::sync::{Arc, Mutex};

use portcullis::audit::{Options, verify};
use portcullis::canon::{Limits, Object, Value, parse};
use portcullis::domain::permit::Permit;
use portcullis::domain::ports::{BoxFuture, Ledgers, ToolFailure, ToolOutput, ToolSource};
use portcullis::domain::tool::{EffectClass, ToolSpec};
use portcullis::policy::ClassTable;
use portcullis::store::memory::MemoryStore;
use portcullis_testkit::trial::{Kind, Report, Rest, Subject, Trial, nobody_knows, who_looks};

/// The bank: what was paid, in order. It outlives the process, as the world outside does.
type Bank = Arc<Mutex<Vec<String>>>;

/// Pays invoices. Nothing keeps it from paying one twice.
struct Invoices {
    says: EffectClass,
    bank: Bank,
}

impl ToolSource for Invoices {
    fn specs(&self) -> Vec<ToolSpec> {
        let schema = br#"{"type":"object","additionalProperties":false,"required":["invoice"],
            "properties":{"invoice":{"type":"string","maxLength":32}}}"#;
        vec![ToolSpec {
            name: "invoices.pay".to_owned(),
            description: "Pays an invoice.".to_owned(),
            input_schema: parse(schema, &Limits::BARE).unwrap(),
            effect: self.says,
            source: false,
            sink: self.says.changes_something(),
            authority: vec!["/invoice".to_owned()],
            deadline_ms: 5_000,
            terminal: false,
            fixed: Object::new(),
            max_result_bytes: 4_096,
            target: None,
            probe: None,
            idempotency_key: None,
        }]
    }

    fn blocks(&self) -> bool {
        false
    }

    fn call(&self, permit: Permit) -> BoxFuture<'_, Result<ToolOutput, ToolFailure>> {
        Box::pin(async move {
            let invoice = permit.arguments().get("invoice").and_then(Value::as_str);
            self.bank.lock().unwrap().push(invoice.unwrap_or_default().to_owned());
            Ok(ToolOutput { content: br#"{"paid":true}"#.to_vec(), labels: None })
        })
    }
}

/// Two invoices, each to be paid once, by a tool that says that it is of this class.
fn trial(says: EffectClass) -> Trial<MemoryStore> {
    let subject = move || {
        let bank = Bank::default();
        let tool = Invoices { says, bank: Arc::clone(&bank) };
        Subject::new(vec![Arc::new(tool)], move || bank.lock().unwrap().clone())
    };
    Trial::new(MemoryStore::new, subject)
        .policy(Arc::new(ClassTable::default()))
        .script([
            r#"{"kind":"tool_call","tool":"invoices.pay","arguments":{"invoice":"A-1"}}"#,
            r#"{"kind":"tool_call","tool":"invoices.pay","arguments":{"invoice":"A-2"}}"#,
            r#"{"kind":"complete"}"#,
        ])
        .check(|store: &MemoryStore, keys| {
            let options = Options { keys: &[keys], ..Options::default() };
            match verify(store.begin().unwrap().as_mut(), options) {
                Ok(report) if report.intact => Vec::new(),
                other => vec![format!("{other:?}")],
            }
        })
}

fn points(report: &Report, kind: Kind) -> Vec<String> {
    report.of(kind).map(|finding| finding.point.to_string()).collect()
}

#[test]
fn a_tool_that_pays_and_says_that_it_only_reads_pays_twice_and_is_found() {
    let report = trial(EffectClass::ReadOnly).run();
    // The process ended between the payment and its record; the next one took the call for a read and let it be
    // proposed again.
    let doubles = points(&report, Kind::Double);
    assert!(doubles.contains(&"after effect 1 (invoices.pay)".to_owned()), "{report}");
    assert!(doubles.contains(&"after effect 2 (invoices.pay)".to_owned()), "{report}");
    // Ended before the payment, it is made once after all.
    assert!(!doubles.contains(&"before effect 1 (invoices.pay)".to_owned()), "{report}");
    // And it is caught telling an untruth even when nothing goes wrong.
    assert!(points(&report, Kind::FalseClaim).contains(&"undisturbed".to_owned()), "{report}");
    assert_eq!(points(&report, Kind::NotIntact), Vec::<String>::new());
}

/// The control: nothing but the class differs.
#[test]
fn the_same_tool_with_its_true_class_pays_once_at_every_point() {
    let report = trial(EffectClass::RemoteMutation).people(who_looks).run();
    report.assert_kept();
    assert_eq!(report.undisturbed.effects, ["A-1", "A-2"]);
    assert!(report.tried.iter().all(|tried| tried.effects == ["A-1", "A-2"]), "{report}");
    // Where nobody can say what became of it, it waits instead of paying again.
    let report = trial(EffectClass::RemoteMutation).people(nobody_knows).run();
    report.assert_kept();
    let paid = report.tried.iter().find(|t| t.point.to_string() == "after effect 1 (invoices.pay)");
    let paid = paid.unwrap();
    assert_eq!((&paid.rest, paid.effects.len()), (&Rest::Waits, 1), "{report}");
}
