//! Times as systemd writes them: `45`, `5min`, `1min 30s`, `infinity`.

use std::time::Duration;

/// systemd's units, in microseconds.
const UNITS: &[(&[&str], u64)] = &[
    (&["us", "usec"], 1),
    (&["ms", "msec"], 1_000),
    (&["", "s", "sec", "second", "seconds"], 1_000_000),
    (&["m", "min", "minute", "minutes"], 60_000_000),
    (&["h", "hr", "hour", "hours"], 3_600_000_000),
    (&["d", "day", "days"], 86_400_000_000),
];

/// The time, [`Duration::MAX`] for one without end; `None` if it cannot be read.
pub(super) fn parse(text: &str) -> Option<Duration> {
    if text == "infinity" {
        return Some(Duration::MAX);
    }
    let mut rest = text.trim();
    let mut micros: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let after = after.trim_start();
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, next) = after.split_at(letters);
        let (_, factor) = UNITS.iter().find(|(names, _)| names.contains(&unit))?;
        micros = micros.checked_add(number.parse::<u64>().ok()?.checked_mul(*factor)?)?;
        rest = next.trim_start();
    }
    (!text.trim().is_empty()).then(|| Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_systemd_reads_them() {
        let seconds = |text| parse(text).map(|time| time.as_secs_f64());
        assert_eq!(seconds("45"), Some(45.0));
        assert_eq!(seconds("5min"), Some(300.0));
        assert_eq!(seconds("1min 30s"), Some(90.0));
        assert_eq!(seconds("1h30m"), Some(5400.0));
        assert_eq!(seconds("500 ms"), Some(0.5));
        assert_eq!(parse("infinity"), Some(Duration::MAX));
        for wrong in ["", " ", "soon", "s", "5 fortnights", "99999999999d", "-1"] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
