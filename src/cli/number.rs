//! Numbers on the command line.

use std::num::NonZeroUsize;

/// Reads how many items are meant: 1 or more.
pub(super) fn items(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "write a whole number of 1 or more".to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_number_of_items_below_one_is_refused() {
        assert_eq!(super::items("7").map(usize::from), Ok(7));
        for wrong in ["0", "-1", "", "many", "1.5", "99999999999999999999999"] {
            assert_eq!(super::items(wrong).unwrap_err(), "write a whole number of 1 or more", "{wrong}");
        }
    }
}
