//! The right to sweep: in every transaction that moves something, a sweeper looks at the claim and writes its own.

use foundationdb::Transaction;

use crate::keys::Space;
use crate::keys::claims::Claim;
use crate::model::error::QueueError;
use crate::model::session_id::SessionId;

/// How long a claim holds from its transaction's read version on: two seconds.
pub(crate) const CLAIM: u64 = 2_000_000;

/// A claim further ahead than this was made in another life of the database, before versions went back.
const PLAUSIBLE: u64 = 2 * CLAIM;

/// Reads the claim. Conflicts with a transaction that writes it, so of two sweepers that move something at once only one commits.
pub(crate) async fn read(space: &Space, tr: &Transaction) -> Result<Option<Claim>, QueueError> {
    Ok(tr.get(&space.claim, false).await?.as_deref().and_then(Claim::decode))
}

/// Writes the claim.
pub(crate) fn write(space: &Space, tr: &Transaction, claim: Claim) {
    tr.set(&space.claim, &claim.encode());
}

/// For how many versions from `now` on another sweeper than `me` has the right; `None` if none has.
pub(crate) fn held_by_another(claim: Option<Claim>, me: SessionId, now: u64) -> Option<u64> {
    let claim = claim.filter(|claim| claim.sweeper != me)?;
    claim.until.checked_sub(now).filter(|left| (1..=PLAUSIBLE).contains(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_live_claim_of_another_sweeper_blocks_a_sweep() {
        let (me, other) = (SessionId([1; 16]), SessionId([2; 16]));
        let claim = |sweeper, until| Some(Claim { sweeper, until });
        assert_eq!(held_by_another(None, me, 100), None);
        assert_eq!(held_by_another(claim(me, 150), me, 100), None);
        assert_eq!(held_by_another(claim(other, 150), me, 100), Some(50));
        assert_eq!(held_by_another(claim(other, 100), me, 100), None);
        assert_eq!(held_by_another(claim(other, 99), me, 100), None);
        assert_eq!(held_by_another(claim(other, 100 + CLAIM), me, 100), Some(CLAIM));
        assert_eq!(held_by_another(claim(other, u64::MAX), me, 100), None);
    }
}
