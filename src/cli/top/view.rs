//! What is on the screen. Pure, but for the clock.

use super::screen::Key;
use crate::{
    cli::status::{Figures, Line, Mood, QueueFigures, Table, about},
    consumer::clock,
};

/// What queues are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Name,
    Ready,
    Out,
    Dead,
}

impl Order {
    fn next(self) -> Self {
        match self {
            Self::Name => Self::Ready,
            Self::Ready => Self::Out,
            Self::Out => Self::Dead,
            Self::Dead => Self::Name,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Ready => "ready",
            Self::Out => "out/s",
            Self::Dead => "dead",
        }
    }

    fn sort(self, queues: &mut [QueueFigures]) {
        let value = |queue: &QueueFigures| match self {
            Self::Name => 0.0,
            Self::Ready => queue.ready.unwrap_or(0) as f64,
            Self::Out => queue.out_rate.unwrap_or(0.0),
            Self::Dead => queue.dead.unwrap_or(0) as f64,
        };
        // The most first; those that are alike stay in the order of their names.
        queues.sort_by(|a, b| value(b).total_cmp(&value(a)));
    }
}

/// The daemon as last seen, and what part of it is shown.
pub(super) struct View {
    figures: Figures,
    /// Why nothing newer is known.
    trouble: Option<String>,
    order: Order,
    /// Queues above the screen.
    above: usize,
}

impl View {
    pub(super) fn new(figures: Figures) -> Self {
        Self { figures, trouble: None, order: Order::Name, above: 0 }
    }

    pub(super) fn update(&mut self, found: anyhow::Result<Figures>) {
        match found {
            Ok(figures) => (self.figures, self.trouble) = (figures, None),
            Err(error) => self.trouble = Some(format!("{error:#}")),
        }
    }

    pub(super) fn on(&mut self, key: Key) {
        match key {
            Key::Sort => (self.order, self.above) = (self.order.next(), 0),
            Key::Down => self.above = self.above.saturating_add(1),
            Key::Up => self.above = self.above.saturating_sub(1),
            Key::End | Key::Other => {}
        }
    }

    /// What fits on a screen of this size.
    pub(super) fn lines(&mut self, (width, height): (usize, usize)) -> Vec<Line> {
        let mut lines = match &self.trouble {
            Some(why) => vec![Line::new(format!("{why}; what is shown is as it was last"), Mood::Bad)],
            None => about(&self.figures, clock::now()),
        };
        lines.push(Line::default());
        let mut queues = self.figures.queues.clone();
        self.order.sort(&mut queues);
        let Table { head, rows, mut remarks } = Table::new(&queues, width);
        lines.push(head);
        remarks.truncate(height / 4);
        // One line is for what the keys do.
        let room = height.saturating_sub(lines.len() + remarks.len() + 1).max(1);
        self.above = self.above.min(queues.len().saturating_sub(room));
        lines.extend(rows.into_iter().skip(self.above).take(room));
        lines.extend(remarks);
        let shown = (queues.len() - self.above).min(room);
        let part = match shown < queues.len() {
            true => format!("   queues {} to {} of {}", self.above + 1, self.above + shown, queues.len()),
            false => String::new(),
        };
        lines.push(Line::new(format!("q quit   s sort (now: {}){part}", self.order.name()), Mood::Quiet));
        lines
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view() -> View {
        let queues: Vec<_> =
            (0..20).map(|it| json!({ "queue": format!("q{it:02}"), "ready": it, "dead": 20 - it, "out_rate": it % 3 })).collect();
        View::new(serde_json::from_value(json!({ "phase": "ready", "queues": queues })).unwrap())
    }

    fn names(view: &mut View, height: usize) -> Vec<String> {
        let lines = view.lines((80, height));
        assert!(lines.len() <= height, "{lines:?}");
        let shown = lines.iter().map(|line| line.show(false, 80));
        shown
            .filter(|line| line.starts_with('q') && !line.starts_with("q quit"))
            .map(|line| line[..3].to_owned())
            .collect()
    }

    #[test]
    fn a_long_list_is_gone_down_and_not_past_its_end() {
        let mut view = view();
        assert_eq!(names(&mut view, 10), ["q00", "q01", "q02", "q03", "q04"]);
        for _ in 0..100 {
            view.on(Key::Down);
        }
        assert_eq!(names(&mut view, 10), ["q15", "q16", "q17", "q18", "q19"]);
        view.on(Key::Up);
        assert_eq!(names(&mut view, 10)[0], "q14");
    }

    #[test]
    fn queues_are_sorted_by_what_there_is_most_of() {
        let mut view = view();
        let mut firsts = Vec::new();
        for _ in 0..5 {
            firsts.push(names(&mut view, 40)[0].clone());
            view.on(Key::Sort);
        }
        assert_eq!(firsts, ["q00", "q19", "q02", "q00", "q00"]);
    }

    #[test]
    fn what_was_known_stays_while_the_daemon_is_away() {
        let mut view = view();
        view.update(Err(anyhow::anyhow!("nobody answers")));
        let first = view.lines((80, 40))[0].show(false, 200);
        assert_eq!(first, "nobody answers; what is shown is as it was last");
        assert_eq!(names(&mut view, 40).len(), 20);
    }
}
