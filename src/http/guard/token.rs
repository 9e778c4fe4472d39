//! The operator's secret, with which a client may do everything, and the file that has it.

use std::{
    fmt, fs,
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, fchown},
    path::Path,
};

use actix_web::http::header::HeaderMap;
use rustix::process::geteuid;
use subtle::ConstantTimeEq;

use super::bearer;
use crate::{access::random_text, config::ConfigError, http::error::ApiError};

/// A shorter secret can be guessed.
const SHORTEST: usize = 16;

/// A longer file is probably not a secret.
const LONGEST: usize = 4_096;

/// The permissions of users other than the owner and the group: these bits of the file's mode must not be set.
pub(crate) const OTHERS: u32 = 0o007;

/// A secret. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(Vec<u8>);

/// The mode of a file that the daemon makes: its user's, and readable for its group.
const MODE: u32 = 0o640;

/// The random bytes of a secret that the daemon makes.
const RANDOM: usize = 32;

impl Token {
    /// Reads it from a file that nobody else may read. `None` if there is no such file.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, ConfigError> {
        let wrong = |problem: String, fix: &str| {
            ConfigError::value("http.token-file", format_args!("\"{}\"", path.display()), problem, fix)
        };
        let unreadable = |error: io::Error| {
            let fix = match error.kind() {
                ErrorKind::PermissionDenied => {
                    "run the command as the daemon's user or in its group, or set KVQUEUE_TOKEN to an access token"
                }
                _ => "name a file that the daemon may read",
            };
            wrong(format!("it cannot be read: {error}"), fix)
        };
        let found = match fs::metadata(path) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(error)),
        };
        if found.mode() & OTHERS != 0 {
            let problem = format!("other users can read or write it (mode {:o})", found.mode() & 0o777);
            let fix = format!("run chmod o= {}, and change the secret", path.display());
            return Err(wrong(problem, &fix));
        }
        if found.len() > LONGEST as u64 {
            let problem = format!("it has {} bytes", found.len());
            return Err(wrong(problem, "put the secret into it and nothing else"));
        }
        let text = fs::read(path).map_err(unreadable)?;
        let secret = text.trim_ascii();
        let printable = secret.iter().all(u8::is_ascii_graphic);
        if secret.len() < SHORTEST || !printable {
            let problem = if printable {
                format!("the secret has {} characters, fewer than {SHORTEST}", secret.len())
            } else {
                "the secret has characters that cannot be sent".to_owned()
            };
            return Err(wrong(problem, "make one with: openssl rand -hex 32"));
        }
        Ok(Some(Self(secret.to_owned())))
    }

    /// Makes a file with a new secret. If another process makes one at the same time, both use the first.
    pub(crate) fn make(path: &Path) -> Result<Self, ConfigError> {
        let problem = |error: &dyn fmt::Display| {
            let value = format_args!("\"{}\"", path.display());
            let problem = format!("cannot make this file for the operator's secret: {error}");
            let fix = "name a file in a directory in which the daemon may write";
            ConfigError::value("http.token-file", value, problem, fix)
        };
        write_new(path).map_err(|error| problem(&error))?;
        Self::read(path)?.ok_or_else(|| problem(&"it was removed at once"))
    }

    /// The access token or secret in `KVQUEUE_TOKEN`, which a command sends instead of the one in the file.
    pub(crate) fn of_environment() -> Result<Option<Self>, ConfigError> {
        let Some(value) = std::env::var_os("KVQUEUE_TOKEN") else { return Ok(None) };
        let secret = value.as_encoded_bytes().trim_ascii();
        if secret.is_empty() {
            return Ok(None);
        }
        if !secret.iter().all(u8::is_ascii_graphic) {
            let fix = "set it to a token of `kvqueue token new`, or to the secret of http.token-file";
            return Err(ConfigError::value(
                "KVQUEUE_TOKEN",
                "(hidden)",
                "it has characters that cannot be sent",
                fix,
            ));
        }
        Ok(Some(Self(secret.to_owned())))
    }

    /// Whether the client knows it. How long that takes does not tell how much of it was right.
    pub(in crate::http) fn check(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let given = bearer(headers).ok_or(ApiError::Unauthorized("a secret is needed"))??;
        if bool::from(self.0.ct_eq(given)) {
            Ok(())
        } else {
            Err(ApiError::Unauthorized("this is not the secret"))
        }
    }

    /// The secret's bytes.
    pub(in crate::http) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// A secret that was never read from a file.
    #[cfg(test)]
    pub(in crate::http) fn of_test(secret: &str) -> Self {
        Self(secret.as_bytes().to_owned())
    }

    /// As a client sends it.
    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", String::from_utf8_lossy(&self.0))
    }
}

/// Writes a new secret into a file that does not exist. A program that opens it finds it complete.
fn write_new(path: &Path) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    writeln!(file, "{}", random_text(RANDOM)?)?;
    // The umask does not apply here.
    file.as_file().set_permissions(fs::Permissions::from_mode(MODE))?;
    let owner = fs::metadata(directory)?;
    if geteuid().is_root() {
        // Otherwise the programs of the directory's user could not read it.
        fchown(file.as_file(), Some(owner.uid()), Some(owner.gid()))?;
    }
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Err(error) if error.error.kind() != ErrorKind::AlreadyExists => Err(error.error),
        _ => Ok(()),
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use actix_web::http::header::{self, HeaderValue};

    use super::*;

    fn read(text: &[u8], mode: u32) -> Result<Token, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        let read = Token::read(file.path()).map(|found| found.expect("the file exists"));
        read.map_err(|error| error.to_string().replace(&file.path().display().to_string(), "FILE"))
    }

    #[test]
    fn an_unsuitable_token_file_is_refused() {
        insta::assert_snapshot!(read(b"0123456789abcdef", 0o644).unwrap_err(), @r#"http.token-file = "FILE": other users can read or write it (mode 644); run chmod o= FILE, and change the secret"#);
        insta::assert_snapshot!(read(b" 0123456789abcde\n", 0o600).unwrap_err(), @r#"http.token-file = "FILE": the secret has 15 characters, fewer than 16; make one with: openssl rand -hex 32"#);
        insta::assert_snapshot!(read(b"0123456789 abcdef", 0o600).unwrap_err(), @r#"http.token-file = "FILE": the secret has characters that cannot be sent; make one with: openssl rand -hex 32"#);
        insta::assert_snapshot!(read(&[b'x'; 5_000], 0o600).unwrap_err(), @r#"http.token-file = "FILE": it has 5000 bytes; put the secret into it and nothing else"#);
        assert_eq!(Token::read(Path::new("/nowhere/token")).unwrap(), None);
    }

    #[test]
    fn only_the_exact_secret_is_accepted() {
        let token = read(b"0123456789abcdef\n", 0o640).unwrap();
        let check = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, HeaderValue::from_static(value));
            token.check(&headers).is_ok()
        };
        assert!(check("Bearer 0123456789abcdef") && check("bearer  0123456789abcdef"));
        for wrong in [
            "",
            "Bearer",
            "Bearer ",
            "0123456789abcdef",
            "Bearer 0123456789abcde",
            "Bearer 0123456789abcdef0",
        ] {
            assert!(!check(wrong), "{wrong}");
        }
        assert!(token.check(&HeaderMap::new()).is_err());
        assert_eq!(format!("{token:?}"), "Token(..)");
    }

    #[test]
    fn processes_that_make_the_secret_at_the_same_time_have_the_same_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state/http-token");
        let make = || {
            std::thread::scope(|scope| {
                let made: Vec<_> = (0..8).map(|_| scope.spawn(|| Token::make(&path).unwrap())).collect();
                made.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            })
        };
        let secrets = make();
        assert!(secrets.windows(2).all(|pair| pair[0] == pair[1]));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, MODE);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left");
        assert_eq!(make(), secrets, "a secret that exists stays");
    }
}
