//! The counters of a queue, compared with its rows.

/// How many items there are in a state, both at the same version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// The value of the counters.
    pub by_counters: i64,
    /// The number of rows.
    pub by_rows: i64,
}

impl Counted {
    /// By how much the counters have to change.
    pub(crate) fn missing(&self) -> i64 {
        self.by_rows.wrapping_sub(self.by_counters)
    }
}

/// What is wrong with the index of a keyed queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexFaults {
    /// Keys that have ready items or a place in the index, and not both, or that have several places. No fetch may find their items.
    pub lost_keys: u64,
    /// Scopes whose counter of running items is wrong. Too high, it keeps the scope from using its limit; too low, it closes the scope in the end.
    pub wrong_scopes: u64,
}

/// The counters of a queue, compared with its rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recount {
    /// Items that are ready. None in a recipe's queue, where no counter tells.
    pub ready: Option<Counted>,
    /// Items that wait for their time.
    pub waiting: Counted,
    /// Dead letters.
    pub dead: Counted,
    /// The index of a keyed queue. `None` for other queues, and if it is too large to be read in five seconds, or a lease cannot be read.
    pub index: Option<IndexFaults>,
}

impl Recount {
    /// Whether every counter says what is there, and the index is right, if it was compared.
    pub fn is_right(&self) -> bool {
        let counters = [self.ready.unwrap_or_default(), self.waiting, self.dead];
        let index = self.index.unwrap_or_default();
        counters.iter().all(|it| it.missing() == 0) && index == IndexFaults::default()
    }
}
