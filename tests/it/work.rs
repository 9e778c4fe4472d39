//! Workers from the shell: `kvqueue work`, and scripts with `kvqueue lease`, `extend` and `ack`.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Command, Stdio},
    thread,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    Address, Background, Database, Ran, Served, clean, pipe, run, run_with_input, serve, wait_until,
};

const PULL: &str = "[queues.q]\nhandler = 'pull'\nretry = { max-attempts = 2, base = '10ms' }\n";

/// A command that only knows where daemons are.
fn at(db: &Database, urls: &[String], words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvqueue"));
    clean(&mut command, db);
    command.args(words);
    urls.iter().for_each(|url| _ = command.args(["--url", url]));
    command.current_dir(db.directory.path());
    command
}

fn url(served: &Served) -> String {
    match &served.at {
        Address::Tcp(address) => format!("http://{address}"),
        Address::Unix(path) => format!("unix:{}", path.display()),
    }
}

/// `kvqueue work q` with a shell script per item.
fn work(db: &Database, urls: &[String], options: &[&str], script: &str) -> Background {
    let words: Vec<_> = ["work", "q"].iter().chain(options).copied().collect();
    let mut command = at(db, urls, &words);
    command.args(["--", "sh", "-c", script]);
    Background::start(command)
}

/// The lines that scripts have written into a file.
fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn push_numbers(db: &Database, count: usize) {
    let items: String = (0..count).map(|number| format!("{number}\n")).collect();
    run_with_input(db, &["push", "q", "--lines", "-"], items).ok();
}

fn length(db: &Database) -> String {
    run(db, &["len", "q"]).ok().trim().to_owned()
}

/// The dead letters' payloads, attempts and reasons.
fn dead(db: &Database) -> Vec<(String, u64, String)> {
    let list = run(db, &["dead", "list", "q", "--json"]).ok();
    let letters = list.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |letter: &Value, key: &str| letter[key].as_str().unwrap().to_owned();
    let id = |letter: &Value| text(letter, "id");
    let payload = |letter: &Value| {
        let shown = run(db, &["dead", "show", "q", &id(letter), "--json"]).ok();
        text(&serde_json::from_str(&shown).unwrap(), "payload")
    };
    let mut found: Vec<_> = letters
        .map(|letter| (payload(&letter), letter["attempts"].as_u64().unwrap(), text(&letter, "reason")))
        .collect();
    found.sort();
    found
}

fn stopped(worker: Background) -> Ran {
    worker.signal(Signal::TERM);
    worker.end()
}

#[test]
fn a_command_gets_each_of_500_items_with_its_variables() {
    let db = Database::new();
    run(&db, &["push", "q", "first", "--attr", "to=ann", "--content-type", "text/plain"]).ok();
    push_numbers(&db, 500);
    let served = serve(&db, PULL);
    let script = "payload=$(cat); test $payload != first || env > variables; echo $payload >> out";
    let worker = work(&db, &[url(&served)], &["--concurrency", "4"], script);
    wait_until("all items are handled", || lines(&db.file("out")).len() >= 501);
    stopped(worker).ok();
    let handled: BTreeSet<_> = lines(&db.file("out")).into_iter().collect();
    assert_eq!((handled.len(), lines(&db.file("out")).len()), (501, 501));
    assert_eq!((&*length(&db), dead(&db)), ("0", vec![]));
    let variables = lines(&db.file("variables"));
    for expected in [
        "KVQUEUE_QUEUE=q",
        "KVQUEUE_ATTEMPT=1",
        r#"KVQUEUE_ATTRIBUTES={"to":"ann"}"#,
        "KVQUEUE_CONTENT_TYPE=text/plain",
    ] {
        assert!(variables.iter().any(|it| it == expected), "{expected} is not in {variables:?}");
    }
    for name in ["KVQUEUE_ITEM=", "KVQUEUE_ENQUEUED_AT=", "KVQUEUE_RUN="] {
        assert!(variables.iter().any(|it| it.starts_with(name)), "{name} is not in {variables:?}");
    }
}

/// A daemon at an address that stays the same.
fn serve_at(db: &Database, port: u16) -> Served {
    let queue = "[queues.q]\nhandler = 'pull'\nlease = '10s'\n";
    serve(db, &format!("http.listen = '127.0.0.1:{port}'\n{queue}"))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_worker_goes_on_when_its_daemon_is_killed_and_another_one_takes_over() {
    let db = Database::new();
    push_numbers(&db, 300);
    let ports = [free_port(), free_port()];
    let urls = ports.map(|port| format!("http://127.0.0.1:{port}"));
    let mut daemon = serve_at(&db, ports[0]);
    let script = "echo $(cat) $KVQUEUE_ATTEMPT >> out";
    let mut worker = work(&db, &urls, &["--concurrency", "4", "-k", "10"], script);
    let out = db.file("out");
    for (handled, port) in [(50, ports[0]), (120, ports[1]), (190, ports[0])] {
        wait_until("some items are handled", || lines(&out).len() >= handled);
        daemon.daemon.signal(Signal::KILL);
        drop(daemon);
        worker.wait_for_event("daemon_unavailable");
        daemon = serve_at(&db, port);
    }
    let handled = || lines(&out).iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    wait_until("all items are handled", || {
        let handled: BTreeSet<String> = handled();
        handled.len() == 300
    });
    wait_until("all items are acknowledged", || length(&db) == "0");
    // An item that was handled twice had lost its lease, so its attempt was another one.
    assert_eq!(lines(&out).iter().collect::<BTreeSet<_>>().len(), lines(&out).len());
    let ended = stopped(worker);
    assert!(ended.events("daemon_available") >= 1, "{ended:?}");
    ended.ok();
    assert_eq!(dead(&db), []);
}

#[test]
fn exit_codes_are_outcomes() {
    let db = Database::new();
    run(&db, &["push", "q", "0", "1", "3", "65", "66", "99"]).ok();
    let served = serve(&db, PULL);
    let script = "code=$(cat); echo $code >> out; test $code = 99 -a $(grep -c 99 out) = 2 && exit 0; \
        echo code $code >&2; exit $code";
    let options = ["--dead-exit-codes", "65,66", "--release-exit-codes", "99", "--stderr-limit", "6B"];
    let worker = work(&db, &[url(&served)], &options, script);
    wait_until("all items are handled", || dead(&db).len() == 4 && length(&db) == "0");
    let ended = stopped(worker);
    let letter = |code: u64, attempts| {
        let said: String = format!("code {code}").chars().take(6).collect();
        (code.to_string(), attempts, format!("sh failed with exit status: {code}: {said}"))
    };
    assert_eq!(dead(&db), [letter(1, 2), letter(3, 2), letter(65, 1), letter(66, 1)]);
    assert_eq!((ended.events("item_failed"), ended.events("item_dead")), (4, 2), "{ended:?}");
    ended.ok();
    let mut handled = lines(&db.file("out"));
    handled.sort();
    assert_eq!(handled, ["0", "1", "1", "3", "3", "65", "66", "99", "99"]);
}

#[test]
fn a_lease_is_extended_while_its_command_runs_and_a_command_has_a_time_limit() {
    let db = Database::new();
    run(&db, &["push", "q", "slow"]).ok();
    let served = serve(&db, PULL);
    let script = "cat; echo $KVQUEUE_ATTEMPT >> out; sleep 4; echo end >> out";
    let worker = work(&db, &[url(&served)], &["--lease", "1s"], script);
    wait_until("the item is handled", || lines(&db.file("out")).len() >= 2 && length(&db) == "0");
    stopped(worker).ok();
    assert_eq!(lines(&db.file("out")), ["1", "end"]);
    run(&db, &["push", "q", "endless"]).ok();
    let worker = work(&db, &[url(&served)], &["--handler-timeout", "200ms"], "sleep 1000");
    wait_until("the item has failed twice", || !dead(&db).is_empty());
    stopped(worker).ok();
    let [(payload, 2, reason)] = &dead(&db)[..] else { panic!("{:?}", dead(&db)) };
    assert_eq!((&**payload, &**reason), ("endless", "not done after 200 ms (handler-timeout)"));
}

#[test]
fn a_stop_waits_for_commands_that_run_and_releases_other_items() {
    let db = Database::new();
    run(&db, &["push", "q", "a", "b", "c", "d", "e"]).ok();
    let served = serve(&db, PULL);
    pipe(&db, "go");
    let script = "cat >> out; echo >> out; read word < go";
    let mut worker = work(&db, &[url(&served)], &["--concurrency", "2", "-k", "5"], script);
    wait_until("two commands run", || lines(&db.file("out")).len() == 2);
    worker.signal(Signal::TERM);
    worker.wait_for_event("draining");
    wait_until("the other items are released", || length(&db) == "3");
    // Open for reading too, so that it waits for no reader and no reader meets an end.
    let mut go = fs::OpenOptions::new().read(true).write(true).open(db.file("go")).unwrap();
    go.write_all(b"on\non\n").unwrap();
    let ended = worker.end();
    assert_eq!(ended.events("drained"), 1, "{ended:?}");
    ended.ok();
    let left = run(&db, &["peek", "q", "-k", "5", "--json"]).ok();
    let left: Vec<Value> = left.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let shown = left.iter().map(|item| (item["payload"].as_str().unwrap(), &item["attempts"]));
    assert_eq!(shown.collect::<Vec<_>>(), [("c", &json!(0)), ("d", &json!(0)), ("e", &json!(0))]);
    assert_eq!(length(&db), "3");
}

#[test]
fn a_second_signal_ends_commands_and_releases_their_items() {
    let db = Database::new();
    run(&db, &["push", "q", "a"]).ok();
    let served = serve(&db, PULL);
    let script = "trap 'echo told > told; exit 0' TERM; echo $$ > pid; sleep 1000 & wait";
    let mut worker = work(&db, &[url(&served)], &[], script);
    wait_until("the command runs", || !lines(&db.file("pid")).is_empty());
    worker.signal(Signal::TERM);
    worker.wait_for_event("draining");
    worker.signal(Signal::INT);
    let ended = worker.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert_eq!(lines(&db.file("told")), ["told"]);
    let pid = lines(&db.file("pid")).remove(0);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    let left: Value = serde_json::from_str(&run(&db, &["peek", "q", "--json"]).ok()).unwrap();
    assert_eq!((&left["payload"], &left["attempts"]), (&json!("a"), &json!(0)));
}

#[test]
fn items_wait_unspent_while_the_command_cannot_be_started() {
    let db = Database::new();
    let served = serve(&db, PULL);
    let task = db.file("task");
    let install = || {
        use std::os::unix::fs::PermissionsExt;
        let new = db.file("new");
        fs::write(&new, "#!/bin/sh\necho $KVQUEUE_ATTEMPT >> out\n").unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(&new, &task).unwrap();
    };
    let start = || {
        let mut command = at(&db, &[url(&served)], &["work", "q"]);
        command.args(["--", "./task"]);
        command
    };
    let refused: Ran = start().output().unwrap().into();
    let said = refused.failed(2);
    assert!(
        said.contains("the command cannot be started: ") && said.contains("task: No such file"),
        "{said}"
    );
    install();
    let mut worker = Background::start(start());
    worker.wait_for_event("worker_started");
    fs::remove_file(&task).unwrap();
    run(&db, &["push", "q", "a", "b"]).ok();
    worker.wait_for_event("handler_unavailable");
    install();
    worker.wait_for_event("handler_available");
    wait_until("both items are handled", || lines(&db.file("out")).len() == 2 && length(&db) == "0");
    stopped(worker).ok();
    assert_eq!(lines(&db.file("out")), ["1", "1"]);
}

#[test]
fn a_worker_without_access_ends_and_says_why() {
    let db = Database::new();
    run(&db, &["push", "q", "a"]).ok();
    let served = serve(&db, &format!("http.require-token = true\n{PULL}"));
    let token = |name, scope| run(&db, &["token", "new", name, "--scope", scope]).ok().trim().to_owned();
    let ended = |token: &str| -> Ran {
        let mut command = at(&db, &[url(&served)], &["work", "q"]);
        command.env("KVQUEUE_TOKEN", token).args(["--", "true"]);
        command.stdin(Stdio::null()).output().unwrap().into()
    };
    let none = ended("").failed(69);
    assert!(none.contains("a token is needed"), "{none}");
    let other = ended(&token("other", "push")).failed(69);
    assert!(other.contains("work"), "{other}");
    let mut command = at(&db, &[url(&served)], &["work", "q"]);
    let worker_token = token("worker", "work");
    // The command gets the items, and not the token.
    let script = "test -z \"$KVQUEUE_TOKEN\" && cat >> out";
    command.env("KVQUEUE_TOKEN", &worker_token).args(["--", "sh", "-c", script]);
    let worker = Background::start(command);
    wait_until("the item is handled", || lines(&db.file("out")) == ["a"] && length(&db) == "0");
    // It ends also if it loses the access while it waits.
    run(&db, &["token", "revoke", "worker"]).ok();
    let asked = served.at.request("POST", "/api/v1/queues/q/lease");
    let asked = asked.header("Authorization", &format!("Bearer {worker_token}"));
    wait_until("the token is refused", || asked.send().status == 401);
    run(&db, &["push", "q", "b"]).ok();
    let revoked = worker.end().failed(69);
    assert!(revoked.contains("the daemon at"), "{revoked}");
}

#[test]
fn a_worker_of_a_queue_that_is_nowhere_is_refused_unless_it_is_to_be_created() {
    let db = Database::new();
    let served = serve(&db, &format!("http.require-token = true\n{PULL}[queues.jobs]\nhandler = 'pull'"));
    let token = |name: &str, queue: &str| {
        run(&db, &["token", "new", name, "--scope", "work", "--queue", queue]).ok().trim().to_owned()
    };
    let ended = |token: &str, words: &[&str]| -> Ran {
        let mut command = at(&db, &[url(&served)], words);
        if words[0] == "work" {
            command.args(["--", "true"]);
        }
        command.env("KVQUEUE_TOKEN", token).stdin(Stdio::null()).output().unwrap().into()
    };
    let all = token("all", "*");
    for words in [["work", "jbos"], ["lease", "jbos"]] {
        let said = ended(&all, &words).failed(1);
        assert!(said.contains("there is no queue \"jbos\"; did you mean \"jobs\"?; ask without"), "{said}");
    }
    // A token tells nothing of other queues than its own.
    let said = ended(&token("some", "jb*"), &["lease", "jbos"]).failed(1);
    assert!(said.contains("there is no queue \"jbos\"") && !said.contains("jobs"), "{said}");
    ended(&all, &["lease", "jbos", "--create"]).failed(75);
    ended(&all, &["lease", "jobs"]).failed(75);
    let mut command = at(&db, &[url(&served)], &["work", "new", "--create"]);
    command.env("KVQUEUE_TOKEN", &all).args(["--", "sh", "-c", "cat >> out"]);
    let worker = Background::start(command);
    run(&db, &["push", "new", "a"]).ok();
    wait_until("the item is handled", || lines(&db.file("out")) == ["a"]);
    stopped(worker).ok();
}

#[test]
fn a_worker_that_reaches_no_daemon_ends_after_its_timeout() {
    let db = Database::new();
    let absent = format!("http://127.0.0.1:{}", free_port());
    let mut command = at(&db, &[absent], &["work", "q", "--timeout", "300ms"]);
    let ended: Ran = command.args(["--", "true"]).output().unwrap().into();
    let said = ended.failed(69);
    assert!(said.contains("no daemon answers at http://127.0.0.1:"), "{said}");
}

#[test]
fn a_token_is_not_sent_to_another_machine_unencrypted() {
    let db = Database::new();
    let mut command = at(&db, &["http://192.0.2.1:7420".to_owned()], &["lease", "q"]);
    let refused: Ran = command.env("KVQUEUE_TOKEN", "kvq_secret").output().unwrap().into();
    let said = refused.failed(2);
    assert!(said.contains("the connection is not encrypted") && !said.contains("kvq_secret"), "{said}");
}

#[test]
fn a_shell_script_leases_extends_and_acknowledges() {
    let db = Database::new();
    let one = db.file("one");
    fs::write(&one, b"one\0\xff\n").unwrap();
    run(&db, &["push", "q", "--file", one.to_str().unwrap()]).ok();
    run(&db, &["push", "q", "two", "three", "four", "five"]).ok();
    let served = serve(&db, PULL);
    let script = r#"set -eu
        kvqueue() { "$KVQUEUE" "$@" --url "$URL"; }
        kvqueue lease q --max 5 --lease 1m > leased
        { read -r lease
          read -r one attempt payload
          printf %s "$payload" | base64 -d > payload
          read -r two attempt payload
          read -r three attempt payload
        } < leased
        test $attempt = 1
        kvqueue extend q $lease
        kvqueue ack q $lease --done $one $two --dead $three --reason 'no such address'
        kvqueue ack q $lease --release-rest --json
        kvqueue lease q --max 2 > leased
        { read -r lease; read -r four rest; read -r five rest; } < leased
        kvqueue ack q $lease --retry $four $five --after 0s
        kvqueue ack q $lease --retry $four $five
        kvqueue lease q --json > leased
        grep -c '"attempt":2' leased
        kvqueue lease q > last
        kvqueue lease q || echo nothing $?
    "#;
    let mut command = Command::new("sh");
    clean(&mut command, &db);
    command.args(["-c", script]).env("URL", url(&served)).env("KVQUEUE", env!("CARGO_BIN_EXE_kvqueue"));
    let ran: Ran = command.current_dir(db.directory.path()).output().unwrap().into();
    assert_eq!(
        ran.stdout,
        "extended; 5 items not acknowledged\n\
         acknowledged 3 items; 2 left\n\
         {\"acknowledged\":2,\"open\":0}\n\
         acknowledged 2 items; 0 left\n\
         acknowledged 0 items; 0 left\n1\nnothing 75\n",
        "{ran:?}"
    );
    assert!(ran.stderr.contains("nothing to lease"), "{ran:?}");
    assert_eq!(fs::read(db.file("payload")).unwrap(), b"one\0\xff\n");
    assert_eq!(lines(&db.file("last")).len(), 2);
    let [(payload, 1, reason)] = &dead(&db)[..] else { panic!("{:?}", dead(&db)) };
    assert_eq!((&**payload, &**reason), ("three", "no such address"));
}

#[test]
fn the_output_of_a_command_is_the_result_and_its_error_output_reports_progress() {
    let db = Database::new();
    pipe(&db, "gate");
    let served = serve(&db, &format!("{PULL}history = '1h'\n"));
    run(&db, &["push", "q", "x", "long"]).ok();
    let script = "p=$(cat); echo kvqueue-progress 50% sending >&2; [ $p = x ] && read line < gate; [ $p = x ] && echo ok || head -c 90001 /dev/zero";
    let options = ["--lease", "1s", "--result", "stdout", "--progress", "stderr"];
    let worker = work(&db, &[url(&served)], &options, script);
    let items = |state: &str| served.at.get(&format!("/api/v1/queues/q/{state}")).is(200)["items"].clone();
    wait_until("the progress is shown", || {
        let progress = &items("items?state=running")[0]["progress"];
        (progress["percent"].as_u64(), progress["message"].as_str()) == (Some(50), Some("sending"))
    });
    fs::write(db.file("gate"), "go\n").unwrap();
    wait_until("both are done", || items("ended").as_array().unwrap().len() == 2);
    stopped(worker).ok();
    let result = |item: &Value| {
        let path = format!("/api/v1/queues/q/items/{}", item["id"].as_str().unwrap());
        served.at.get(&path).is(200)["result"].as_str().map(str::to_owned)
    };
    let mut results: Vec<_> = items("ended").as_array().unwrap().iter().map(result).collect();
    results.sort();
    assert_eq!(results, [None, Some("ok\n".to_owned())]);
}

#[test]
fn exit_codes_and_acknowledgements_throttle() {
    let db = Database::new();
    let served = serve(&db, "[queues.q]\nhandler = 'pull'\nkind = 'keyed'\n");
    let push = |key: &str| run(&db, &["push", "q", "x", "--kind", "keyed", "--key", key]).ok();
    push("t/1");
    let options = ["--throttle-exit-codes", "76", "--throttle-for", "1s", "--throttle-scope", "queue"];
    let script = "test -e open || { touch open; exit 76; }; echo $KVQUEUE_ATTEMPT > attempt";
    let worker = work(&db, &[url(&served)], &options, script);
    wait_until("the item is done", || lines(&db.file("attempt")) == ["1"]);
    let ended = stopped(worker);
    assert_eq!((ended.code, ended.events("item_throttled")), (Some(0), 1), "{ended:?}");
    push("t/1");
    let script = r#"set -eu
        kvqueue() { "$KVQUEUE" "$@" --url "$URL"; }
        kvqueue lease q > leased
        { read -r lease; read -r id rest; } < leased
        kvqueue ack q $lease --throttle $id --after 1s --scope tenant --reason 'slow down'
        kvqueue lease q || echo nothing $?
        kvqueue lease q --wait 20s > leased
        { read -r lease; read -r id attempt rest; } < leased
        echo attempt $attempt
        kvqueue ack q $lease --done $id --after 1s || echo refused $?
        kvqueue ack q $lease --throttle $id || echo refused $?
    "#;
    let mut command = Command::new("sh");
    clean(&mut command, &db);
    command.args(["-c", script]).env("URL", url(&served)).env("KVQUEUE", env!("CARGO_BIN_EXE_kvqueue"));
    let ran: Ran = command.current_dir(db.directory.path()).output().unwrap().into();
    let expected = "acknowledged 1 item; 0 left\nnothing 75\nattempt 1\nrefused 2\nrefused 2\n";
    assert_eq!(ran.stdout, expected, "{ran:?}");
}

/// A proxy in front of a daemon that answers every third request itself, as gateways do whose server is not there.
fn gateway(to: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let answers = [
            r#"503 x|{"message":"failure to get a peer from the ring-balancer"}"#,
            "502 x|<html><h1>502 Bad Gateway</h1></html>",
            "504 x|",
            "200 OK|<html>Welcome</html>",
            r#"200 OK|{"message":"ok"}"#,
        ];
        for (number, client) in listener.incoming().flatten().enumerate() {
            let (to, answer) = (to.clone(), answers[number / 3 % answers.len()]);
            thread::spawn(move || pass_on(client, &to, (number % 3 == 2).then_some(answer)));
        }
    });
    format!("http://{address}")
}

/// Passes one request on and its answer back in chunks, or answers it.
fn pass_on(mut client: TcpStream, to: &str, answer: Option<&str>) {
    let mut request = Vec::new();
    let mut buffer = [0; 65_536];
    // The whole request: its head says how long it is.
    let complete = |request: &[u8]| {
        let text = String::from_utf8_lossy(request).to_ascii_lowercase();
        let (head, _) = text.split_once("\r\n\r\n")?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
        (request.len() >= head.len() + 4 + length.parse::<usize>().ok()?).then_some(())
    };
    while complete(&request).is_none() {
        match client.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(read) => request.extend_from_slice(&buffer[..read]),
        }
    }
    if let Some((status, body)) = answer.and_then(|answer| answer.split_once('|')) {
        let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}", body.len());
        let _ = write!(client, "{head}\r\n\r\n{body}");
        return;
    }
    let Ok(mut daemon) = TcpStream::connect(to) else { return };
    let text = String::from_utf8_lossy(&request);
    let (line, rest) = text.split_once("\r\n").unwrap();
    let fields = rest.split_inclusive("\r\n").filter(|line| !line.to_ascii_lowercase().starts_with("host:"));
    let text = format!("{line}\r\nHost: {to}\r\nConnection: close\r\n{}", fields.collect::<String>());
    let mut reply = Vec::new();
    if daemon.write_all(text.as_bytes()).is_err() || daemon.read_to_end(&mut reply).is_err() {
        return;
    }
    let Some(end) = reply.windows(4).position(|it| it == b"\r\n\r\n") else { return };
    let head = String::from_utf8_lossy(&reply[..end]);
    let kept = head.lines().filter(|line| !line.to_ascii_lowercase().starts_with("content-length"));
    let head: String = kept.map(|line| format!("{line}\r\n")).collect();
    let mut passed = format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
    for chunk in reply[end + 4..].chunks(7) {
        passed.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        passed.extend([chunk, b"\r\n"].concat());
    }
    passed.extend(b"0\r\n\r\n");
    let _ = client.write_all(&passed);
}

#[test]
fn behind_a_gateway_that_answers_itself_each_item_is_handled_once() {
    let db = Database::new();
    push_numbers(&db, 100);
    let served = serve(&db, "[queues.q]\nhandler = 'pull'\nlease = '30s'\n");
    let Address::Tcp(daemon) = &served.at else { panic!("{served:?}") };
    let script = "echo $(cat) $KVQUEUE_ATTEMPT >> out";
    let worker = work(&db, &[gateway(daemon.clone())], &["--concurrency", "4", "-k", "4"], script);
    wait_until("all items are done", || length(&db) == "0" && lines(&db.file("out")).len() >= 100);
    wait_until("all are acknowledged", || {
        let counts: Value = serde_json::from_str(&run(&db, &["len", "q", "--json"]).ok()).unwrap();
        counts["running"] == 0
    });
    stopped(worker).ok();
    let handled: BTreeSet<_> = lines(&db.file("out")).into_iter().collect();
    assert_eq!((handled.len(), lines(&db.file("out")).len()), (100, 100));
}

#[test]
fn a_gateway_without_its_daemon_is_no_success_of_ack_and_extend() {
    const LEASE: &str = "00000000000000000000000000000000-1";
    let db = Database::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            pass_on(client, "", Some(r#"503 x|{"message":"no peer"}"#));
        }
    });
    for words in [
        ["ack", "q", LEASE, "--done", "000000000000000100000000"].as_slice(),
        &["extend", "q", LEASE],
        &["lease", "q"],
    ] {
        let ran: Ran = at(&db, std::slice::from_ref(&url), words).output().unwrap().into();
        let said = ran.failed(69);
        assert!(said.contains("503") && said.contains("proxy"), "{words:?}: {said}");
    }
}

#[test]
fn results_that_are_too_long_together_or_alone_do_not_end_a_worker() {
    let db = Database::new();
    push_numbers(&db, 20);
    run(&db, &["push", "q", "long"]).ok();
    let config = "http.max-body = '70KiB'\n[queues.q]\nhandler = 'pull'\nhistory = '1h'\nlease = '30s'\n";
    let served = serve(&db, config);
    let script = "n=30000; test $(cat) != long || n=80000; head -c $n /dev/zero | tr '\\0' x; echo . >> out";
    let options = ["--result", "stdout", "-k", "21", "--concurrency", "21"];
    let worker = work(&db, &[url(&served)], &options, script);
    wait_until("all items are done", || {
        let counts: Value = serde_json::from_str(&run(&db, &["len", "q", "--json"]).ok()).unwrap();
        counts["done"] == 21
    });
    let ran = stopped(worker);
    assert_eq!(ran.events("result_too_long"), 1, "{ran:?}");
    assert_eq!(lines(&db.file("out")).len(), 21, "no item is handled twice");
}
