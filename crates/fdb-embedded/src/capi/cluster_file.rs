//! Resolves a database path: `embedded:DIR`, or a cluster file, which may itself contain
//! `embedded:DIR`.

use std::ffi::{CStr, CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::url;

/// Names the default cluster file. May be `embedded:DIR`.
const CLUSTER_FILE_VARIABLE: &str = "FDB_CLUSTER_FILE";
/// The second default, in the working directory.
const LOCAL_CLUSTER_FILE: &str = "fdb.cluster";
/// The last default.
const SYSTEM_CLUSTER_FILE: &str = "/etc/foundationdb/fdb.cluster";
/// Longer files are not read: a cluster file is one line.
const LONGEST_FILE: u64 = 64 << 10;

/// A resolved database path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// A directory, and its URL.
    Embedded { url: String, directory: PathBuf },
    /// A database of the real library.
    Cluster,
}

/// The directory for a database path: of `embedded:DIR`, or of a cluster file that contains such a
/// line. `None` for a cluster.
#[must_use]
pub fn embedded_directory(path: &str) -> Option<PathBuf> {
    // A path with a NUL byte cannot be opened.
    match named_by(Some(&CString::new(path).ok()?)) {
        Named::Embedded { directory, .. } => Some(directory),
        Named::Cluster => None,
    }
}

/// Resolves the path for `fdb_create_database`. Null and the empty string stand for the default
/// cluster file.
pub(super) fn named_by(path: Option<&CStr>) -> Named {
    let path = path.map(CStr::to_bytes).filter(|path| !path.is_empty());
    let path = path.map(|path| OsString::from_vec(path.to_vec())).unwrap_or_else(default_cluster_file);
    embedded(&path).or_else(|| content(Path::new(&path))).unwrap_or(Named::Cluster)
}

/// Resolves a connection string.
pub(super) fn named_by_connection_string(string: &CStr) -> Named {
    embedded(&OsString::from_vec(string.to_bytes().to_vec())).unwrap_or(Named::Cluster)
}

/// The default cluster file, in FoundationDB's order: environment, working directory, system.
fn default_cluster_file() -> OsString {
    if let Some(named) = std::env::var_os(CLUSTER_FILE_VARIABLE).filter(|named| !named.is_empty()) {
        return named;
    }
    let file = if Path::new(LOCAL_CLUSTER_FILE).exists() { LOCAL_CLUSTER_FILE } else { SYSTEM_CLUSTER_FILE };
    OsString::from(file)
}

fn embedded(path: &OsString) -> Option<Named> {
    let url = path.to_str()?;
    let directory = url::directory(url)?.to_owned();
    Some(Named::Embedded { url: url.to_owned(), directory })
}

/// The `embedded:` line of a cluster file, if it has one. Its directory is relative to the file's.
fn content(file: &Path) -> Option<Named> {
    let metadata = std::fs::metadata(file).ok()?;
    if !metadata.is_file() || metadata.len() > LONGEST_FILE {
        return None;
    }
    let text = std::fs::read(file).ok()?;
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let line = lines.find(|line| !line.is_empty() && !line.starts_with(b"#"))?;
    let Named::Embedded { directory, .. } = embedded(&std::ffi::OsStr::from_bytes(line).to_owned())? else {
        return None;
    };
    let directory = file.parent().unwrap_or(Path::new("")).join(directory);
    let url = format!("{}{}", url::SCHEME, directory.to_str()?);
    Some(Named::Embedded { url, directory })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(named: Named) -> Option<PathBuf> {
        match named {
            Named::Embedded { directory, .. } => Some(directory),
            Named::Cluster => None,
        }
    }

    #[test]
    fn embedded_directories_are_named_by_path_or_cluster_file() {
        let scratch = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = scratch.path().join(name);
            std::fs::write(&path, text).unwrap();
            CString::new(path.into_os_string().into_vec()).unwrap()
        };
        assert_eq!(directory(named_by(Some(c"embedded:/a/b"))), Some(PathBuf::from("/a/b")));
        assert_eq!(named_by(Some(c"/no/such/file")), Named::Cluster);
        assert_eq!(named_by(Some(&file("real", "test:abc@127.0.0.1:4500\n"))), Named::Cluster);
        let relative = file("relative", "# ours\n\n embedded:data \n");
        assert_eq!(directory(named_by(Some(&relative))), Some(scratch.path().join("data")));
        let absolute = file("absolute", "embedded:/var/lib/kvqueue");
        assert_eq!(directory(named_by(Some(&absolute))), Some(PathBuf::from("/var/lib/kvqueue")));
        assert_eq!(embedded_directory(relative.to_str().unwrap()), Some(scratch.path().join("data")));
        assert_eq!(embedded_directory("/no/such/file"), None);
        assert_eq!(named_by_connection_string(c"test:abc@127.0.0.1:4500"), Named::Cluster);
        assert_eq!(directory(named_by_connection_string(c"embedded:x")), Some(PathBuf::from("x")));
    }
}
