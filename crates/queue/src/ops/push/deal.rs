//! Which partition each item of a push goes to.

use foundationdb::Transaction;
use futures::future::try_join;

use crate::keys::Space;
use crate::keys::partitions::Deal;
use crate::model::error::QueueError;
use crate::model::id_layout::before_stamp;
use crate::model::pushed::Spot;
use crate::ops::partitions::read_to_push;
use crate::ops::push::first::check_first;
use crate::run::version::now;

/// Reads how many partitions the queue has. Without a turn the version of the transaction decides where it begins: that is as good as
/// random, and the same for all pushers of the transaction.
pub(super) async fn read(space: &Space, tr: &Transaction, turn: Option<u64>) -> Result<Deal, QueueError> {
    let record = read_to_push(space, tr).await?;
    Ok(match (record, turn) {
        (None, _) => Deal::PLAIN,
        (record, Some(turn)) => Deal::new(record, turn),
        // The lowest bits of versions may be alike.
        (record, None) => Deal::new(record, now(tr).await?.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32),
    })
}

/// The place of an item, by its number in the transaction.
pub(super) fn spot(deal: Deal, user: u16) -> Spot {
    match deal.partition(user) {
        0 => Spot::User(user),
        partition => Spot::Behind(before_stamp(partition).into(), user),
    }
}

/// Makes sure that no other pusher has pushed to the queue in the transaction: where the first item would go, none has gone.
pub(super) async fn check_alone(space: &Space, tr: &Transaction, deal: Deal) -> Result<(), QueueError> {
    if deal.first == 0 {
        return Ok(());
    }
    let aside = [space.bodies.as_slice(), &before_stamp(deal.first)].concat();
    let ready = [space.parted.as_slice(), &before_stamp(deal.first)].concat();
    try_join(check_first(space, tr, &ready, true), check_first(space, tr, &aside, true)).await.map(drop)
}
