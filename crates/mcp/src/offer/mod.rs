//! What a server offers beside tools: resources, templates of their names, and prompts, for the hosts of a proxy.
//!
//! An [`Offer`] is one as the server advertises it, and a manifest holds those of the day of the pin. [`OfferRules`] is what
//! the operator lets through, by name. [`McpOffers`] reads and gets them, as calls of three tools that only read, so that
//! each passes the gate; a host is shown what is pinned, allowed and still offered in the same words.

mod advertised;
mod given;
mod load;
mod rules;
mod source;

pub(crate) use advertised::checked;
pub use advertised::{MAX_OFFERS, Offer, OfferError, OfferKind};
pub(crate) use load::differs;
pub use load::{OfferFate, OfferLine};
pub use rules::{OfferRules, UriRule, UriRuleError};
pub use source::{McpOffers, OfferTerms, offered};
