//! Texts of clients, queues and other daemons, as they are shown to people.

/// Shows every character of a text: invisible, control and bidirectional formatting characters are
/// replaced by their escapes.
pub(crate) fn visible(text: &str) -> String {
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
            || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if is_hidden(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
        shown
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_shown_as_codes_and_others_as_they_are() {
        assert_eq!(visible("ä, 漢 and \"q\\\""), "ä, 漢 and \"q\\\"");
        assert_eq!(visible("a\t\n\x1b[2J\u{85}"), "a\\t\\n\\u{1b}[2J\\u{85}");
        assert_eq!(visible("\u{ad}\u{202e}\u{206a}\u{feff}"), "\\u{ad}\\u{202e}\\u{206a}\\u{feff}");
    }
}
