//! Names in a log message: as many as fit into a bounded text.

/// A list is cut before it gets longer, in bytes. journald splits lines of more than 48 KiB.
const LONGEST: usize = 4 << 10;

/// Names with commas between them. A long list is cut: the first ones, and how many more there are.
pub(crate) fn listed(names: &[impl AsRef<str>]) -> String {
    let mut text = String::new();
    for (at, name) in names.iter().map(AsRef::as_ref).enumerate() {
        if at > 0 && text.len() + name.len() > LONGEST {
            return format!("{text} and {} more", names.len() - at);
        }
        if at > 0 {
            text.push_str(", ");
        }
        text.push_str(name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_cut_and_counted() {
        assert_eq!(listed(&[""; 0]), "");
        assert_eq!(listed(&["a", "b.c"]), "a, b.c");
        let names: Vec<_> = (0..10_000).map(|number| format!("queues.number-{number}")).collect();
        let text = listed(&names);
        assert!(text.len() <= LONGEST + 32, "{}", text.len());
        let shown = text.matches("queues.").count();
        assert!(shown > 100 && text.ends_with(&format!(" and {} more", 10_000 - shown)), "{text}");
    }
}
