//! No receipt, no permit; no permit, no call: the wrong use does not compile.

#[test]
fn trybuild_permits_and_receipts_cannot_be_forged() {
    let cases = trybuild::TestCases::new();
    // The control: the right use compiles, so that the wrong ones fail for their own reason.
    cases.pass("tests/compile_fail/right_use.rs");
    cases.compile_fail("tests/compile_fail/forge_*.rs");
    cases.compile_fail("tests/compile_fail/clone_*.rs");
    cases.compile_fail("tests/compile_fail/twice_*.rs");
    cases.compile_fail("tests/compile_fail/read_*.rs");
}
