//! Texts of clients, queues and other daemons, as they are shown to people.

/// Shows every character of a text: invisible, control and bidirectional formatting characters are
/// replaced by their escapes.
pub(crate) fn visible(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if is_hidden(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
        shown
    })
}

/// `1 item`, `2 items`.
pub(crate) fn items_of(number: impl std::fmt::Display) -> String {
    let number = number.to_string();
    let plural = if number == "1" { "" } else { "s" };
    format!("{number} item{plural}")
}

/// Whether a character is invisible, moves the cursor, or turns the line around.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// The same for a text of several lines, which stay lines. Each but the first begins with `indent`.
pub(crate) fn visible_lines(text: &str, indent: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(visible).collect();
    lines.join(&format!("\n{indent}"))
}

/// The beginning of a text's first line, with hidden characters as codes. `most` counts characters of the text.
#[cfg(feature = "http")]
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    let mut short = visible(&line.chars().take(most).collect::<String>());
    if line.chars().count() > most {
        short.push('…');
    }
    short
}

/// JSON in which the same characters are escaped. They occur in strings only, and so do their escapes.
pub(crate) fn visible_json(json: &str) -> String {
    json.chars().fold(String::with_capacity(json.len()), |mut shown, c| {
        match is_hidden(c) {
            true => shown.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}"))),
            false => shown.push(c),
        }
        shown
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_lines_and_cannot_pass_for_others() {
        assert_eq!(visible_lines("one\nstate  done\x1b[2J", "    "), "one\n    state  done\\u{1b}[2J");
    }

    #[test]
    fn hidden_characters_of_json_are_escaped_and_read_as_they_were() {
        let value = serde_json::json!({ "a\u{9b}": "ä\u{202e}\u{feff}\n\u{e0001}" });
        let shown = visible_json(&value.to_string());
        assert_eq!(shown, "{\"a\\u009b\":\"ä\\u202e\\ufeff\\n\u{e0001}\"}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }

    #[test]
    fn hidden_characters_are_shown_as_codes_and_others_as_they_are() {
        assert_eq!(visible("ä, 漢 and \"q\\\""), "ä, 漢 and \"q\\\"");
        assert_eq!(visible("a\t\n\x1b[2J\u{85}"), "a\\t\\n\\u{1b}[2J\\u{85}");
        assert_eq!(visible("\u{ad}\u{202e}\u{206a}\u{feff}"), "\\u{ad}\\u{202e}\\u{206a}\\u{feff}");
    }
}
