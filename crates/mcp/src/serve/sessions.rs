//! Sessions over HTTP: an id that proves by itself that it was given out here.
//!
//! Nothing is held for a session, so that there is no number of them to bound and none to end when it was idle: the same
//! id, and with it the same conversation, is good after a start anew. It names; it lets nobody in.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portcullis_canon::{Digest, Kind};
use portcullis_domain::ports::Entropy;

/// How many ids that a host ended are remembered. One that is forgotten would be good again for whoever has the token.
const MAX_ENDED: usize = 4_096;

/// The digits of each half of an id: what was drawn, and the proof.
const HALF: usize = 32;

/// Gives out ids and knows them again.
pub(super) struct Sessions {
    secret: Digest,
    entropy: Arc<dyn Entropy>,
    ended: Mutex<VecDeque<String>>,
}

impl Sessions {
    /// Ids that hold under this secret.
    pub(super) fn new(secret: Digest, entropy: Arc<dyn Entropy>) -> Self {
        Self { secret, entropy, ended: Mutex::default() }
    }

    /// A new id, which nobody can guess.
    pub(super) fn begin(&self) -> String {
        let mut drawn = [0_u8; 32];
        self.entropy.fill(&mut drawn);
        let name = half(&Digest::of_parts(Kind::HostToken, &[b"session-name", &drawn]));
        let proof = self.proof(&name);
        name + &proof
    }

    /// Whether this id was given out under the secret, and was not ended since.
    pub(super) fn is_good(&self, id: &str) -> bool {
        let proven = id.split_at_checked(HALF).is_some_and(|(name, proof)| {
            // The token was compared already, in constant time: this proof guards a name from mistakes, not a door.
            self.proof(name) == proof
        });
        proven && !self.lock().iter().any(|ended| ended == id)
    }

    /// From now on the id is unknown.
    pub(super) fn end(&self, id: &str) {
        let mut ended = self.lock();
        while ended.len() >= MAX_ENDED {
            ended.pop_front();
        }
        ended.push_back(id.to_owned());
    }

    fn proof(&self, name: &str) -> String {
        let parts: [&[u8]; 3] = [b"session-proof", self.secret.as_bytes(), name.as_bytes()];
        half(&Digest::of_parts(Kind::HostToken, &parts))
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn half(digest: &Digest) -> String {
    digest.hex().chars().take(HALF).collect()
}

#[cfg(test)]
mod tests {
    use portcullis_testkit::ports::SeededEntropy;

    use super::*;

    fn sessions(secret: &[u8]) -> Sessions {
        let secret = Digest::of(Kind::HostToken, secret);
        Sessions::new(secret, Arc::new(SeededEntropy::new(3)))
    }

    #[test]
    fn an_id_is_good_where_it_was_given_out_until_it_is_ended() {
        let given = sessions(b"a");
        let (first, second) = (given.begin(), given.begin());
        assert_eq!((first.len(), first == second), (2 * HALF, false));
        assert!(given.is_good(&first) && sessions(b"a").is_good(&first), "also after a start anew");
        assert!(!sessions(b"b").is_good(&first), "another token's");
        let other_name = format!("{}{}", "0".repeat(HALF), first.split_at(HALF).1);
        for odd in ["", "x", first.split_at(HALF).0, &other_name, &first.to_uppercase(), "ü"] {
            assert!(!given.is_good(odd), "{odd}");
        }
        given.end(&first);
        assert!(!given.is_good(&first) && given.is_good(&second));
    }

    #[test]
    fn what_is_remembered_of_ended_ids_is_bounded() {
        let given = sessions(b"a");
        let first = given.begin();
        given.end(&first);
        for number in 1..MAX_ENDED {
            given.end(&number.to_string());
        }
        assert!(!given.is_good(&first));
        given.end("one more");
        assert_eq!(given.lock().len(), MAX_ENDED);
    }
}
