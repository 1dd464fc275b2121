//! A permit has no default.
use portcullis_domain::permit::Permit;

fn main() {
    let _permit: Permit = Default::default();
}
