//! Numbers and tables as text.

use crate::summary::Spread;

/// A number, with as many digits as it deserves and commas between thousands.
pub fn number(value: f64) -> String {
    if value.abs() < 10.0 {
        return format!("{value:.2}");
    }
    if value.abs() < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

/// Median, and least and greatest where there are several.
pub fn spread(spread: Option<Spread>) -> String {
    match spread {
        None => "-".to_owned(),
        Some(Spread { median, count: 1, .. }) => number(median),
        Some(Spread { median, min, max, .. }) => {
            format!("{} ({}..{})", number(median), number(min), number(max))
        }
    }
}

/// A table in Markdown, its columns padded to one width.
pub fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let all = || std::iter::once(head).chain(rows.iter().map(Vec::as_slice));
    let widths: Vec<usize> = (0..head.len())
        .map(|column| {
            all().map(|row| row.get(column).map_or(0, |cell| cell.chars().count())).max().unwrap_or(0).max(3)
        })
        .collect();
    let line = |row: &[String]| {
        let cells = widths.iter().enumerate().map(|(column, width)| {
            format!(" {:<width$} |", row.get(column).map_or("", String::as_str), width = *width)
        });
        format!("|{}\n", cells.collect::<String>())
    };
    let rule: String = widths.iter().map(|width| format!("{}|", "-".repeat(width + 2))).collect();
    let body: String = rows.iter().map(|row| line(row)).collect();
    format!("{}|{rule}\n{body}", line(head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_with_three_significant_digits() {
        let texts = [0.5, 12.34, 123.4, 1_234.5, 1_234_567.0, -4_000.0].map(number);
        assert_eq!(texts, ["0.50", "12.3", "123", "1,234", "1,234,567", "-4,000"]);
    }

    #[test]
    fn spread_is_shown_for_more_than_one_run() {
        let one = Spread { median: 5.0, min: 5.0, max: 5.0, count: 1 };
        assert_eq!(spread(Some(one)), "5.00");
        assert_eq!(
            spread(Some(Spread { median: 500.0, min: 400.0, max: 600.0, count: 3 })),
            "500 (400..600)"
        );
        assert_eq!(spread(None), "-");
    }

    #[test]
    fn a_table_is_aligned() {
        let text = table(&["a".to_owned(), "long".to_owned()], &[vec!["value".to_owned()]]);
        assert_eq!(text, "| a     | long |\n|-------|------|\n| value |      |\n");
    }
}
