//! The operator's secret, which a daemon makes by itself, and the sessions of browsers.

use std::{
    fs::{self, Permissions},
    io::Read,
    net::TcpListener,
    os::unix::fs::{PermissionsExt, fchown},
    path::PathBuf,
};

use serde_json::{Value, json};

use super::LOG;
use crate::support::{Address, Database, Ran, Reply, Served, kvqueue, run, serve};

/// A daemon with the default settings about tokens, and where its secret is.
fn served(db: &Database) -> (Served, PathBuf) {
    let secret = db.file("state/http-token");
    let config = format!("http.token-file = '{}'\n{LOG}", secret.display());
    (serve(db, &config), secret)
}

fn bearer(secret: &str) -> String {
    format!("Bearer {}", secret.trim())
}

/// The status with this cookie.
fn status(at: &Address, cookie: &str) -> Reply {
    at.request("GET", "/api/v1/status").header("Cookie", cookie).send()
}

/// The cookie that an answer sets, as a browser sends it back.
#[track_caller]
fn cookie(reply: &Reply) -> String {
    let set = reply.header("Set-Cookie").unwrap_or_else(|| panic!("no cookie: {reply:?}"));
    for attribute in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(set.contains(attribute), "{set}");
    }
    set.split(';').next().unwrap().to_owned()
}

fn sign_in(at: &Address, secret: &str) -> Reply {
    at.request("POST", "/sign-in").header("Authorization", &bearer(secret)).send()
}

/// `kvqueue page` for a daemon: the path of its link.
fn link(db: &Database, at: &Address, config: &str) -> String {
    let mut command = kvqueue(db, &["page", "--json", "--config", config]);
    let ran: Ran = command.env("KVQUEUE_HTTP__LISTEN", at.tcp()).output().unwrap().into();
    let shown: Value = serde_json::from_str(&ran.ok()).unwrap();
    assert_eq!(shown["expires_in_s"], 300);
    let url = shown["url"].as_str().unwrap();
    url.strip_prefix(&format!("http://{}", at.tcp())).unwrap().to_owned()
}

#[test]
fn a_link_is_not_one_to_the_daemon_of_another_database() {
    let (db, other) = (Database::embedded(), Database::embedded());
    let (served, file) = served(&db);
    let (at, secret) = (served.at.tcp(), fs::read_to_string(&file).unwrap());
    let link = |of: &Database, words: &[&str]| -> Ran {
        let mut command = kvqueue(of, &[&["page"], words].concat());
        command.env("KVQUEUE_HTTP__LISTEN", at).env("KVQUEUE_TOKEN", &secret).output().unwrap().into()
    };
    link(&db, &[]).ok();
    let refused = link(&other, &[]);
    assert_eq!(refused.code, Some(69), "{refused:?}");
    assert!(refused.stderr.contains("uses the database"), "{refused:?}");
    link(&other, &["--at", at]).ok();
}

#[test]
fn a_daemon_makes_a_secret_that_commands_find_by_themselves() {
    let db = Database::embedded();
    let mut command = kvqueue(&db, &["run", "--queue", "q", "--handler", "log"]);
    command.env("KVQUEUE_HTTP__LISTEN", "127.0.0.1:0").env("KVQUEUE_LOG__FORMAT", "json");
    let mut daemon = crate::support::Background::start(command);
    let at = crate::support::listening(&mut daemon);
    daemon.wait_for_event("ready");
    let file = fdb_embedded::embedded_directory(&db.url).unwrap().join("http-token");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    let secret = fs::read_to_string(&file).unwrap();
    assert_eq!(at.get("/api/v1/status").error(401), "unauthorized");
    at.get("/readyz").is(200);
    at.request("GET", "/api/v1/status").header("Authorization", &bearer(&secret)).send().is(200);
    let ask = |words: &[&str]| -> Ran {
        kvqueue(&db, words).env("KVQUEUE_HTTP__LISTEN", at.tcp()).output().unwrap().into()
    };
    ask(&["status"]).ok();
    let without = kvqueue(&db, &["status", "--at", at.tcp()])
        .env("KVQUEUE_TOKEN", "0123456789abcdefX")
        .output()
        .unwrap();
    assert_eq!(without.status.code(), Some(69), "{without:?}");
    daemon.signal(rustix::process::Signal::TERM);
    let ended = daemon.end();
    assert!(!ended.stderr.contains(secret.trim()), "the log does not have the secret");
}

#[test]
fn a_command_does_not_send_the_secret_to_another_user_s_listener() {
    let db = Database::embedded();
    let secret = db.file("secret");
    fs::write(&secret, "0123456789abcdef").unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o640)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ask = |token: &str| -> Ran {
        let mut command = kvqueue(&db, &["status", "--timeout", "100ms"]);
        command.env("KVQUEUE_HTTP__LISTEN", listener.local_addr().unwrap().to_string());
        command.env("KVQUEUE_HTTP__TOKEN_FILE", &secret).env("KVQUEUE_TOKEN", token);
        command.output().unwrap().into()
    };
    let received = || {
        let mut received = [0; 1_000];
        let length = listener.accept().unwrap().0.read(&mut received).unwrap();
        String::from_utf8_lossy(&received[..length]).into_owned()
    };
    assert!(ask("").failed(69).contains("has not answered"));
    assert!(received().contains("Bearer 0123456789abcdef"));
    // Only root can give sockets away.
    if fchown(&listener, Some(12_345), None).is_err() {
        return;
    }
    let refused = ask("").failed(69);
    assert!(refused.contains("the user 12345 listens") && refused.contains("nothing was sent"), "{refused}");
    assert_eq!(received(), "");
    assert!(ask("0123456789abcdef").failed(69).contains("has not answered"));
    assert!(received().contains("Bearer 0123456789abcdef"));
}

#[test]
fn a_link_signs_one_browser_in_and_works_once() {
    let db = Database::new();
    let (served, secret) = served(&db);
    let config = db.file("client.toml");
    fs::write(&config, format!("http.token-file = '{}'\n", secret.display())).unwrap();
    let path = link(&db, &served.at, config.to_str().unwrap());
    let head = served.at.request("HEAD", &path).send();
    assert_eq!((head.status, head.header("Set-Cookie")), (303, None), "a look does not use it up");
    let followed = served.at.get(&path);
    assert_eq!((followed.status, followed.header("Location")), (303, Some("../")));
    let cookie = cookie(&followed);
    status(&served.at, &cookie).is(200);
    assert_eq!(served.at.get(&path).error(404), "not_found");
    // The cookie is not enough for a page of another site.
    let other = served.at.request("GET", "/api/v1/status").header("Cookie", &cookie);
    assert_eq!(other.header("Origin", "http://evil.example").send().error(403), "cross_site");
    let gone = served.at.request("DELETE", "/sign-in").header("Cookie", &cookie).send();
    assert!(gone.status == 204 && gone.header("Set-Cookie").unwrap().contains("Max-Age=0"), "{gone:?}");
}

/// What a browser sends when a person follows a link.
fn opened(at: &Address, method: &str, path: &str, cookie: &str, site: &str) -> Reply {
    let request = at.request(method, path).header("Accept", "text/html,application/xhtml+xml,*/*;q=0.8");
    let request = request.header("Sec-Fetch-Site", site).header("Sec-Fetch-Mode", "navigate");
    if cookie.is_empty() { request.send() } else { request.header("Cookie", cookie).send() }
}

/// The text of a page for people.
#[track_caller]
fn page(reply: &Reply, status: u16) -> String {
    assert_eq!((reply.status, reply.header("Set-Cookie")), (status, None), "{reply:?}");
    assert_eq!(reply.header("Content-Type"), Some("text/html; charset=utf-8"));
    let policy = reply.header("Content-Security-Policy").unwrap();
    assert!(policy.contains("form-action 'self'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    String::from_utf8(reply.body.clone()).unwrap()
}

/// The path of a link of the owner of this token.
fn link_of(at: &Address, token: &str) -> String {
    let made = at.request("POST", "/sign-in/link").header("Authorization", &bearer(token)).send().is(201);
    made["path"].as_str().unwrap().to_owned()
}

#[test]
fn a_person_is_asked_before_a_link_signs_the_browser_in() {
    let db = Database::new();
    let (served, secret) = served(&db);
    let at = &served.at;
    let other = run(&db, &["token", "new", "somebody", "--scope", "read"]).ok();
    let operator = cookie(&sign_in(at, &fs::read_to_string(&secret).unwrap()));
    // A link of somebody else, on a page of another site, in a message, or typed in.
    for (session, site) in
        [("", "cross-site"), ("", "none"), (&*operator, "none"), (&*operator, "same-origin")]
    {
        let path = link_of(at, &other);
        let asked = page(&opened(at, "GET", &path, session, site), 200);
        assert!(asked.contains("with the token <code>somebody</code>"), "{asked}");
        assert_eq!(asked.contains("as the operator"), !session.is_empty(), "the session that ends: {asked}");
        assert!(asked.contains("<form method=\"post\""), "{asked}");
        // Only the answer of that page signs in.
        assert_eq!(opened(at, "POST", &path, session, "cross-site").error(403), "cross_site");
        let null = at.request("POST", &path).header("Origin", "null").send();
        assert_eq!(null.error(403), "cross_site");
        let confirmed = opened(at, "POST", &path, session, "same-origin");
        assert_eq!((confirmed.status, confirmed.header("Location")), (303, Some("../")));
        status(at, &cookie(&confirmed)).is(200);
    }
    // A picture on another site's page cannot follow it either.
    let path = link_of(at, &other);
    let picture = at.request("GET", &path).header("Accept", "image/*").header("Sec-Fetch-Site", "cross-site");
    assert_eq!(picture.send().error(403), "cross_site");
    // A browser that is signed in by the same token asks nothing.
    let own = cookie(&sign_in(at, &other));
    assert_eq!(opened(at, "GET", &path, &own, "none").status, 303);
}

#[test]
fn a_link_that_does_not_work_opens_a_page_for_people() {
    let db = Database::new();
    let (served, secret) = served(&db);
    let at = &served.at;
    let path = link_of(at, &fs::read_to_string(&secret).unwrap());
    let signed_in = cookie(&opened(at, "POST", &path, "", "same-origin"));
    for (method, path) in [("GET", &*path), ("POST", &*path), ("GET", "/sign-in/nothing")] {
        let text = page(&opened(at, method, path, "", "same-origin"), 404);
        assert!(text.contains("does not work any more") && text.contains("kvqueue page"), "{text}");
    }
    // A tab that is restored while the browser is signed in shows the dashboard.
    let again = opened(at, "GET", &path, &signed_in, "none");
    assert_eq!(
        (again.status, again.header("Location"), again.header("Set-Cookie")),
        (303, Some("../"), None)
    );
    assert_eq!(at.get(&path).error(404), "not_found");
}

#[test]
fn a_session_allows_what_its_token_allows_and_ends_with_it() {
    let db = Database::new();
    let (served, _) = served(&db);
    let token = run(&db, &["token", "new", "viewer", "--scope", "read"]).ok();
    let cookie = cookie(&sign_in(&served.at, &token));
    status(&served.at, &cookie).is(200);
    let push =
        served.at.request("POST", "/api/v1/queues/q/items").json(&json!({"items": [{"payload": "a"}]}));
    assert_eq!(push.header("Cookie", &cookie).send().error(403), "forbidden");
    run(&db, &["token", "revoke", "viewer"]).ok();
    let until = std::time::Instant::now() + crate::support::PATIENCE;
    while status(&served.at, &cookie).status == 200 {
        assert!(std::time::Instant::now() < until, "the session outlives its token");
    }
    assert_eq!(status(&served.at, &cookie).error(401), "unauthorized");
    assert_eq!(sign_in(&served.at, "0123456789abcdefX").error(401), "unauthorized");
}

#[test]
fn a_session_holds_at_every_daemon_of_the_database_and_after_a_restart() {
    let db = Database::new();
    let (first, file) = served(&db);
    let (second, _) = served(&db);
    let secret = fs::read_to_string(&file).unwrap();
    let cookies = [&first, &second].map(|daemon| cookie(&sign_in(&daemon.at, &secret)));
    drop(first);
    let (third, _) = served(&db);
    for daemon in [&second, &third] {
        cookies.iter().for_each(|cookie| drop(status(&daemon.at, cookie).is(200)));
    }
}

#[test]
fn a_cookie_does_not_help_to_guess_the_secret() {
    // The secret is the same, and nothing else.
    let cookies = [(); 2].map(|()| {
        let db = Database::new();
        let secret = db.file("secret");
        fs::write(&secret, "a-secret-that-a-person-made").unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        let served = serve(&db, &format!("http.token-file = '{}'\n{LOG}", secret.display()));
        cookie(&sign_in(&served.at, "a-secret-that-a-person-made"))
    });
    let names = cookies.each_ref().map(|cookie| cookie.split_once('=').unwrap().0);
    assert_ne!(names[0], names[1], "the name is a function of the secret");
}

#[test]
fn another_secret_ends_all_sessions() {
    let db = Database::new();
    let (served, file) = served(&db);
    let old = fs::read_to_string(&file).unwrap();
    let cookie = cookie(&sign_in(&served.at, &old));
    status(&served.at, &cookie).is(200);
    // Without the file, a reload makes another secret.
    fs::remove_file(&file).unwrap();
    served.at.request("POST", "/api/v1/reload").header("Authorization", &bearer(&old)).send().is(200);
    let new = fs::read_to_string(&file).unwrap();
    assert_ne!(new, old);
    assert_eq!(status(&served.at, &cookie).error(401), "unauthorized");
    assert_eq!(sign_in(&served.at, &old).error(401), "unauthorized");
    assert_eq!(sign_in(&served.at, &new).status, 204);
}

#[test]
fn a_browser_can_sign_in_to_a_read_only_daemon() {
    let db = Database::new();
    let secret = db.file("token");
    let config = format!("http.read-only = true\nhttp.token-file = '{}'\n{LOG}", secret.display());
    let served = serve(&db, &config);
    let cookie = cookie(&sign_in(&served.at, &fs::read_to_string(&secret).unwrap()));
    status(&served.at, &cookie).is(200);
    let resume = served.at.request("DELETE", "/api/v1/queues/q/pause").header("Cookie", &cookie);
    assert_eq!(resume.send().error(403), "read_only");
}
