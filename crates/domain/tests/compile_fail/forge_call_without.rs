//! There is no call without a permit.
use portcullis_domain::ports::ToolSource;

fn wrong(source: &dyn ToolSource) {
    let _ = source.call();
}

fn main() {
    let _ = wrong;
}
