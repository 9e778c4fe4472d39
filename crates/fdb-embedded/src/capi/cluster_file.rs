//! Resolves a database path: `embedded:DIR`, or a cluster file, which may itself contain
//! `embedded:DIR`.

use std::ffi::{CStr, CString, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::error::Code;
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
    Cluster(Cluster),
}

/// How a cluster is named.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cluster {
    /// By this file.
    File(PathBuf),
    /// By the contents of such a file.
    ConnectionString(Vec<u8>),
}

impl Cluster {
    /// The error with which FoundationDB answers every use of a cluster that is named so; `None` if
    /// the name may be right.
    pub(super) fn error(&self) -> Option<Code> {
        let string = match self {
            Cluster::ConnectionString(string) => string.clone(),
            Cluster::File(file) if !file.exists() => return Some(Code::NO_CLUSTER_FILE_FOUND),
            // What cannot be read has no connection string.
            Cluster::File(file) => std::fs::read(file).unwrap_or_default(),
        };
        (!is_connection_string(&string)).then_some(Code::CONNECTION_STRING_INVALID)
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cluster::File(file) => write!(f, "the cluster file {}", file.display()),
            Cluster::ConnectionString(string) => {
                write!(f, "the connection string {:?}", String::from_utf8_lossy(string))
            }
        }
    }
}

/// True for `description:id@address,...`, with comments and blanks around it.
fn is_connection_string(text: &[u8]) -> bool {
    let lines = text.split(|byte| *byte == b'\n').map(|line| line.split(|byte| *byte == b'#').next());
    let string = lines.flatten().map(<[u8]>::trim_ascii).collect::<Vec<_>>().concat();
    let Some((name, addresses)) = std::str::from_utf8(&string).ok().and_then(|text| text.split_once('@'))
    else {
        return false;
    };
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    let is_address = |address: &str| {
        let address = address.strip_suffix(":tls").unwrap_or(address);
        address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && is_port(port))
    };
    name.split_once(':').is_some_and(|(description, id)| is_word(description) && is_word(id))
        && addresses.split(',').all(is_address)
}

/// The directory for a database path: of `embedded:DIR`, or of a cluster file that contains such a
/// line. `None` for a cluster.
#[must_use]
pub fn embedded_directory(path: &str) -> Option<PathBuf> {
    // A path with a NUL byte cannot be opened.
    match named_by(Some(&CString::new(path).ok()?)) {
        Named::Embedded { directory, .. } => Some(directory),
        Named::Cluster(_) => None,
    }
}

/// Resolves the path for `fdb_create_database`. Null and the empty string stand for the default
/// cluster file.
pub(super) fn named_by(path: Option<&CStr>) -> Named {
    let path = path.map(CStr::to_bytes).filter(|path| !path.is_empty());
    let path = path.map(|path| OsString::from_vec(path.to_vec())).unwrap_or_else(default_cluster_file);
    embedded(&path)
        .or_else(|| content(Path::new(&path)))
        .unwrap_or_else(|| Named::Cluster(Cluster::File(path.into())))
}

/// Resolves a connection string.
pub(super) fn named_by_connection_string(string: &CStr) -> Named {
    let string = string.to_bytes().to_vec();
    embedded(&OsString::from_vec(string.clone())).unwrap_or(Named::Cluster(Cluster::ConnectionString(string)))
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
            Named::Cluster(_) => None,
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
        let cluster = |named: Named| match named {
            Named::Embedded { .. } => panic!("it is a cluster"),
            Named::Cluster(cluster) => cluster.error(),
        };
        assert_eq!(cluster(named_by(Some(c"/no/such/file"))), Some(Code::NO_CLUSTER_FILE_FOUND));
        assert_eq!(cluster(named_by(Some(&file("real", "test:abc@127.0.0.1:4500\n")))), None);
        let wrong = named_by(Some(&file("wrong", "hello\n")));
        assert_eq!(cluster(wrong), Some(Code::CONNECTION_STRING_INVALID));
        let relative = file("relative", "# ours\n\n embedded:data \n");
        assert_eq!(directory(named_by(Some(&relative))), Some(scratch.path().join("data")));
        let absolute = file("absolute", "embedded:/var/lib/kvqueue");
        assert_eq!(directory(named_by(Some(&absolute))), Some(PathBuf::from("/var/lib/kvqueue")));
        assert_eq!(embedded_directory(relative.to_str().unwrap()), Some(scratch.path().join("data")));
        assert_eq!(embedded_directory("/no/such/file"), None);
        assert_eq!(cluster(named_by_connection_string(c"test:abc@127.0.0.1:4500")), None);
        let wrong = cluster(named_by_connection_string(c"./data"));
        assert_eq!(wrong, Some(Code::CONNECTION_STRING_INVALID));
        assert_eq!(directory(named_by_connection_string(c"embedded:x")), Some(PathBuf::from("x")));
    }
    #[test]
    fn connection_strings_are_recognised() {
        for right in [
            "test:abc@127.0.0.1:4500",
            "# ours\n a_b:Z9@10.0.0.1:4500:tls,[::1]:4501,host.name:4502 # here\n",
            "a:b@h:1,\nh:2\n",
        ] {
            assert!(is_connection_string(right.as_bytes()), "{right:?}");
        }
        for wrong in [
            "",
            "# a:b@h:1",
            "hello world",
            "a:b",
            "a@h:1",
            "a b:c@h:1",
            "a:b@h",
            "a:b@h:x",
            "a:b@h:1,",
            "a:b@:1",
            "./data",
            "/var/lib/data",
        ] {
            assert!(!is_connection_string(wrong.as_bytes()), "{wrong:?}");
        }
    }
}
