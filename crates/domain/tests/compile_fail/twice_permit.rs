//! A permit is used once.
use portcullis_domain::permit::Permit;
use portcullis_domain::ports::ToolSource;

async fn wrong(source: &dyn ToolSource, permit: Permit) {
    let _ = source.call(permit).await;
    let _ = source.call(permit).await;
}

fn main() {
    let _ = wrong;
}
