//! A daemon's figures as lines for a terminal. Pure.

use std::time::SystemTime;

use kvqueue_queue::from_millis;

use super::{
    figures::{Figures, QueueFigures, Space},
    format::{LONGEST_NAME, UNKNOWN, age, fitting, rate},
};
use crate::{
    base::times::between,
    database::{limit, size},
};

/// How a text is set off, where there are colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::cli) enum Mood {
    #[default]
    Plain,
    /// Of no interest at the moment.
    Quiet,
    /// The name of something.
    Head,
    /// Out of the ordinary.
    Warn,
    /// Wrong.
    Bad,
}

impl Mood {
    fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Quiet => Some("2"),
            Self::Head => Some("1"),
            Self::Warn => Some("33"),
            Self::Bad => Some("31"),
        }
    }
}

/// Texts that stand side by side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::cli) struct Line(Vec<(String, Mood)>);

impl Line {
    pub(in crate::cli) fn new(text: impl Into<String>, mood: Mood) -> Self {
        Self(vec![(text.into(), mood)])
    }

    /// With colours or without, and cut at `width` characters.
    pub(in crate::cli) fn show(&self, colours: bool, mut width: usize) -> String {
        let mut shown = String::new();
        for (text, mood) in &self.0 {
            let part: String = text.chars().take(width).collect();
            width -= part.chars().count();
            match mood.code().filter(|_| colours) {
                Some(code) => shown += &format!("\x1b[{code}m{part}\x1b[0m"),
                None => shown += &part,
            }
        }
        shown.truncate(shown.trim_end_matches(' ').len());
        shown
    }
}

/// The columns behind the name.
const COLUMNS: [&str; 8] = ["READY", "OLDEST", "IN/S", "OUT/S", "RUNNING", "WAITING", "DEAD", "DONE"];

/// The columns that a narrow terminal omits, the least important one first.
const SPARE: [&str; 5] = ["DONE", "IN/S", "OLDEST", "RUNNING", "OUT/S"];

/// Names are not cut to fewer characters.
const SHORT_NAME: usize = 12;

/// The lines about the daemon itself, as of `now`.
pub(in crate::cli) fn about(figures: &Figures, now: SystemTime) -> Vec<Line> {
    let Figures { version, phase, pid, database, config, .. } = figures;
    let by_clock = || between(from_millis(figures.started_at), now).as_secs_f64();
    let up = age(figures.up_seconds.unwrap_or_else(by_clock));
    let state = match phase.as_str() {
        "draining" => "stopping",
        other => other,
    };
    let mood = if figures.not_ready.is_empty() { Mood::Head } else { Mood::Bad };
    let answers = database.answered_in.map_or_else(String::new, |took| format!(", answers in {}", age(took)));
    let path = config
        .path
        .as_ref()
        .map_or_else(String::new, |path| format!(", configuration {}", fitting(path, 100)));
    let mut lines = vec![
        Line(vec![
            (format!("kvqueue {} is {}", fitting(version, 20), fitting(state, 20)), mood),
            (format!(", process {pid}, up {up}{path}"), Mood::Plain),
        ]),
        Line::new(format!("database {}{answers}", fitting(&database.url, 120)), Mood::Plain),
    ];
    lines.extend(database.space.iter().flat_map(disk));
    lines.extend(
        figures.not_ready.iter().map(|why| Line::new(format!("not ready: {}", fitting(why, 400)), Mood::Bad)),
    );
    lines.extend(figures.clock.iter().map(|why| Line::new(fitting(why, 400), Mood::Bad)));
    let refused = config.refused.iter();
    lines.extend(
        refused
            .map(|why| Line::new(format!("configuration not taken up: {}", fitting(why, 400)), Mood::Warn)),
    );
    if !figures.consumers.is_empty() {
        lines.push(Line::new(consumers(figures), Mood::Plain));
    }
    lines
}

/// How much space the disk has, and what follows from that.
pub(super) fn disk(space: &Space) -> Vec<Line> {
    let refused = space.pushes_refused.iter();
    let refused =
        refused.map(|why| Line::new(format!("pushes are refused: {}", fitting(why, 400)), Mood::Bad));
    let figures = Line::new(format!("disk {}", disk_figures(space)), Mood::Plain);
    [figures].into_iter().chain(refused).collect()
}

/// How much space the disk has, and how much has to be free.
pub(in crate::cli) fn disk_figures(space: &Space) -> String {
    let Space { free, total, min_free, limit_from, reusable, .. } = space;
    let own = match reusable {
        0 => String::new(),
        bytes => format!(", {} reusable in the database", size(*bytes)),
    };
    let from = if limit_from.is_empty() { String::new() } else { format!(" ({})", fitting(limit_from, 100)) };
    format!("{} free of {}{own}, {}{from}", size(*free), size(*total), limit(*min_free))
}

/// How many consumers are at what.
fn consumers(figures: &Figures) -> String {
    let mut states: Vec<(&str, usize)> = Vec::new();
    for consumer in &figures.consumers {
        match states.iter_mut().find(|(state, _)| *state == consumer.state) {
            Some((_, count)) => *count += 1,
            None => states.push((&consumer.state, 1)),
        }
    }
    states.sort_unstable();
    let states: Vec<_> =
        states.iter().map(|(state, count)| format!("{count} {}", fitting(state, 20))).collect();
    let count = figures.consumers.len();
    format!("{count} consumer{}: {}", if count == 1 { "" } else { "s" }, states.join(", "))
}

/// The queues.
pub(in crate::cli) struct Table {
    pub(in crate::cli) head: Line,
    /// One for each queue.
    pub(in crate::cli) rows: Vec<Line>,
    /// The notes about a queue that have no room in its row.
    pub(in crate::cli) notes: Vec<Line>,
}

impl Table {
    /// As wide as this at most, as far as that can be.
    pub(in crate::cli) fn new(queues: &[QueueFigures], width: usize) -> Self {
        let cells: Vec<_> = queues.iter().map(cells).collect();
        let widths: Vec<_> = (0..COLUMNS.len())
            .map(|at| {
                cells.iter().map(|row| row[at].0.len()).chain([COLUMNS[at].len()]).max().unwrap_or_default()
                    + 2
            })
            .collect();
        let longest = queues
            .iter()
            .map(|queue| fitting(&queue.queue, LONGEST_NAME).chars().count())
            .max()
            .unwrap_or(0)
            .max(5);
        let mut columns: Vec<_> = (0..COLUMNS.len()).collect();
        let all = |columns: &[usize]| columns.iter().map(|at| widths[*at]).sum::<usize>();
        for spare in SPARE {
            if longest.min(SHORT_NAME) + all(&columns) > width {
                columns.retain(|at| COLUMNS[*at] != spare);
            }
        }
        let widest = longest.min(width.saturating_sub(all(&columns)).max(longest.min(SHORT_NAME)));
        let cell = |text: &str, at: usize| format!("{text:>width$}", width = widths[at]);
        let titles = columns.iter().map(|at| cell(COLUMNS[*at], *at)).collect::<String>();
        let head = Line::new(format!("{:widest$}{titles}", "QUEUE"), Mood::Quiet);
        let (mut rows, mut notes) = (Vec::new(), Vec::new());
        for (queue, row) in queues.iter().zip(&cells) {
            let name = fitting(&queue.queue, widest);
            let mut parts = vec![(format!("{name:widest$}"), Mood::Head)];
            parts.extend(columns.iter().map(|at| (cell(&row[*at].0, *at), row[*at].1)));
            match note(queue) {
                Some(note) if widest + all(&columns) + 2 + note.chars().count() <= width => {
                    parts.push((format!("  {note}"), Mood::Warn));
                }
                Some(note) => notes.push(Line::new(format!("{name}: {note}"), Mood::Warn)),
                None => {}
            }
            rows.push(Line(parts));
        }
        Self { head, rows, notes }
    }

    pub(super) fn lines(self) -> Vec<Line> {
        [self.head].into_iter().chain(self.rows).chain(self.notes).collect()
    }
}

fn cells(queue: &QueueFigures) -> [(String, Mood); COLUMNS.len()] {
    let quiet = |zero: bool| if zero { Mood::Quiet } else { Mood::Plain };
    let count = |count: Option<i64>| match count {
        Some(count) => (count.to_string(), quiet(count == 0)),
        None => (UNKNOWN.to_owned(), Mood::Quiet),
    };
    let speed = |speed: Option<f64>| match speed {
        Some(speed) => (rate(speed), quiet(speed == 0.0)),
        None => (UNKNOWN.to_owned(), Mood::Quiet),
    };
    let oldest = match queue.oldest_age {
        Some(seconds) => (age(seconds), Mood::Plain),
        None => (UNKNOWN.to_owned(), Mood::Quiet),
    };
    let dead = count(queue.dead);
    let dead = if queue.dead > Some(0) { (dead.0, Mood::Bad) } else { dead };
    let signed = |count: Option<u64>| count.map(|count| i64::try_from(count).unwrap_or(i64::MAX));
    [
        count(queue.ready),
        oldest,
        speed(queue.in_rate),
        speed(queue.out_rate),
        count(signed(queue.running)),
        count(queue.waiting),
        dead,
        count(signed(queue.done)),
    ]
}

/// Older figures are shown with their age, in seconds.
const OLD: f64 = 15.0;

/// The notes about a queue.
fn note(queue: &QueueFigures) -> Option<String> {
    let mut notes = Vec::new();
    if let Some(paused) = &queue.paused {
        let why = if paused.reason.is_empty() {
            String::new()
        } else {
            format!(": {}", fitting(&paused.reason, 80))
        };
        notes.push(format!("{}{why}", if paused.frozen { "frozen" } else { "paused" }));
    }
    if queue.paused_locally {
        notes.push("paused locally".to_owned());
    }
    if let Some(unavailable) = &queue.unavailable {
        notes.push(format!("handler cannot work: {}", fitting(&unavailable.reason, 200)));
    }
    if let Some(error) = &queue.fetch_error {
        notes.push(format!("fetches fail: {}", fitting(error, 200)));
    }
    if let Some(blocked) = queue.blocked_keys.filter(|blocked| *blocked > 0) {
        notes.push(format!("blocked keys: {blocked}"));
    }
    if queue.versions_went_back {
        notes.push("the database's versions went back: run kvqueue doctor".to_owned());
    }
    if queue.looked > OLD {
        notes.push(format!("as of {} ago", age(queue.looked)));
    }
    (!notes.is_empty()).then(|| notes.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn figures() -> Figures {
        serde_json::from_value(json!({
            "pid": 7, "version": "1.2.3", "phase": "ready", "started_at": 1_000, "not_ready": [],
            "database": { "url": "embedded:/var/lib/kvqueue", "up": true, "error": null, "answered_in": 0.0004 },
            "config": { "path": "/etc/kvqueue.toml", "loaded_at": 0, "refused": "shutdown-timeout = 0: too short", "finishing": [] },
            "queues": [
                { "queue": "mail", "ready": 1234, "running": 20, "waiting": 0, "dead": 3, "done": 99999, "oldest_age": 2.5,
                  "in_rate": 12.3, "out_rate": 0.4, "looked": 0.1, "paused": null, "paused_locally": false },
                { "queue": "new\u{1b}[2J", "paused": { "since": 0, "reason": "the bill is unpaid", "frozen": false }, "paused_locally": true,
                  "fetch_error": "no answer" },
            ],
            "consumers": [{ "state": "idle" }, { "state": "handling" }, { "state": "idle" }],
            "something": "that another version says",
        }))
        .unwrap()
    }

    fn shown(lines: &[Line], colours: bool, width: usize) -> String {
        lines.iter().map(|line| line.show(colours, width) + "\n").collect()
    }

    #[test]
    fn status_shows_the_daemon_and_its_queues() {
        let figures = figures();
        let lines =
            [about(&figures, from_millis(7_381_000)), Table::new(&figures.queues, 200).lines()].concat();
        insta::assert_snapshot!(shown(&lines, false, 200), @r"
        kvqueue 1.2.3 is ready, process 7, up 2 h 3 min, configuration /etc/kvqueue.toml
        database embedded:/var/lib/kvqueue, answers in 400 us
        configuration not taken up: shutdown-timeout = 0: too short
        3 consumers: 1 handling, 2 idle
        QUEUE         READY  OLDEST  IN/S  OUT/S  RUNNING  WAITING  DEAD   DONE
        mail           1234     2 s    12    0.4       20        0     3  99999
        new\u{1b}[2J      -       -     -      -        -        -     -      -  paused: the bill is unpaid, paused locally, fetches fail: no answer
        ");
    }

    #[test]
    fn a_narrow_terminal_omits_the_least_important_columns() {
        let figures = figures();
        let table = |width| shown(&Table::new(&figures.queues, width).lines(), false, width);
        insta::assert_snapshot!(table(80), @r"
        QUEUE         READY  OLDEST  IN/S  OUT/S  RUNNING  WAITING  DEAD   DONE
        mail           1234     2 s    12    0.4       20        0     3  99999
        new\u{1b}[2J      -       -     -      -        -        -     -      -
        new\u{1b}[2J: paused: the bill is unpaid, paused locally, fetches fail: no answe
        ");
        insta::assert_snapshot!(table(60), @r"
        QUEUE         READY  OLDEST  OUT/S  RUNNING  WAITING  DEAD
        mail           1234     2 s    0.4       20        0     3
        new\u{1b}[2J      -       -      -        -        -     -
        new\u{1b}[2J: paused: the bill is unpaid, paused locally, fe
        ");
        let widest = table(40).lines().take(3).map(|line| line.chars().count()).max();
        assert!(widest <= Some(40) && table(40).contains("DEAD"), "{}", table(40));
    }

    #[test]
    fn a_jump_of_the_clock_does_not_change_how_long_the_daemon_is_up() {
        let figures = Figures { up_seconds: Some(0.5), ..figures() };
        let lines = shown(&about(&figures, from_millis(31_536_000_000)), false, 200);
        assert!(lines.contains("process 7, up 500 ms, "), "{lines}");
    }

    #[test]
    fn status_of_an_unready_daemon_shows_the_reasons() {
        let mut figures = Figures { phase: "draining".to_owned(), ..figures() };
        figures.not_ready = vec!["the daemon is stopping".to_owned()];
        let lines = shown(&about(&figures, from_millis(1_500)), true, 60);
        let (first, rest) = lines.split_once('\n').unwrap();
        assert_eq!(first, "\x1b[31mkvqueue 1.2.3 is stopping\x1b[0m, process 7, up 500 ms, configurati");
        assert!(rest.contains("\x1b[31mnot ready: the daemon is stopping\x1b[0m\n"), "{rest}");
        assert!(
            rest.contains("\x1b[33mconfiguration not taken up: shutdown-timeout = 0: too short\x1b[0m\n"),
            "{rest}"
        );
    }

    #[test]
    fn status_of_a_full_disk_shows_the_refused_pushes() {
        let plenty = Space { free: 9 << 30, total: 10 << 30, min_free: 512 << 20, ..Space::default() };
        let why = "the disk of /data has too little free space".to_owned();
        let file = || "from the configuration".to_owned();
        let low = Space {
            free: 1 << 20,
            limit_from: file(),
            reusable: 5 << 20,
            pushes_refused: Some(why),
            ..plenty
        };
        let off = Space { min_free: 0, ..plenty.clone() };
        let lines = [plenty, low, off].iter().flat_map(disk).collect::<Vec<_>>();
        insta::assert_snapshot!(shown(&lines, false, 200), @r"
        disk 9.0 GiB free of 10.0 GiB, min-free-space 512.0 MiB
        disk 1.0 MiB free of 10.0 GiB, 5.0 MiB reusable in the database, min-free-space 512.0 MiB (from the configuration)
        pushes are refused: the disk of /data has too little free space
        disk 9.0 GiB free of 10.0 GiB, no min-free-space
        ");
    }

    #[test]
    fn a_coloured_line_is_cut_by_its_visible_width() {
        let line = Line(vec![("abc".to_owned(), Mood::Bad), ("def".to_owned(), Mood::Plain)]);
        assert_eq!(line.show(true, 4), "\x1b[31mabc\x1b[0md");
        assert_eq!(line.show(false, 2), "ab");
    }
}
