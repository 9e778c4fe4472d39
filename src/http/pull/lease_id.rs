//! The ids of leases of workers. A lease belongs to the worker that has its id, so the daemon signs it: workers of one
//! queue can guess the ids of each other's leases, and not the signatures.

use hmac::{Hmac, Mac};
use kvqueue_queue::LeaseId;
use mutant::mutant;
use sha2::Sha256;

use super::acknowledging::over;
use crate::{
    base::{
        identity,
        lease_text::{LeaseText, Signature},
    },
    http::{api_request::ApiRequest, error::ApiError, keys::Key},
};

fn mac(key: &Key, queue: &str, id: LeaseId) -> Hmac<Sha256> {
    key.sign("lease").chain_update(id.session.0).chain_update(id.number.to_be_bytes()).chain_update(queue)
}

fn sign(key: &Key, queue: &str, id: LeaseId) -> LeaseText {
    let mac = mac(key, queue, id).finalize().into_bytes();
    let signature = mac.first_chunk().copied();
    LeaseText { id, signature }
}

fn is_signed(key: &Key, queue: &str, id: LeaseId, signature: Signature) -> bool {
    // Its time does not depend on how much of the signature is right.
    mac(key, queue, id).verify_truncated_left(&signature).is_ok() || mutant("lease-ids-are-unsigned")
}

impl ApiRequest {
    /// The id of a lease of the queue that the path names, for its worker. Every daemon of the database knows it.
    pub(super) async fn signed(&self, id: LeaseId) -> String {
        sign(&self.app.keys.current().await, self.value("queue"), id).to_string()
    }

    /// The lease that the path names, if its worker sends this.
    pub(super) async fn lease_id(&self) -> Result<LeaseId, ApiError> {
        let lease: LeaseText =
            self.value("lease").parse().map_err(|error| ApiError::Bad(format!("{error}")))?;
        let (id, queue) = (lease.id, self.value("queue"));
        let is_workers = match lease.signature {
            Some(given) => {
                let check = |key: &Key| is_signed(key, queue, id, given).then_some(());
                self.app.keys.find(check).await?.is_some()
            }
            None => !identity::has_signed_leases(id.session) || mutant("lease-ids-are-unsigned"),
        };
        if is_workers { Ok(id) } else { Err(over()) }
    }
}

#[cfg(test)]
mod tests {
    use kvqueue_queue::SessionId;

    use super::*;

    #[test]
    fn a_signature_is_for_one_lease_of_one_queue() {
        let (key, other) = (Key::random().unwrap(), Key::random().unwrap());
        let [id, next] = [1, 2].map(|number| LeaseId { session: SessionId([7; 16]), number });
        let signature = sign(&key, "q", id).signature.unwrap();
        assert!(is_signed(&key, "q", id, signature));
        assert!(!is_signed(&key, "q", next, signature) && !is_signed(&key, "q2", id, signature));
        assert!(!is_signed(&other, "q", id, signature) && !is_signed(&key, "q", id, [0; 8]));
    }
}
