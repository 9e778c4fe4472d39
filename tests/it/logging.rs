//! Where the log goes, and in which form.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{fs::MetadataExt, net::UnixDatagram},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::support::{Background, Database, PATIENCE, Ran, first_id, kvqueue, run};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A daemon whose handler cannot do what it is to do, for good, and that ends then.
fn failing(db: &Database) -> Command {
    let file = db.file("failing.toml");
    let settings = "[queues.q]\nhandler = 'exec'\nhandler-config = { command = ['sh', '-c', 'exit 3'], dead-exit-codes = [3] }\n";
    fs::write(&file, settings).unwrap();
    kvqueue(db, &["run", "--until-empty", "--config", file.to_str().unwrap()])
}

#[test]
fn log_events_of_an_item_have_its_id_and_queue() {
    let db = Database::new();
    run(&db, &["push", "q", "secret-payload", "--trace-parent", PARENT]).ok();
    let id = first_id(&db, "q");
    let mut daemon = failing(&db);
    daemon.env("KVQUEUE_LOG__LEVEL", "warn");
    let mut daemon = Background::start(daemon);
    let line = daemon.wait_for_event("item_dead");
    let event: serde_json::Value = serde_json::from_str(&line).unwrap();
    let wanted = serde_json::json!({
        "span": "item", "queue": "q", "item": id, "attempt": 1, "handler": "exec", "outcome": "dead",
        "trace_parent": PARENT,
    });
    let told = |key: &str| event.get(key).cloned();
    for (key, value) in wanted.as_object().unwrap() {
        assert_eq!(told(key).as_ref(), Some(value), "{key}: {line}");
    }
    // Nothing is said twice.
    assert_eq!(line.matches("\"item\":").count(), 1, "{line}");
    assert_eq!(line.matches("\"attempt\":").count(), 1, "{line}");
    let ran = daemon.end();
    assert!(!ran.stderr.contains("secret-payload"), "{}", ran.stderr);
}

#[test]
fn log_lines_have_no_colours_outside_a_terminal() {
    let db = Database::new();
    for level in ["info", "warn", "error", "off,kvqueue::consumer=error"] {
        run(&db, &["push", "q", "x"]).ok();
        let mut daemon = failing(&db);
        daemon.env("JOURNAL_STREAM", "1:2").env("KVQUEUE_LOG__LEVEL", level);
        let ran: Ran = daemon.output().unwrap().into();
        let line = ran
            .stderr
            .lines()
            .find(|line| line.contains("[item_dead]"))
            .unwrap_or_else(|| panic!("{level}: {ran:?}"));
        assert!(
            line.contains("ERROR item{queue=q ")
                && line.contains("handler=exec")
                && line.contains("outcome=dead")
                && line.matches("item=").count() == 1,
            "{level}: {line}"
        );
        assert!(!ran.stderr.contains('\u{1b}'), "{}", ran.stderr);
    }
}

#[test]
fn log_handler_payloads_are_escaped_once() {
    let db = Database::new();
    let args = ["run", "--queue", "q", "--handler", "log", "--until-empty"];
    for (payload, human) in [
        (r#"{"a":"b c"}"#, r#"payload="{\"a\":\"b c\"}""#),
        (r"back\slash", r#"payload="back\\slash""#),
        ("two\nlines \u{1b}[2J", r#"payload="two\nlines \u{1b}[2J""#),
    ] {
        let logged = |format| {
            run(&db, &["push", "q", payload]).ok();
            let ran: Ran = kvqueue(&db, &args).env("KVQUEUE_LOG__FORMAT", format).output().unwrap().into();
            let line = ran.stderr.lines().find(|line| line.contains("payload")).map(str::to_owned);
            line.unwrap_or_else(|| panic!("{ran:?}"))
        };
        let line = logged("human");
        assert!(line.contains(human), "{line}");
        let event: serde_json::Value = serde_json::from_str(&logged("json")).unwrap();
        assert_eq!(event["payload"], payload);
    }
}

#[test]
fn without_a_journal_journald_is_refused() {
    if Path::new("/run/systemd/journal/socket").exists() {
        return;
    }
    let db = Database::new();
    let ran: Ran = failing(&db).env("KVQUEUE_LOG__FORMAT", "journald").output().unwrap().into();
    let said = ran.failed(78);
    assert!(
        said.starts_with("kvqueue: log.format = \"journald\": there is no journal to write to: "),
        "{said}"
    );
}

/// A program in a mount namespace of its own, in which this directory is the journal's; none where the machine does not allow that.
fn with_journal(command: &Command, directory: &Path) -> Option<Command> {
    let possible = Command::new("unshare").args(["-rm", "true"]).stderr(Stdio::null()).status();
    if !possible.is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("KVQUEUE_TEST_JOURNAL").is_none(), "unshare -rm does not work here");
        return None;
    }
    let mount = r#"mount -t tmpfs none /run && mkdir -p /run/systemd/journal && mount --bind "$0" /run/systemd/journal && exec "$@""#;
    let mut inside = Command::new("unshare");
    inside
        .args(["-rm", "sh", "-c", mount])
        .arg(directory)
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    Some(inside)
}

/// The fields of a message of the journal's: `NAME=value`, or the name, its length as 8 bytes, and the value.
fn fields(mut message: &[u8]) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    while !message.is_empty() {
        let line = message.iter().position(|byte| *byte == b'\n').unwrap();
        let (head, rest) = (std::str::from_utf8(&message[..line]).unwrap(), &message[line + 1..]);
        let (name, value, rest) = match head.split_once('=') {
            Some((name, value)) => (name, value.to_owned(), rest),
            None => {
                let (length, rest) = rest.split_first_chunk().unwrap();
                let (value, rest) = rest.split_at(usize::try_from(u64::from_le_bytes(*length)).unwrap());
                (head, String::from_utf8(value.to_vec()).unwrap(), &rest[1..])
            }
        };
        fields.insert(name.to_owned(), value);
        message = rest;
    }
    fields
}

/// The first message of the journal's with this text.
fn message(journal: &UnixDatagram, text: &str) -> BTreeMap<String, String> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = journal.recv(&mut buffer).unwrap_or_else(|error| panic!("no {text:?}: {error}"));
        let fields = fields(&buffer[..length]);
        if fields.get("MESSAGE").is_some_and(|message| message.contains(text)) {
            return fields;
        }
    }
}

/// stderr is a file here, and its device and inode are named as the journal's would be.
#[test]
fn journal_messages_have_their_fields() {
    let db = Database::embedded();
    run(&db, &["push", "q", "x"]).ok();
    let id = first_id(&db, "q");
    let directory = tempfile::tempdir().unwrap();
    let journal = UnixDatagram::bind(directory.path().join("socket")).unwrap();
    journal.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut daemon = failing(&db);
    daemon.env("KVQUEUE_LOG__LEVEL", "error");
    let Some(mut daemon) = with_journal(&daemon, directory.path()) else { return };
    let stderr = fs::File::create(db.file("stderr")).unwrap();
    let is = stderr.metadata().unwrap();
    daemon.env("JOURNAL_STREAM", format!("{}:{}", is.dev(), is.ino()));
    let mut daemon = daemon.stderr(stderr).spawn().unwrap();
    let fields = message(&journal, "item failed for good");
    for (name, value) in [
        ("QUEUE", "q"),
        ("ITEM", id.as_str()),
        ("ATTEMPT", "1"),
        ("HANDLER", "exec"),
        ("OUTCOME", "dead"),
        ("PRIORITY", "3"),
        ("SYSLOG_IDENTIFIER", "kvqueue"),
    ] {
        assert_eq!(fields.get(name).map(String::as_str), Some(value), "{name} in {fields:?}");
    }
    // Plain `journalctl` shows the message and nothing else.
    for part in [format!(" item={id} "), " queue=q ".to_owned(), " reason=\"".to_owned()] {
        assert!(fields["MESSAGE"].contains(&part), "{part:?} in {fields:?}");
    }
    assert!(daemon.wait().unwrap().success());
    assert_eq!(fs::read_to_string(db.file("stderr")).unwrap(), "", "it goes to the journal alone");
}

#[test]
fn the_journal_is_unused_if_stderr_is_redirected() {
    let db = Database::embedded();
    run(&db, &["push", "q", "x"]).ok();
    let directory = tempfile::tempdir().unwrap();
    let journal = UnixDatagram::bind(directory.path().join("socket")).unwrap();
    journal.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let Some(mut daemon) = with_journal(&failing(&db), directory.path()) else { return };
    let ran: Ran = daemon.env("JOURNAL_STREAM", "8:1").output().unwrap().into();
    assert!(ran.events("item_dead") > 0, "{ran:?}");
    assert!(journal.recv(&mut [0; 8]).is_err(), "the journal was written to");
}
