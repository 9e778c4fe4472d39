//! Makes relative paths of a configuration absolute, so that messages and the status name the same file for every reader.

use std::path::{Component, Path, PathBuf};

use fdb_embedded::SCHEME;
use toml::{Table, Value};

use super::http::UNIX;

/// The settings of the handler `http` that name files.
const WEBHOOK_FILES: [&str; 5] =
    ["signing-key-file", "authorization-file", "ca-file", "client-certificate", "client-key"];

/// The base of paths that are relative to the working directory.
pub(super) const WORKING_DIRECTORY: &str = "";

/// Makes the paths in a configuration absolute. `base_of` says what the path of a key is relative to.
pub(super) fn resolve<'b>(merged: &mut Table, base_of: impl Fn(&str) -> &'b Path) {
    let at = |key: &str, path: &mut Value, resolved: fn(&str, &Path) -> String| {
        if let Value::String(text) = path {
            *text = resolved(text, base_of(key));
        }
    };
    if let Some(url) = merged.get_mut("database") {
        at("database", url, database);
    }
    if let Some(http) = merged.get_mut("http").and_then(Value::as_table_mut) {
        if let Some(listen) = http.get_mut("listen") {
            at("http.listen", listen, socket);
        }
        for name in ["token-file", "tls-certificate", "tls-key"] {
            if let Some(file) = http.get_mut(name) {
                at(&format!("http.{name}"), file, absolute);
            }
        }
    }
    for (name, queue) in merged.get_mut("queues").and_then(Value::as_table_mut).into_iter().flatten() {
        if let Some(program) = program(queue) {
            at(&format!("queues.{name}.handler-config.command"), program, command);
        }
        for key in WEBHOOK_FILES {
            if let Some(file) = settings_of("http", queue).and_then(|settings| settings.get_mut(key)) {
                at(&format!("queues.{name}.handler-config.{key}"), file, absolute);
            }
        }
    }
}

/// The program that the handler `exec` of a queue starts.
fn program(queue: &mut Value) -> Option<&mut Value> {
    settings_of("exec", queue)?.get_mut("command")?.as_array_mut()?.first_mut()
}

/// The settings of a queue's handler, if it is this one.
fn settings_of<'q>(handler: &str, queue: &'q mut Value) -> Option<&'q mut Value> {
    let queue =
        queue.as_table_mut().filter(|queue| queue.get("handler").and_then(Value::as_str) == Some(handler))?;
    queue.get_mut("handler-config")
}

/// Makes the path in a database's name absolute, relative to the working directory.
pub fn absolute_database(url: &str) -> String {
    database(url, Path::new(WORKING_DIRECTORY))
}

fn database(url: &str, base: &Path) -> String {
    match url.strip_prefix(SCHEME) {
        // The check of the configuration reports what may have been meant.
        Some(_) if fdb_embedded::instead_of_two_slashes(url).is_some() => url.to_owned(),
        Some(directory) => format!("{SCHEME}{}", absolute(directory, base)),
        // Not a path: opening it reports what may have been meant.
        None if url.contains("://") || url == SCHEME.trim_end_matches(':') => url.to_owned(),
        None => absolute(url, base),
    }
}

fn socket(listen: &str, base: &Path) -> String {
    match listen.strip_prefix(UNIX) {
        Some(path) => format!("{UNIX}{}", absolute(path, base)),
        None => listen.to_owned(),
    }
}

/// A bare name is looked up in `PATH`.
fn command(program: &str, base: &Path) -> String {
    if program.contains('/') { absolute(program, base) } else { program.to_owned() }
}

/// An empty path is an error that names its key. One that is not Unicode could not be written in a configuration.
fn absolute(path: &str, base: &Path) -> String {
    let found = (!path.is_empty())
        .then(|| std::path::absolute(base.join(path)).ok()?.into_os_string().into_string().ok());
    found.flatten().unwrap_or_else(|| path.to_owned())
}

/// The absolute path of a file without `..`, by which different paths name it. Symbolic links stay: a path through a link that is
/// changed to other versions of the file stays the same.
pub(super) fn without_steps_back(file: &Path) -> PathBuf {
    let mut path = PathBuf::new();
    for part in std::path::absolute(file).unwrap_or_else(|_| file.to_owned()).components() {
        if part != Component::ParentDir {
            path.push(part);
            continue;
        }
        // A step back from a link leads to where its target is.
        if path.is_symlink()
            && let Ok(target) = path.canonicalize()
        {
            path = target;
        }
        path.pop();
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_back_leave_the_path_of_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let at = |path: &str| directory.path().join(path);
        let found = |path: &str| without_steps_back(&at(path));
        std::fs::create_dir_all(at("versions/2/bin")).unwrap();
        std::os::unix::fs::symlink("versions/2", at("current")).unwrap();
        assert_eq!(found("versions/2/bin/../c.toml"), at("versions/2/c.toml"));
        assert_eq!(found("missing/./../c.toml"), at("c.toml"));
        assert_eq!(found("current/bin/../c.toml"), at("current/c.toml"));
        assert_eq!(found("current/c.toml"), at("current/c.toml"));
        let versions = at("versions").canonicalize().unwrap();
        assert_eq!(found("current/../c.toml"), versions.join("c.toml"));
        assert_eq!(without_steps_back(Path::new("/../etc/../c.toml")), Path::new("/c.toml"));
        assert_eq!(without_steps_back(Path::new("c.toml")), std::env::current_dir().unwrap().join("c.toml"));
    }

    fn resolved(text: &str) -> Table {
        let mut table: Table = text.parse().unwrap();
        resolve(&mut table, |key| Path::new(if key == "http.token-file" { "/variable" } else { "/etc/q" }));
        table
    }

    #[test]
    fn each_path_is_made_absolute() {
        let text = "database = 'embedded:./data'\n[http]\nlisten = 'unix:run/s'\ntoken-file = 'secret'\n\
            [queues.'a.b']\nhandler = 'exec'\nhandler-config.command = ['bin/do', './as-it-is']\n";
        let expected = "database = 'embedded:/etc/q/data'\n[http]\nlisten = 'unix:/etc/q/run/s'\ntoken-file = '/variable/secret'\n\
            [queues.'a.b']\nhandler = 'exec'\nhandler-config.command = ['/etc/q/bin/do', './as-it-is']\n";
        assert_eq!(resolved(text), expected.parse().unwrap());
        assert_eq!(resolved(expected), expected.parse().unwrap());
    }

    #[test]
    fn files_of_a_webhook_are_paths() {
        let text = |folder: &str| {
            let files = WEBHOOK_FILES.map(|key| format!("handler-config.{key} = '{folder}{key}'\n")).concat();
            format!("[queues.q]\nhandler = 'http'\nhandler-config.url = 'https://a/b'\n{files}")
        };
        assert_eq!(resolved(&text("./")), text("/etc/q/").parse().unwrap());
    }

    #[test]
    fn values_that_are_not_paths_are_unchanged() {
        for text in [
            "database = ''\nhttp.listen = 'auto'\n",
            "database = 'embedded:'\nhttp.listen = 'unix:'\n",
            "database = 'redis://localhost'\nhttp.listen = '127.0.0.1:7420'\n",
            "database = 'embedded://./data'\n",
            "database = 'embedded'\nhttp.listen = 7\n",
            "database = 7\nqueues = 1\n",
            "[queues.q]\nhandler = 'exec'\nhandler-config.command = ['sh', '-c', 'bin/do']\n",
            "[queues.q]\nhandler = 'exec'\nhandler-config.command = []\n",
            "[queues.q]\nhandler = 'own'\nhandler-config.command = ['bin/do']\n",
        ] {
            assert_eq!(resolved(text), text.parse().unwrap(), "{text}");
        }
    }

    #[test]
    fn a_cluster_file_is_a_path() {
        assert_eq!(database("fdb.cluster", Path::new("/etc/q")), "/etc/q/fdb.cluster");
        let here = std::env::current_dir().unwrap().join("data").display().to_string();
        assert_eq!(absolute_database("embedded:data"), format!("embedded:{here}"));
    }
}
