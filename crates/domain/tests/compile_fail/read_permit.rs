//! A permit cannot be read from bytes.
use portcullis_domain::permit::Permit;

fn main() {
    let _permit: Result<Permit, _> = portcullis_canon::from_slice(b"{}", &portcullis_canon::Limits::BARE);
}
