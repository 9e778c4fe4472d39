//! The Markdown of `docs/` as a manual page. It knows what those pages use: headings, paragraphs, lists, tables, code and
//! links.

use std::{fmt::Write, iter::Peekable, str::Lines};

/// The body of a page in roff. The first heading is left out, since a page has its own title.
pub(super) fn to_roff(text: &str) -> String {
    let mut page = ".SH DESCRIPTION\n".to_owned();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(section) = line.strip_prefix("## ") {
            put(&mut page, ".SH", &section.to_uppercase());
        } else if let Some(part) = line.strip_prefix("### ") {
            put(&mut page, ".SS", part);
        } else if line.starts_with("# ") || line.starts_with("<!--") || line.is_empty() {
            continue;
        } else if line.starts_with("```") {
            code(&mut page, &mut lines);
        } else if line.starts_with('|') {
            table(&mut page, line, &mut lines);
        } else if let Some((mark, first)) = list_item(line) {
            let item = paragraph(first, &mut lines);
            _ = writeln!(page, ".IP {mark} 4\n{}", inline(&item));
        } else {
            _ = writeln!(page, ".PP\n{}", inline(&paragraph(line, &mut lines)));
        }
    }
    // After a heading a paragraph begins by itself.
    let mut last_is_heading = false;
    let kept = page.lines().filter(|line| {
        let after_heading = std::mem::replace(&mut last_is_heading, line.starts_with(".S"));
        !(after_heading && *line == ".PP")
    });
    kept.map(|line| format!("{line}\n")).collect()
}

fn put(page: &mut String, control: &str, text: &str) {
    _ = writeln!(page, "{control} \"{}\"", escape(text).replace('"', "\\(dq"));
}

/// The marker of a list's line in roff, and the rest of the line.
fn list_item(line: &str) -> Option<(&str, &str)> {
    if let Some(rest) = line.strip_prefix("- ") {
        return Some(("\\(bu", rest));
    }
    let (number, rest) = line.split_once(". ")?;
    let is_number = !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit());
    is_number.then_some((number, rest))
}

/// The lines up to the next empty one, or to one that begins something else.
fn paragraph(first: &str, lines: &mut Peekable<Lines<'_>>) -> String {
    let mut text = first.trim().to_owned();
    let goes_on = |line: &&str| {
        !line.is_empty() && !line.starts_with(['|', '#', '`']) && list_item(line).is_none()
            || line.starts_with('`') && !line.starts_with("```")
    };
    while let Some(line) = lines.next_if(goes_on) {
        text.push(' ');
        text.push_str(line.trim());
    }
    text
}

fn code(page: &mut String, lines: &mut Peekable<Lines<'_>>) {
    page.push_str(".PP\n.in +4n\n.EX\n");
    for line in lines.by_ref().take_while(|line| !line.starts_with("```")) {
        page.push_str(&at_start(escape(line)));
        page.push('\n');
    }
    page.push_str(".EE\n.in\n");
}

/// A paragraph for each row: its first cell in bold, and below it the others, with the names of their columns where there are
/// several.
fn table(page: &mut String, head: &str, lines: &mut Peekable<Lines<'_>>) {
    let names = cells(head);
    while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
        let cells = cells(row);
        if cells.iter().all(|cell| cell.bytes().all(|it| matches!(it, b'-' | b':'))) {
            continue;
        }
        let Some((first, rest)) = cells.split_first() else { continue };
        _ = writeln!(page, ".TP\n\\fB{}\\fR", escape(&first.replace('`', "")));
        let rest = rest.iter().zip(names.iter().skip(1)).filter(|(cell, _)| !cell.is_empty());
        let rest: Vec<_> = rest
            .map(|(cell, name)| match name.is_empty() {
                true => at_start(inline(cell)),
                false => at_start(inline(&format!("{name}: {cell}"))),
            })
            .collect();
        _ = writeln!(page, "{}", rest.join("\n.br\n"));
    }
}

fn cells(row: &str) -> Vec<String> {
    let row = row.trim().trim_start_matches('|').trim_end_matches('|').replace("\\|", "\u{0}");
    row.split('|').map(|cell| cell.trim().replace('\u{0}', "|")).collect()
}

/// Code in bold, links as their texts.
fn inline(text: &str) -> String {
    let mut out = String::new();
    for (index, part) in without_links(text).split('`').enumerate() {
        if index % 2 == 1 {
            _ = write!(out, "\\fB{}\\fR", escape(part));
        } else {
            out.push_str(&escape(part));
        }
    }
    at_start(out)
}

/// `[text](target)` as `text`.
fn without_links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((link, target)) = rest.split_once("](")
        && let Some((before, name)) = link.rsplit_once('[')
        && let Some((_, after)) = target.split_once(')')
    {
        out.push_str(before);
        out.push_str(name);
        rest = after;
    }
    (out + rest).replace("**", "")
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// A line that begins with a control character is text all the same.
fn at_start(line: String) -> String {
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_becomes_a_manual_page() {
        let text = "# Title\n\nOne `key` and\n[a link](x.md).\n\n## Keys\n\n| key | default | |\n|---|---|---|\n| `a-b` | `\"1\"` | what \
                    it is |\n\n- first\n  goes on\n- second\n\n```sh\n.x \\y\n```\n";
        let expected = ".SH DESCRIPTION\nOne \\fBkey\\fR and a link.\n.SH \"KEYS\"\n.TP\n\\fBa\\-b\\fR\ndefault: \\fB\"1\"\\fR\n.br\nwhat \
                        it is\n.IP \\(bu 4\nfirst goes on\n.IP \\(bu 4\nsecond\n.PP\n.in +4n\n.EX\n\\&.x \\ey\n.EE\n.in\n";
        assert_eq!(to_roff(text), expected);
    }

    #[test]
    fn the_manual_of_the_configuration_has_every_key() {
        let page = to_roff(crate::cli::config::MANUAL);
        let rows =
            crate::cli::config::MANUAL.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let mut count = 0;
        for key in rows {
            count += 1;
            assert!(page.contains(&format!("\\fB{}", escape(key))), "{key}");
        }
        assert!(count > 50, "{count}");
    }
}
