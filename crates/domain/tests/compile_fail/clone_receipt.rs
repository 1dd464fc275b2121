//! A receipt cannot be copied.
use portcullis_domain::permit::Receipt;

fn wrong(receipt: &Receipt) -> Receipt {
    Receipt::clone(receipt)
}

fn main() {
    let _ = wrong;
}
