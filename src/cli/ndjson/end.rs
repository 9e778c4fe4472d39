//! The last line: how many items there were, and a checksum of all lines before it.

use serde::{Deserialize, Serialize};
use twox_hash::xxhash3_128::Hasher;

/// Counts and sums up lines, of an export that is written or read.
pub(in crate::cli) struct Tally {
    hash: Hasher,
    items: u64,
}

/// The line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct End {
    end: bool,
    items: u64,
    xxh3: String,
}

impl Tally {
    pub(in crate::cli) fn new() -> Self {
        Self { hash: Hasher::new(), items: 0 }
    }

    /// The header, without its newline.
    pub(in crate::cli) fn header(&mut self, line: &[u8]) {
        self.hash.write(line);
        self.hash.write(b"\n");
    }

    /// An item's line, without its newline.
    pub(in crate::cli) fn item(&mut self, line: &[u8]) {
        self.header(line);
        self.items += 1;
    }

    pub(in crate::cli) fn items(&self) -> u64 {
        self.items
    }

    /// The last line, without a newline.
    pub(in crate::cli) fn end(&self) -> String {
        let (items, sum) = (self.items, self.sum());
        format!("{{\"end\":true,\"items\":{items},\"xxh3\":\"{sum}\"}}")
    }

    /// Whether what was read is what the last line says.
    pub(super) fn check(&self, end: &End) -> Result<(), String> {
        if end.items != self.items {
            return Err(format!(
                "this says that there are {} items, and there are {}: lines are missing or were added",
                end.items, self.items
            ));
        }
        if end.xxh3 != self.sum() {
            return Err(
                "the checksum here is not that of the lines before it: one of them was changed".to_owned()
            );
        }
        Ok(())
    }

    fn sum(&self) -> String {
        format!("{:032x}", self.hash.finish_128())
    }
}

impl End {
    /// The end that a line is; `None` if it is something else.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice::<Self>(line).ok().filter(|end| end.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_or_changed_lines_are_detected_by_the_end_line() {
        let tally = |header: &str, items: &[&str]| {
            let mut tally = Tally::new();
            tally.header(header.as_bytes());
            items.iter().for_each(|item| tally.item(item.as_bytes()));
            tally
        };
        let end = End::parse(tally("h", &["a", "b"]).end().as_bytes()).unwrap();
        assert_eq!(tally("h", &["a", "b"]).check(&end), Ok(()));
        assert!(tally("h", &["a"]).check(&end).unwrap_err().contains("there are 2 items, and there are 1"));
        for (header, items) in [("h", ["a", "c"]), ("g", ["a", "b"]), ("h", ["b", "a"])] {
            assert!(tally(header, &items).check(&end).unwrap_err().starts_with("the checksum"));
        }
        assert!(End::parse(b"{\"state\":\"ready\",\"payload\":\"a\"}").is_none());
    }
}
