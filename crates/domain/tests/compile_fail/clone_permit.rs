//! A permit cannot be copied.
use portcullis_domain::permit::Permit;

fn wrong(permit: Permit) -> (Permit, Permit) {
    let copy = permit.clone();
    (permit, copy)
}

fn main() {
    let _ = wrong;
}
