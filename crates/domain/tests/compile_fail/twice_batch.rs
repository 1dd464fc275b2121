//! A batch's receipt gives its permits once.
use portcullis_domain::permit::BatchReceipt;

fn wrong(receipt: BatchReceipt) {
    let _first = receipt.into_permits(&portcullis_domain::standing::Standing::always());
    let _second = receipt.into_permits(&portcullis_domain::standing::Standing::always());
}

fn main() {
    let _ = wrong;
}
