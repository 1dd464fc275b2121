//! A receipt gives one permit.
use portcullis_domain::permit::Receipt;

fn wrong(receipt: Receipt) {
    let _first = receipt.into_permit(portcullis_domain::standing::Standing::always());
    let _second = receipt.into_permit(portcullis_domain::standing::Standing::always());
}

fn main() {
    let _ = wrong;
}
