//! Labels of configurations.

/// Whether two labels name the same configuration: they are equal, or they are absolute paths that are equal without `.` and `..`.
/// Earlier versions stored the path of a file with the `..` that it was named by.
pub(crate) fn is_same_owner(one: &str, other: &str) -> bool {
    one == other || (one.starts_with('/') && other.starts_with('/') && parts(one) == parts(other))
}

/// The parts of a path that are left without `.` and `..`.
fn parts(path: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_differ_by_steps_back_name_the_same_configuration() {
        assert!(is_same_owner("/srv/bin/../etc/c.toml", "/srv/etc/c.toml"));
        assert!(is_same_owner("/srv/etc/c.toml", "/../srv/./bin/x/../../etc//c.toml"));
        assert!(is_same_owner("production", "production"));
    }

    #[test]
    fn other_labels_name_other_configurations() {
        for (one, other) in [
            ("/srv/bin/../etc/c.toml", "/srv/bin/etc/c.toml"),
            ("/srv/etc/c.toml", "/srv/etc/c.toml/x"),
            ("a/../production", "production"),
            ("production", "/production"),
        ] {
            assert!(!is_same_owner(one, other) && !is_same_owner(other, one), "{one} {other}");
        }
    }
}
