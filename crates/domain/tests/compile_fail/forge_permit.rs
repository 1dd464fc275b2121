//! A permit has no public parts.
use portcullis_domain::permit::Permit;

fn main() {
    let _permit = Permit { call: unreachable!(), standing: portcullis_domain::standing::Standing::always() };
}
