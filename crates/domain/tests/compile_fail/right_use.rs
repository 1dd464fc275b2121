//! A permit comes from a receipt and goes into a call.
use portcullis_domain::permit::{Permit, Receipt};
use portcullis_domain::ports::ToolSource;

async fn right(source: &dyn ToolSource, receipt: Receipt) {
    let (permit, _committed): (Permit, _) = receipt.into_permit(portcullis_domain::standing::Standing::always());
    let _ = source.call(permit).await;
}

fn main() {
    let _ = right;
}
