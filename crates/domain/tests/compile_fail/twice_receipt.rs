//! A receipt gives one permit.
use portcullis_domain::permit::Receipt;

fn wrong(receipt: Receipt) {
    let _first = receipt.into_permit();
    let _second = receipt.into_permit();
}

fn main() {
    let _ = wrong;
}
