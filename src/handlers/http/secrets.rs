//! Files with secrets: keys of signatures, and the value of the header `Authorization`.

use std::{fmt, fs, os::unix::fs::MetadataExt, path::Path};

use base64::{Engine, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use reqwest::header::HeaderValue;
use sha2::Sha256;

use crate::handlers::SettingsError;

/// The permissions of users other than the owner and the group.
const OTHERS: u32 = 0o007;

/// The largest file, in bytes. Secrets are shorter; a longer file is the wrong file.
const LONGEST: u64 = 64 * 1024;

/// The most keys of a file.
const MOST_KEYS: usize = 8;

/// A key is written as this and its bytes in base 64.
const MARK: &str = "whsec_";

/// The shortest and the longest key of Standard Webhooks, in bytes.
const KEY: [usize; 2] = [24, 64];

const MAKE_KEY: &str = "make one with: echo whsec_$(openssl rand -base64 32)";

/// The keys that requests are signed with. Never shown.
#[derive(Clone)]
pub(super) struct Keys(Vec<Vec<u8>>);

impl Keys {
    /// Reads them from a file that only its owner and its group may read: one on each line.
    pub(super) fn read(path: &Path) -> Result<Self, SettingsError> {
        let key = "signing-key-file";
        let text = secret_file(key, path)?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let keys = lines.map(parse).collect::<Result<Vec<_>, _>>();
        let keys = keys.map_err(|problem| wrong(key, path, problem, MAKE_KEY))?;
        match keys.len() {
            0 => Err(wrong(key, path, "it has no key", MAKE_KEY)),
            1..=MOST_KEYS => Ok(Self(keys)),
            more => {
                let problem = format!("it has {more} keys, more than {MOST_KEYS}");
                Err(wrong(key, path, problem, "remove the ones without a receiver"))
            }
        }
    }

    /// The value of the header `webhook-signature`: a signature by each key.
    pub(super) fn sign(&self, id: &str, timestamp: &str, body: &[u8]) -> String {
        let sign = |key: &Vec<u8>| {
            let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
            for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
                mac.update(part);
            }
            format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
        };
        self.0.iter().map(sign).collect::<Vec<_>>().join(" ")
    }
}

/// The error does not have the line, which may be a secret.
fn parse(line: &str) -> Result<Vec<u8>, String> {
    let encoded = line.strip_prefix(MARK).ok_or_else(|| format!("a line does not begin with {MARK}"))?;
    let bytes = BASE64_STANDARD.decode(encoded).map_err(|error| format!("a key is not base 64: {error}"))?;
    let [shortest, longest] = KEY;
    if (shortest..=longest).contains(&bytes.len()) {
        Ok(bytes)
    } else {
        Err(format!("a key has {} bytes; it needs {shortest} to {longest}", bytes.len()))
    }
}

/// Reads the value of the header `Authorization` from a file that only its owner and its group may
/// read.
pub(super) fn authorization(path: &Path) -> Result<HeaderValue, SettingsError> {
    let key = "authorization-file";
    let text = secret_file(key, path)?;
    let fix = "write one line, as in: Bearer SECRET";
    let value = text.trim();
    if value.is_empty() {
        return Err(wrong(key, path, "it is empty", fix));
    }
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| wrong(key, path, "it has characters that cannot be sent", fix))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The text of a file that has a secret, so nobody but its owner and its group may read it.
pub(super) fn secret_file(key: &str, path: &Path) -> Result<String, SettingsError> {
    let unreadable = |error: std::io::Error| unreadable(key, path, &error);
    let found = fs::metadata(path).map_err(unreadable)?;
    if found.mode() & OTHERS != 0 {
        let problem = format!("other users can read or write it (mode {:o})", found.mode() & 0o777);
        let fix = format!("run chmod o= {}, and change the secret", path.display());
        return Err(wrong(key, path, problem, &fix));
    }
    if found.len() > LONGEST {
        let problem = format!("it has {} bytes", found.len());
        return Err(wrong(key, path, problem, "put the secret into it and nothing else"));
    }
    fs::read_to_string(path).map_err(unreadable)
}

pub(super) fn unreadable(key: &str, path: &Path, error: &std::io::Error) -> SettingsError {
    wrong(key, path, format!("it cannot be read: {error}"), "name a file that the daemon may read")
}

pub(super) fn wrong(key: &str, path: &Path, problem: impl fmt::Display, fix: &str) -> SettingsError {
    SettingsError::text(key, path, format_args!("{problem}; {fix}"))
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A file with this text and these permissions, read in this way. The error has FILE for its
    /// path.
    fn read<T>(text: &str, mode: u32, read: fn(&Path) -> Result<T, SettingsError>) -> Result<T, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        read(file.path())
            .map_err(|error| error.to_string().replace(&file.path().display().to_string(), "FILE"))
    }

    /// The example of the specification and of its libraries.
    const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    #[test]
    fn a_signature_is_that_of_the_specification() {
        let sign = |keys: &str| {
            read(keys, 0o600, Keys::read).unwrap().sign(
                "msg_p5jXN8AQM9LWM0D4loKWxJek",
                "1614265330",
                br#"{"test": 2432232314}"#,
            )
        };
        assert_eq!(sign(KEY), SIGNATURE);
        let rotated = format!("# the new one\n whsec_{} \n\n{KEY}\n", BASE64_STANDARD.encode([7; 32]));
        let both = sign(&rotated);
        let (new, old) = both.split_once(' ').unwrap();
        assert!(new.starts_with("v1,") && new != old && old == SIGNATURE, "{both}");
    }

    #[test]
    fn a_file_that_will_not_do_is_refused() {
        let keys = |text: &str, mode| read(text, mode, Keys::read).unwrap_err();
        insta::assert_snapshot!(keys(KEY, 0o644), @r#"signing-key-file = "FILE": other users can read or write it (mode 644); run chmod o= FILE, and change the secret"#);
        insta::assert_snapshot!(keys("# none", 0o600), @r#"signing-key-file = "FILE": it has no key; make one with: echo whsec_$(openssl rand -base64 32)"#);
        insta::assert_snapshot!(keys("secret", 0o600), @r#"signing-key-file = "FILE": a line does not begin with whsec_; make one with: echo whsec_$(openssl rand -base64 32)"#);
        insta::assert_snapshot!(keys("whsec_c2hvcnQ=", 0o600), @r#"signing-key-file = "FILE": a key has 5 bytes; it needs 24 to 64; make one with: echo whsec_$(openssl rand -base64 32)"#);
        insta::assert_snapshot!(keys(&format!("{KEY}\n").repeat(9), 0o600), @r#"signing-key-file = "FILE": it has 9 keys, more than 8; remove the ones without a receiver"#);
        let value = |text: &str| read(text, 0o600, authorization).unwrap_err();
        insta::assert_snapshot!(value("\n"), @r#"authorization-file = "FILE": it is empty; write one line, as in: Bearer SECRET"#);
        insta::assert_snapshot!(value("Bearer a\nBearer b"), @r#"authorization-file = "FILE": it has characters that cannot be sent; write one line, as in: Bearer SECRET"#);
        let missing = Keys::read(Path::new("/nowhere/keys")).unwrap_err();
        insta::assert_snapshot!(missing, @r#"signing-key-file = "/nowhere/keys": it cannot be read: No such file or directory (os error 2); name a file that the daemon may read"#);
        assert_eq!(read("Bearer abc\n", 0o640, authorization).unwrap(), "Bearer abc");
    }
}
