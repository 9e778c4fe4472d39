//! The identity of a database, under all its names.

use std::path::{Path, PathBuf};

use fdb_embedded::SCHEME;

/// The identity of a database, the same under all its names: the directory of an embedded one, without links in its path; what a
/// cluster file calls its cluster. As far as names tell: a directory may be mounted at two places.
pub(crate) fn identity(url: &str) -> String {
    match fdb_embedded::embedded_directory(url) {
        Some(directory) => format!("{SCHEME}{}", canonical(&directory).display()),
        None => cluster(url).unwrap_or_else(|| canonical(Path::new(url)).display().to_string()),
    }
}

fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_path_buf())
}

/// The cluster's description and id in a cluster file: the same in all files of the cluster, whatever addresses they have.
fn cluster(file: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'))?;
    line.split_once('@').map(|(id, _)| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_known_by_its_directory_or_its_cluster_s_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        std::fs::create_dir(dir.path().join("data")).unwrap();
        std::os::unix::fs::symlink("data", dir.path().join("link")).unwrap();
        std::fs::write(path("one"), "# first\nname:id@127.0.0.1:4500\n").unwrap();
        std::fs::write(path("same"), "name:id@127.0.0.1:4501,127.0.0.1:4500\n").unwrap();
        std::fs::write(path("other"), "name:other@127.0.0.1:4500\n").unwrap();
        std::fs::write(path("embedded"), "embedded:data\n").unwrap();
        let embedded = |name: &str| format!("embedded:{}", path(name));
        let is_same = |one: &str, other: &str| identity(one) == identity(other);
        assert_eq!(identity(&path("one")), "name:id");
        assert!(is_same(&embedded("data"), &embedded("link")));
        assert!(is_same(&embedded("data"), &path("embedded")));
        assert!(is_same(&embedded("new"), &embedded("new")) && !is_same(&embedded("new"), &embedded("data")));
        assert!(is_same(&path("one"), &path("same")) && !is_same(&path("one"), &path("other")));
        assert!(!is_same(&path("one"), &embedded("data")) && !is_same("/absent/a", "/absent/b"));
    }
}
