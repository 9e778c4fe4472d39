//! Metrics of which each has a figure.

use std::{sync::Arc, time::Duration};

use crate::{
    board::{Board, SpaceView, Survey},
    config::{Config, QueueConfig},
    metrics::{QueueMeters, render},
};

/// A name that the format has to escape; and one without consumers or figures.
pub(super) const QUEUES: [&str; 2] = ["a \"b\" \\c\nd", "quiet"];

/// A daemon's board.
pub(super) fn board() -> Arc<Board> {
    let mut config = Config::default();
    config.queues.extend(QUEUES.map(|name| (name.to_owned(), QueueConfig::new("log"))));
    let board = Board::new("embedded:/var/lib/kvqueue");
    board.configure(None, &config);
    let [name, _] = QUEUES;
    let survey =
        Survey { ready: 3, running: 2, waiting: 1, dead: 4, done: 9, pushed: Some(17), ..Survey::default() };
    board.surveyed(name, Survey { oldest: Some(Duration::from_millis(2_500)), ..survey });
    board.database(Ok(Duration::from_micros(350)));
    let refused = Some("the disk is full".to_owned());
    board.space(SpaceView {
        free: 1 << 20,
        total: 1 << 30,
        min_free: 2 << 20,
        limit_from: "the default",
        reusable: 0,
        pushes_refused: refused,
    });
    board.gate(&name.into()).hold_here(true);
    board.join(1, &name.into(), std::num::NonZeroUsize::MIN, 0);
    board.refused("bad".to_owned());
    board.metrics.requests.count("/metrics", 200);
    count(&board.metrics.queue(&name.into()));
    board
}

fn count(meters: &QueueMeters) {
    meters.taken.add(10);
    meters.done.add(7);
    meters.lost.inc();
    for millis in [0, 1, 70_000] {
        meters.handle_seconds.observe(Duration::from_millis(millis));
    }
}

/// What Prometheus gets to read of it.
pub(super) fn text(board: &Board) -> String {
    let mut out = String::new();
    render(&board.metrics, &board.snapshot(), &mut out);
    out
}
