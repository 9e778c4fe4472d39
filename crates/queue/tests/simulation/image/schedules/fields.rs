//! The values of schedules' rows: records of tagged fields.

use super::{Calendar, Definition, Fate, Overlap, Policy, Record, State};
use crate::image::Ids;
use crate::image::fields::{fields, number, text};

/// The window of a schedule that has none.
const NO_WINDOW: u64 = u64::MAX;

fn split_u64(content: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = content.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*number), rest))
}

pub(super) fn definition(value: &[u8]) -> Option<Definition> {
    let mut found = Definition::default();
    let (mut expression, mut zone, mut period) = (None, None, None);
    let (mut has_missed, mut has_overlap) = (false, false);
    for (tag, content) in fields(value)? {
        match tag {
            1 => expression = Some(text(content)?),
            2 => zone = Some(text(content)?),
            3 => period = Some(number(content)?),
            4 => found.owner = Some(text(content)?),
            5 => found.payload = content.to_vec(),
            6 => {
                let (len, rest) = content.split_first_chunk::<4>()?;
                let (name, value) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
                found.attributes.insert(text(name)?, text(value)?);
            }
            7 => found.content_type = Some(text(content)?),
            8 => found.key = Some(content.to_vec()),
            9 => found.priority = i64::from_le_bytes(content.try_into().ok()?),
            10 => {
                let (policy, rest) = content.split_first()?;
                let (window, most) = split_u64(rest)?;
                found.policy = *[Policy::Skip, Policy::Once, Policy::All].get(usize::from(*policy))?;
                found.window = (window != NO_WINDOW).then_some(window);
                found.most = u32::from_le_bytes(most.try_into().ok()?);
                has_missed = true;
            }
            11 => {
                let [overlap] = content else { return None };
                found.overlap =
                    *[Overlap::Allow, Overlap::Skip, Overlap::Queue].get(usize::from(*overlap))?;
                has_overlap = true;
            }
            12 => found.jitter = number(content)?,
            _ => return None,
        }
    }
    found.calendar = match (expression, zone, period) {
        (None, None, Some(period)) => Calendar::Every(period),
        (Some(expression), Some(zone), None) => Calendar::Cron(expression, zone),
        _ => return None,
    };
    (has_missed && has_overlap).then_some(found)
}

pub(super) fn state(ids: &mut Ids, value: &[u8]) -> Option<State> {
    let (mut found, mut mark) = (State::default(), None);
    for (tag, content) in fields(value)? {
        match tag {
            1 => mark = Some(number(content)?),
            2 => found.next = Some(number(content)?),
            3 => found.row = Some(number(content)?),
            4 => found.occurrences = number(content)?,
            5 => found.records = number(content)?,
            6 => found.paused = Some(number(content)?),
            7 => {
                let (nominal, look_again) = split_u64(content)?;
                found.waiting = Some((nominal, number(look_again)?));
            }
            8 => {
                let (nominal, id) = split_u64(content)?;
                found.last = Some((nominal, ids.get(id)?));
            }
            _ => return None,
        }
    }
    found.mark = mark?;
    Some(found)
}

pub(super) fn record(ids: &mut Ids, value: &[u8]) -> Option<Record> {
    let (mut fate, mut at, mut span, mut count) = (None, None, None, None);
    let (mut occurrence, mut id) = (None, None);
    for (tag, content) in fields(value)? {
        match tag {
            1 => {
                fate = Some(match content {
                    [1] => Fate::Fired,
                    [2] => Fate::ByHand,
                    [16] => Fate::Overlap,
                    [17] => Fate::Paused,
                    [18] => Fate::Redefined,
                    [19] => Fate::Restarted,
                    [32] => Fate::Policy,
                    [33] => Fate::Window,
                    [34] => Fate::Maximum,
                    _ => return None,
                });
            }
            2 => at = Some(number(content)?),
            3 => {
                let (from, to) = split_u64(content)?;
                span = Some((from, number(to)?));
            }
            4 => {
                let (number, [is_exact @ 0..=1]) = split_u64(content)? else { return None };
                count = Some((number, *is_exact == 1));
            }
            5 => occurrence = Some(number(content)?),
            6 => id = Some(ids.get(content)?),
            _ => return None,
        }
    }
    let (fate, (from, to), (count, is_exact)) = (fate?, span?, count?);
    let is_pushed = matches!(fate, Fate::Fired | Fate::ByHand);
    (occurrence.is_some() == is_pushed && id.is_some() == is_pushed).then_some(())?;
    Some(Record { at: at?, from, to, count, is_exact, fate, occurrence, id })
}
