//! Which occurrences fire: looked at one by one, where the layer asks its calendar for the few that matter.

use crate::image::schedules::{Definition, Fate, Policy};
use crate::world::Millis;

/// How late an occurrence may be without being missed, if no later one is due.
const ON_TIME: Millis = 60_000;

/// What is to become of the nominal times that are due, the offset taken off the time of now.
pub(super) fn plan(definition: &Definition, due: &[Millis], now: Millis) -> Vec<(Millis, Option<Fate>)> {
    let is_late = |time: Millis| now - time > ON_TIME;
    let is_within = |time: Millis| definition.window.is_none_or(|window| now - time <= window);
    let may_fire = |time: &Millis| match definition.policy {
        Policy::Skip => !is_late(*time),
        Policy::Once | Policy::All => !is_late(*time) || is_within(*time),
    };
    let most = if definition.policy == Policy::All { definition.most as usize } else { 1 };
    let firing = due.iter().rev().take_while(|time| may_fire(time)).take(most).count();
    let (missed, fire) = due.split_at(due.len() - firing);
    let reason = |time: Millis| match definition.policy {
        Policy::Skip => Fate::Policy,
        Policy::Once if firing > 0 => Fate::Policy,
        Policy::All if is_within(time) => Fate::Maximum,
        Policy::Once | Policy::All => Fate::Window,
    };
    let missed = missed.iter().map(|time| (*time, Some(reason(*time))));
    missed.chain(fire.iter().map(|time| (*time, None))).collect()
}
