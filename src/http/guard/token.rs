//! The secret that clients have to know.

use std::{fmt, fs, os::unix::fs::MetadataExt, path::Path};

use actix_web::http::header::HeaderMap;
use subtle::ConstantTimeEq;

use super::bearer;
use crate::{config::ConfigError, http::error::ApiError};

/// A shorter secret can be guessed.
const SHORTEST: usize = 16;

/// A longer one is none: some other file.
const LONGEST: usize = 4_096;

/// The permissions of users other than the owner and the group: these bits of the file's mode must not be set.
pub(crate) const OTHERS: u32 = 0o007;

/// A secret. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(Vec<u8>);

impl Token {
    /// Reads it from a file that nobody else may read.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let wrong = |problem: String, fix: &str| {
            ConfigError::value("http.token-file", format_args!("\"{}\"", path.display()), problem, fix)
        };
        let unreadable = |error: std::io::Error| {
            wrong(format!("it cannot be read: {error}"), "name a file that the daemon may read")
        };
        let found = fs::metadata(path).map_err(unreadable)?;
        if found.mode() & OTHERS != 0 {
            let problem = format!("everybody on this machine may use it (mode {:o})", found.mode() & 0o777);
            return Err(wrong(problem, "take that away with chmod o= and change the secret"));
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
        Ok(Self(secret.to_owned()))
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

    /// As a client sends it.
    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", String::from_utf8_lossy(&self.0))
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
        Token::read(file.path())
            .map_err(|error| error.to_string().replace(&file.path().display().to_string(), "FILE"))
    }

    #[test]
    fn a_file_that_will_not_do_is_refused() {
        insta::assert_snapshot!(read(b"0123456789abcdef", 0o644).unwrap_err(), @r#"http.token-file = "FILE": everybody on this machine may use it (mode 644); take that away with chmod o= and change the secret"#);
        insta::assert_snapshot!(read(b" 0123456789abcde\n", 0o600).unwrap_err(), @r#"http.token-file = "FILE": the secret has 15 characters, fewer than 16; make one with: openssl rand -hex 32"#);
        insta::assert_snapshot!(read(b"0123456789 abcdef", 0o600).unwrap_err(), @r#"http.token-file = "FILE": the secret has characters that cannot be sent; make one with: openssl rand -hex 32"#);
        insta::assert_snapshot!(read(&[b'x'; 5_000], 0o600).unwrap_err(), @r#"http.token-file = "FILE": it has 5000 bytes; put the secret into it and nothing else"#);
        let error = Token::read(Path::new("/nowhere/token")).unwrap_err();
        insta::assert_snapshot!(error, @r#"http.token-file = "/nowhere/token": it cannot be read: No such file or directory (os error 2); name a file that the daemon may read"#);
    }

    #[test]
    fn only_the_secret_itself_will_do() {
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
}
