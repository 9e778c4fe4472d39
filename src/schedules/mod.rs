//! Schedules as people see and change them: what is printed of one, of its times and of what became of them; making, replacing and pausing it.

mod change;
mod history;
mod names;
mod standing;
mod times;

pub(crate) use change::{Change, Effect, Refusal, ScheduleChange, check_firable, gone};
pub(crate) use history::{object as record_object, words as outcome_words};
pub(crate) use names::SchedulePage;
pub(crate) use standing::{Firing, firings, from, object as schedule_object};
pub(crate) use times::{from_now, local, local_exact};
