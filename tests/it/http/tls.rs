//! HTTP over TLS.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::Arc,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};

use super::LOG;
use crate::support::{Database, PATIENCE, Ran, Served, kvqueue, run, serve};

/// Writes a new certificate for localhost, which is its own authority, and its key.
fn write_certificate(db: &Database) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    fs::write(db.file("tls.crt"), made.cert.pem()).unwrap();
    let key = db.file("tls.key");
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
}

fn config(db: &Database) -> String {
    let [certificate, key, secret] = ["tls.crt", "tls.key", "token"].map(|name| db.file(name));
    let (certificate, key, secret) = (certificate.display(), key.display(), secret.display());
    format!(
        "http.tls-certificate = '{certificate}'\nhttp.tls-key = '{key}'\nhttp.token-file = '{secret}'\n{LOG}"
    )
}

/// Asks for a path over TLS, by a client that trusts this certificate alone.
fn ask(served: &Served, trusted: &Path, path: &str) -> Result<String, std::io::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(trusted).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = TcpStream::connect(served.at.tcp())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut stream = StreamOwned::new(connection, stream);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", served.at.tcp())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn a_daemon_with_a_certificate_speaks_tls_alone() {
    let db = Database::new();
    write_certificate(&db);
    let served = serve(&db, &config(&db));
    let answer = ask(&served, &db.file("tls.crt"), "/livez").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(ask(&served, &db.file("tls.crt"), "/api/v1/status").unwrap().starts_with("HTTP/1.1 401"));
    // A client that speaks no TLS gets no answer.
    let mut plain = TcpStream::connect(served.at.tcp()).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    plain.write_all(b"GET /livez HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}

#[test]
fn a_reload_reads_the_certificate_again() {
    let db = Database::new();
    write_certificate(&db);
    let mut served = serve(&db, &config(&db));
    let old = db.file("old.crt");
    fs::copy(db.file("tls.crt"), &old).unwrap();
    ask(&served, &old, "/livez").unwrap();
    write_certificate(&db);
    assert!(ask(&served, &db.file("tls.crt"), "/livez").is_err(), "it has not been read yet");
    served.daemon.signal(rustix::process::Signal::HUP);
    served.daemon.wait_for_event("configuration_reloaded");
    ask(&served, &db.file("tls.crt"), "/livez").unwrap();
    assert!(ask(&served, &old, "/livez").is_err());
    // A key of another certificate is refused, and the certificate in use stays.
    fs::copy(&old, db.file("tls.crt")).unwrap();
    served.daemon.signal(rustix::process::Signal::HUP);
    let line = served.daemon.wait_for_event("configuration_refused");
    assert!(line.contains("http.tls-key"), "{line}");
    assert!(ask(&served, &old, "/livez").is_err());
}

#[test]
fn commands_reach_a_daemon_over_tls() {
    let db = Database::new();
    write_certificate(&db);
    let served = serve(&db, &config(&db));
    let path = db.file("client.toml");
    fs::write(&path, config(&db)).unwrap();
    let ask = |words: &[&str]| -> Ran {
        let mut command = kvqueue(&db, words);
        command.args(["--config", path.to_str().unwrap()]);
        command.env("KVQUEUE_HTTP__LISTEN", served.at.tcp()).output().unwrap().into()
    };
    ask(&["status"]).ok();
    let link = ask(&["page"]).ok();
    assert!(link.starts_with(&format!("https://{}/sign-in/", served.at.tcp())), "{link}");
    // A program with another certificate is not the daemon.
    write_certificate(&db);
    let other = ask(&["status"]);
    assert!(other.code == Some(69) && other.stderr.contains("http.tls-certificate"), "{other:?}");
}

#[test]
fn a_worker_trusts_the_authorities_that_its_environment_names() {
    let db = Database::new();
    write_certificate(&db);
    let served = serve(&db, &config(&db));
    run(&db, &["push", "q2", "one"]).ok();
    let token = run(&db, &["token", "new", "w", "--scope", "work"]).ok();
    let url = format!("https://localhost:{}", served.at.tcp().rsplit(':').next().unwrap());
    let lease = |authorities: &Path| -> Ran {
        let mut command = kvqueue(&db, &["lease", "q2", "--url", &url]);
        command.env("KVQUEUE_TOKEN", token.trim()).env("SSL_CERT_FILE", authorities).output().unwrap().into()
    };
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(db.file("other.crt"), made.cert.pem()).unwrap();
    let refused = lease(&db.file("other.crt"));
    assert!(refused.failed(69).contains("cannot trust what answers at https://localhost:"));
    let leased = lease(&db.file("tls.crt")).ok();
    assert_eq!(leased.lines().count(), 2, "{leased}");
}
