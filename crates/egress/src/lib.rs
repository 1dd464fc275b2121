//! The one HTTP client of the product: judged addresses, verified TLS, bounded bodies, credentials put in at the edge.
//!
//! Nothing is reachable until [`EgressRules`] say so. A [`Target`] has one reading, its name is resolved once, every
//! address is judged and the judged address is dialled; a redirect is an error; a body is counted while it comes. A
//! [`Request`] names a credential, and the [`Credentials`] put the secret into the one header of the one request, to the
//! place that it is bound to.
//!
//! ```
//! use std::sync::Arc;
//!
//! use portcullis_egress::{
//!     Credential, CredentialRef, Credentials, Egress, EgressRules, HostRule, Method, Reach, Request, Secret, Sent,
//!     Target,
//! };
//! use portcullis_testkit::ports::ManualClock;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rules = EgressRules::closed()
//!     .host(HostRule::new("api.example.com", Reach::Public)?)?
//!     .loopback_port(11434);
//! let key = Credential::given(Secret::new("not-a-real-key".to_owned())?).only_to("api.example.com")?;
//! let credentials = Credentials::new([("models", key)])?;
//! let egress = Egress::new(rules, credentials, Arc::new(ManualClock::default()))?;
//!
//! // A place that no rule names, and a key that is not for a place: not one byte is sent.
//! let elsewhere = Request::new(Method::Get, Target::parse("http://169.254.169.254/latest/")?);
//! let misplaced = Request::new(Method::Post, Target::parse("http://127.0.0.1:11434/api/chat")?)
//!     .credential(CredentialRef::bearer("models"))
//!     .body(b"{}".to_vec());
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! for request in [elsewhere, misplaced] {
//!     let refused = runtime.block_on(egress.send(request)).unwrap_err();
//!     assert_eq!(refused.sent, Sent::Nothing);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! This crate knows nothing of the gate, of policies, tools, runs, models or the record. It does not look at the
//! environment, and it sends nothing twice.
//!
//! In reading order: [`Target`], [`EgressRules`], [`Request`], [`Egress`], [`Response`] and [`Incoming`],
//! [`EgressError`]; then [`Secret`], [`Credentials`] and [`OAuthRule`].

#![forbid(unsafe_code)]

mod address;
mod target;

mod names;
mod proxy;
mod rules;

mod error;
mod request;
mod response;
mod retry_after;

mod dial;
mod echo;
mod egress;
mod leaving;
mod tls;
mod transport;

mod credentials;
mod owned_file;
mod secret;

pub use address::{AddressClass, classify};
pub use credentials::{
    Agreed, Credential, CredentialFault, CredentialRef, Credentials, Login, LoginCode, LoginFile,
    OAuthClient, OAuthFault, OAuthRule,
};
pub use egress::Egress;
pub use error::{EgressError, Fault, Phase, Sent, TlsFault};
pub use names::{Names, SystemNames, Unresolved};
pub use owned_file::FileFault;
pub use proxy::{Proxy, ProxyFault};
pub use request::{HeaderFault, MAX_REQUEST_BODY, Method, Request};
pub use response::{Headers, Incoming, Response};
pub use retry_after::MAX_RETRY_AFTER;
pub use rules::{
    DEFAULT_MAX_BODY, Deadlines, EgressRules, HostRule, MAX_DEADLINE, Reach, RulesFault,
};
pub use secret::{MAX_SECRET, MIN_SECRET, Secret, SecretFault};
pub use target::{MAX_URL, Target, TargetFault, pairs};
pub use tls::RootsFault;
