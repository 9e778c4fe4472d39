//! Numbers, times and names as people read them. Pure.

use crate::base::text::visible;

/// The text of an unknown value.
pub(super) const UNKNOWN: &str = "-";

/// Items a second.
pub(super) fn rate(rate: f64) -> String {
    if rate > 0.0 && rate < 9.95 { format!("{:.1}", rate.max(0.1)) } else { format!("{rate:.0}") }
}

/// A time in the two largest units that it has.
pub(super) fn age(seconds: f64) -> String {
    if seconds < 0.000_95 {
        return format!("{:.0} us", seconds * 1e6);
    }
    if seconds < 0.9995 {
        return format!("{:.0} ms", seconds * 1e3);
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times are neither negative nor that long"
    )]
    let whole = seconds as u64;
    let units = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)];
    let first = units.iter().position(|(_, size)| whole >= *size).unwrap_or(units.len() - 1);
    let (name, size) = units[first];
    let rest =
        units.get(first + 1).map(|(name, next)| (whole % size / next, name)).filter(|(rest, _)| *rest > 0);
    // Seconds in addition to minutes change too fast to be read.
    let rest = rest.filter(|_| name != "min").map(|(rest, name)| format!(" {rest} {name}"));
    format!("{} {name}{}", whole / size, rest.unwrap_or_default())
}

/// Longer names are cut.
pub(in crate::cli) const LONGEST_NAME: usize = 40;

/// A text in one line that leaves the terminal as it is, and no longer than this. Of long ones both ends are shown.
pub(in crate::cli) fn fitting(text: &str, most: usize) -> String {
    let plain = visible(text);
    let length = plain.chars().count();
    if length <= most {
        return plain;
    }
    let (front, back) = ((most.saturating_sub(1)).div_ceil(2), most.saturating_sub(1) / 2);
    let ends = plain.chars().take(front).chain(['…']).chain(plain.chars().skip(length - back));
    ends.take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_two_units_at_most() {
        let ages = [0.0, 0.000_4, 0.25, 1.0, 59.9, 61.0, 3_600.0, 7_380.0, 90_000.0, 8.64e6].map(age);
        assert_eq!(
            ages,
            ["0 us", "400 us", "250 ms", "1 s", "59 s", "1 min", "1 h", "2 h 3 min", "1 d 1 h", "100 d"]
        );
    }

    #[test]
    fn a_low_rate_is_not_shown_as_zero() {
        assert_eq!([0.0, 0.01, 1.26, 9.96, 1_234.5].map(rate), ["0", "0.1", "1.3", "10", "1234"]);
    }

    #[test]
    fn control_characters_in_queue_names_are_escaped() {
        assert_eq!(fitting("mail", 4), "mail");
        assert_eq!(fitting("a\x1b[2J\u{202e}b", 40), "a\\u{1b}[2J\\u{202e}b");
        assert_eq!(fitting("abcdefghij", 5), "ab…ij");
        assert_eq!(fitting("abcdefghij", 4), "ab…j");
        assert_eq!(fitting("abc", 1), "…");
    }
}
