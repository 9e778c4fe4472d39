//! Special keys: keys that start with 0xFF 0xFF.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::{Helper, code, commit, open, scratch};
use foundationdb::options::{ConflictRangeType, MutationType, StreamingMode, TransactionOption};
use foundationdb::{FdbError, KeySelector, RangeOption, Transaction};
use futures::FutureExt;
use futures::executor::block_on;

const CONFLICTING: &str = "transaction/conflicting_keys/";
const READS: &str = "transaction/read_conflict_range/";
const WRITES: &str = "transaction/write_conflict_range/";
/// How long a new cluster may take until its data are where they belong.
const NEW_CLUSTER: Duration = Duration::from_secs(60);

fn key(name: &str) -> Vec<u8> {
    [b"\xff\xff/", name.as_bytes()].concat()
}

async fn get(tr: &Transaction, name: &str) -> Result<Option<Vec<u8>>, i32> {
    tr.get(&key(name), false)
        .await
        .map(|value| value.map(|value| value.to_vec()))
        .map_err(|error| error.code())
}

async fn rows(tr: &Transaction, range: &RangeOption<'_>) -> Result<Vec<(Vec<u8>, Vec<u8>)>, FdbError> {
    let rows = tr.get_range(range, 1, false).await?;
    Ok(rows.iter().map(|row| (row.key().to_vec(), row.value().to_vec())).collect())
}

fn all(begin: &str, end: &str) -> RangeOption<'static> {
    RangeOption { mode: StreamingMode::WantAll, ..RangeOption::from((key(begin), key(end))) }
}

/// The rows below a name, without it, as text.
async fn below(tr: &Transaction, name: &str) -> Vec<(String, String)> {
    let range = all(name, &format!("{}0", name.trim_end_matches('/')));
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let rows = rows(tr, &range).await.unwrap();
    rows.iter().map(|(k, v)| (text(&k[name.len() + 3..]), text(v))).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn a_special_key_read_stays_in_one_module_by_default() {
    let scratch = scratch();
    let tr = scratch.db.create_trx().unwrap();
    for (begin, end, expected) in [
        ("metrics/", "metrics0", Ok(())),
        ("metrics/x", "metrics/y", Ok(())),
        ("metrics/", "metrics0\0", Err(2112)),
        ("metrics", "metrics/\0", Err(2112)),
        ("status/json", "status/json\0", Ok(())),
        ("status/json", "status/json0", Err(2112)),
        ("nothing", "nothing0", Err(2113)),
        ("nothing0", "nothing", Ok(())),
        ("actor_lineage/", "actor_lineage0", Err(2117)),
    ] {
        assert_eq!(code(rows(&tr, &all(begin, end)).await), expected, "{begin} to {end}");
    }
    assert_eq!(get(&tr, "nothing").await, Err(2113));
    assert_eq!(code(tr.get(b"\xff\xff", false).await), Ok(()));
    assert_eq!(code(tr.get(b"\xff\xff\x01", false).await), Err(2113));
    assert_eq!(code(tr.get(b"\xff\xff\xff", false).await), Err(2004));
    let out = RangeOption::from((&b"a"[..], &b"\xff\xff/metrics/"[..]));
    assert_eq!(code(rows(&tr, &out).await), Err(2004));
    let exact = RangeOption { mode: StreamingMode::Exact, ..all("metrics/", "metrics0") };
    assert_eq!(code(rows(&tr, &exact).await), Err(2210));

    tr.set_option(TransactionOption::SpecialKeySpaceRelaxed).unwrap();
    let names = rows(&tr, &all("cluster_file_path", "configuration/coordinators0")).await.unwrap();
    let names: Vec<_> = names.iter().map(|(k, _)| String::from_utf8(k[3..].to_vec()).unwrap()).collect();
    let coordinators = "configuration/coordinators/";
    assert_eq!(
        names,
        [
            "cluster_file_path",
            "cluster_id",
            &format!("{coordinators}cluster_description"),
            &format!("{coordinators}processes")
        ]
    );
    assert_eq!(get(&tr, "nothing").await, Ok(None));
}

#[tokio::test]
async fn selectors_and_limits_work_among_special_keys() {
    let scratch = scratch();
    let tr = scratch.db.create_trx().unwrap();
    for name in ["b", "d", "f"] {
        tr.add_conflict_range(name.as_bytes(), format!("{name}0").as_bytes(), ConflictRangeType::Read)
            .unwrap();
    }
    let at = |name: &str, or_equal, offset| {
        KeySelector::new(key(&format!("{READS}{name}")).into(), or_equal, offset)
    };
    let names = async |begin, end, limit, reverse| {
        let range = RangeOption {
            begin,
            end,
            limit,
            reverse,
            mode: StreamingMode::WantAll,
            ..RangeOption::default()
        };
        let found = tr.get_range(&range, 1, false).await.map_err(|error| error.code())?;
        let skip = READS.len() + 3;
        let names = found.iter().map(|row| String::from_utf8(row.key()[skip..].to_vec()).unwrap());
        Ok::<_, i32>((names.collect::<Vec<_>>().join(" "), found.more()))
    };
    let found = |names: &str, more| Ok((names.to_owned(), more));
    assert_eq!(
        names(at("b", false, 1), at("g", false, 1), None, false).await,
        found("b b0 d d0 f f0", false)
    );
    assert_eq!(names(at("b", true, 1), at("g", false, 0), None, false).await, found("b0 d d0 f", false));
    assert_eq!(names(at("d", false, 2), at("d", false, 4), None, false).await, found("d0 f", false));
    assert_eq!(names(at("d", false, 0), at("d", true, 1), None, false).await, found("b0 d", false));
    assert_eq!(
        names(at("d", false, -9), at("d", false, 9), None, true).await,
        found("f0 f d0 d b0 b", false)
    );
    assert_eq!(names(at("b", false, 1), at("g", false, 1), Some(2), false).await, found("b b0", true));
    assert_eq!(
        names(at("b", false, 1), at("g", false, 1), Some(6), true).await,
        found("f0 f d0 d b0 b", true)
    );
    assert_eq!(names(at("d", false, 2), at("d", false, 2), None, false).await, found("", false));
}

#[tokio::test]
async fn read_conflict_ranges_are_shown_without_overwritten_keys() {
    let scratch = scratch();
    let tr = scratch.db.create_trx().unwrap();
    assert_eq!(below(&tr, READS).await, []);
    tr.clear_range(b"c", b"d");
    tr.atomic_op(b"bb", b"1", MutationType::Add);
    tr.get(b"k", false).await.unwrap();
    tr.get(b"snapshot", true).await.unwrap();
    let range = RangeOption::from((&b"b"[..], &b"e"[..]));
    // In other modes FoundationDB may return a part, and conflict on that.
    rows(&tr, &RangeOption { mode: StreamingMode::Exact, limit: Some(9), ..range }).await.unwrap();
    let expected = [("b", "1"), ("c", "0"), ("d", "1"), ("e", "0"), ("k", "1"), ("k\\x00", "0")];
    assert_eq!(below(&tr, READS).await, pairs(&expected));
    tr.add_conflict_range(b"", b"\x01", ConflictRangeType::Read).unwrap();
    assert_eq!(below(&tr, READS).await[..2], pairs(&[("", "1"), ("\\x01", "0")]));
    let under_way = tr.get(b"q", false);
    assert_eq!(below(&tr, READS).await.last().unwrap(), &("q\\x00".to_owned(), "0".to_owned()));
    under_way.await.unwrap();
    assert_eq!(get(&tr, &format!("{READS}c")).await, Ok(Some(b"0".to_vec())));
    assert_eq!(get(&tr, &format!("{READS}cc")).await, Ok(None));

    let tr = scratch.db.create_trx().unwrap();
    tr.set_option(TransactionOption::ReadYourWritesDisable).unwrap();
    tr.set(b"k", b"");
    tr.get(b"k", false).await.unwrap();
    assert_eq!(below(&tr, READS).await, pairs(&[("k", "1"), ("k\\x00", "0")]));
}

#[tokio::test]
async fn write_conflict_ranges_are_shown() {
    let scratch = scratch();
    let tr = scratch.db.create_trx().unwrap();
    assert_eq!(below(&tr, WRITES).await, []);
    tr.set(b"k", b"");
    tr.clear_range(b"a", b"b");
    tr.add_conflict_range(b"b", b"c", ConflictRangeType::Write).unwrap();
    tr.set_option(TransactionOption::NextWriteNoWriteConflictRange).unwrap();
    tr.set(b"unseen", b"");
    assert_eq!(below(&tr, WRITES).await, pairs(&[("a", "1"), ("c", "0"), ("k", "1"), ("k\\x00", "0")]));

    let tr = scratch.db.create_trx().unwrap();
    tr.atomic_op(b"s0123456789\x01\0\0\0", b"", MutationType::SetVersionstampedKey);
    let zeros = format!("s{}", "\\x00".repeat(10));
    let last = format!("s{}\\x00", "\\xff".repeat(10));
    assert_eq!(below(&tr, WRITES).await, pairs(&[(&zeros, "1"), (&last, "0")]));
}

#[tokio::test]
async fn a_conflict_names_every_range_that_was_hit() {
    let scratch = scratch();
    for is_reported in [true, false] {
        let tr = scratch.db.create_trx().unwrap();
        if is_reported {
            tr.set_option(TransactionOption::ReportConflictingKeys).unwrap();
        }
        for name in ["a", "b", "f", "k"] {
            rows(&tr, &RangeOption::from((name.as_bytes(), format!("{name}~").as_bytes()))).await.unwrap();
        }
        tr.get(b"n", false).await.unwrap();
        tr.set(b"mine", b"");
        let other = scratch.db.create_trx().unwrap();
        for name in ["a1", "b1", "b2", "g", "n"] {
            other.set(name.as_bytes(), b"");
        }
        commit(other).await.unwrap();
        assert_eq!(below(&tr, CONFLICTING).await, []);
        let failed = tr.commit().await.unwrap_err();
        assert_eq!(failed.code(), 1020);
        let conflicting = failed.conflicting_keys().await.unwrap();
        let named = conflicting.iter().map(|range| (range.begin(), range.end()));
        let hit: [(&[u8], &[u8]); 3] = [(b"a", b"a~"), (b"b", b"b~"), (b"n", b"n\0")];
        assert_eq!(named.collect::<Vec<_>>(), if is_reported { &hit[..] } else { &[] });
        let again = failed.on_error().await.unwrap();
        assert_eq!(below(&again, CONFLICTING).await.len(), if is_reported { 6 } else { 0 });
        again.set(b"mine", b"");
        commit(again).await.unwrap();
    }
}

#[tokio::test]
async fn special_key_writes_need_a_writable_module_and_the_option() {
    let scratch = scratch();
    let outcome = async |enabled: bool, write: fn(&Transaction)| {
        let tr = scratch.db.create_trx().unwrap();
        if enabled {
            tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
        }
        write(&tr);
        (code(tr.get(b"a", false).await), commit(tr).await)
    };
    let both = |code| (Err(code), Err(code));
    let fine = (Ok(()), Ok(()));
    assert_eq!(outcome(false, |tr| tr.set(&key("tracing/token"), b"true")).await, both(2114));
    assert_eq!(outcome(false, |tr| tr.clear(&key("tracing/token"))).await, both(2114));
    assert_eq!(outcome(false, |tr| tr.clear_range(&key("a"), &key("b"))).await, both(2114));
    assert_eq!(outcome(true, |tr| tr.set(&key("status/json"), b"")).await, both(2115));
    assert_eq!(outcome(true, |tr| tr.set(&key("nothing"), b"")).await, both(2115));
    assert_eq!(outcome(true, |tr| tr.clear(&key("metrics/"))).await, both(2115));
    assert_eq!(outcome(true, |tr| tr.clear_range(&key("a"), &key("b"))).await, both(2115));
    assert_eq!(
        outcome(true, |tr| tr.clear_range(&key("management/excluded/"), &key("management/failed0"))).await,
        both(2116)
    );
    assert_eq!(outcome(true, |tr| tr.clear_range(&key("tracing/"), &key("tracing0"))).await, both(2117));
    assert_eq!(outcome(true, |tr| tr.clear_range(&key("b"), &key("a"))).await, both(2005));
    assert_eq!(outcome(true, |tr| tr.clear_range(&key("b"), &key("b"))).await, fine);
    assert_eq!(
        outcome(true, |tr| tr.atomic_op(&key("tracing/token"), b"", MutationType::Add)).await,
        both(2004)
    );
    assert_eq!(outcome(true, |tr| tr.clear(&key("management/options/failed/force"))).await, fine);
    assert_eq!(outcome(true, |tr| tr.set(&key("tracing/token"), b"false")).await, fine);
    assert_eq!(outcome(true, |tr| tr.set(&key("tracing/token"), b"perhaps")).await, both(2117));
}

#[tokio::test]
async fn a_failed_special_operation_sets_its_error_message() {
    let scratch = scratch();
    let tr = scratch.db.create_trx().unwrap();
    tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
    assert_eq!(get(&tr, "error_message").await, Ok(None));
    tr.set(&key("management/options/excluded/force"), b"");
    tr.set(&key("management/options/excluded/farce"), b"");
    // Only the keys: a cluster's client hands out null pointers for these empty values.
    let options = tr.get_range(&all("management/options/", "management/options0"), 1, false).await.unwrap();
    assert_eq!(
        options.iter().map(|row| row.key()).collect::<Vec<_>>(),
        [key("management/options/excluded/force")]
    );
    tr.set(&key("management/excluded/nowhere"), b"");
    assert_eq!(commit(tr).await, Err(2117));

    let tr = scratch.db.create_trx().unwrap();
    tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
    tr.set(b"a", b"");
    tr.set(&key("tracing/token"), b"true");
    let message = get(&tr, "error_message").await.unwrap().unwrap();
    let message: serde_json::Value = serde_json::from_slice(&message).unwrap();
    assert_eq!(message["retriable"], false);
    assert!(message["command"].is_string() && message["message"].is_string());
    assert_eq!(commit(tr).await, Err(2117), "tracing is to be set first");
}

#[tokio::test]
async fn futures_of_a_commit_outlive_a_failed_special_operation() {
    let scratch = scratch();
    let tr = scratch.db.create_trx().unwrap();
    tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
    tr.get_read_version().await.unwrap();
    let (stamp, watch) = (tr.get_versionstamp(), tr.watch(b"w"));
    tr.set(b"a", b"");
    tr.set(&key("tracing/token"), b"true");
    let refused = tr.commit().await.unwrap_err();
    assert_eq!(refused.code(), 2117);
    assert!(stamp.now_or_never().is_none() && watch.now_or_never().is_none());
}

#[tokio::test]
async fn tracing_ids_are_shown_and_set() {
    let scratch = scratch();
    let tr = scratch.db.create_trx().unwrap();
    let ids = below(&tr, "tracing/").await;
    assert_eq!(ids.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>(), ["token", "transaction_id"]);
    assert!(ids[0].1.parse::<u64>().is_ok() && ids[1].1.len() == 32);
    tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
    let id = "0123456789abcdef0123456789abcdef";
    tr.set(&key("tracing/transaction_id"), id.as_bytes());
    tr.set(&key("tracing/token"), b"false");
    assert_eq!(below(&tr, "tracing/").await, pairs(&[("token", "0"), ("transaction_id", id)]));
    tr.set(b"a", b"");
    assert_eq!(commit(tr).await, Ok(()));
}

#[tokio::test]
async fn special_keys_describe_the_database() {
    let scratch = scratch();
    let tr = scratch.db.create_trx().unwrap();
    let text = async |name| String::from_utf8(get(&tr, name).await.unwrap().unwrap()).unwrap();
    let connection = text("connection_string").await;
    assert!(connection.contains(':') && connection.contains('@'), "{connection}");
    let id = text("cluster_id").await;
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    let look = async || serde_json::from_str::<serde_json::Value>(&text("status/json").await).unwrap();
    let healthy = |status: &serde_json::Value| status["cluster"]["data"]["state"]["healthy"] == true;
    let (mut status, deadline) = (look().await, Instant::now() + NEW_CLUSTER);
    while !healthy(&status) && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(200)).await;
        status = look().await;
    }
    assert_eq!(status["client"]["database_status"]["available"], true);
    assert_eq!(status["client"]["coordinators"]["quorum_reachable"], true);
    assert_eq!(status["cluster"]["database_available"], true);
    assert!(healthy(&status), "{status}");
    assert_eq!(status["cluster"]["recovery_state"]["name"], "fully_recovered");
    let processes = status["cluster"]["processes"].as_object().unwrap().len();
    let Some(url) = scratch.place.embedded_url() else { return assert!(processes > 0) };
    assert_eq!(processes, 1);
    assert_eq!(text("cluster_file_path").await, url);
    assert_eq!(status["cluster"]["embedded"]["host_pid"], std::process::id());
    assert!(status["cluster"]["data"]["total_disk_used_bytes"].as_i64().unwrap() > 0);
}

#[test]
fn a_database_keeps_its_directory_after_a_change_of_working_directory() {
    let dir = tempfile::tempdir().unwrap();
    let mut mover = Helper::spawn("goes_elsewhere", dir.path());
    mover.lines.by_ref().for_each(drop);
    assert!(mover.child.wait().unwrap().success());
}

pub fn helper_goes_elsewhere(directory: &Path) {
    std::env::set_current_dir(directory.parent().unwrap()).unwrap();
    let db = open(Path::new(directory.file_name().unwrap()));
    let told = || {
        let tr = db.create_trx().unwrap();
        let get = |name| block_on(get(&tr, name)).unwrap().unwrap();
        let status: serde_json::Value = serde_json::from_slice(&get("status/json")).unwrap();
        assert!(status["cluster"]["data"]["total_disk_used_bytes"].as_i64().unwrap() > 0);
        (get("cluster_id"), status["cluster"]["embedded"].clone())
    };
    let here = told();
    assert_eq!(here.1["host_pid"], std::process::id());
    assert_eq!(Path::new(here.1["directory"].as_str().unwrap()), directory.canonicalize().unwrap());
    std::env::set_current_dir("/").unwrap();
    assert_eq!(told(), here);
}

const MIN_COMMIT_VERSION: &str = "management/min_required_commit_version";

/// What advances versions, ready to commit.
async fn advance(db: &foundationdb::Database, version: &str) -> Transaction {
    let tr = db.create_trx().unwrap();
    tr.set_option(TransactionOption::SpecialKeySpaceEnableWrites).unwrap();
    tr.get_read_version().await.unwrap();
    tr.set(&key(MIN_COMMIT_VERSION), version.as_bytes());
    tr
}

async fn read_version(db: &foundationdb::Database) -> i64 {
    db.run(|tr, _| async move { Ok(tr.get_read_version().await?) }).await.unwrap()
}

/// Makes versions go on from `version`, as `fdbcli` does: on a cluster the answer may be lost in the recovery.
async fn advance_to(db: &foundationdb::Database, version: i64) {
    while read_version(db).await <= version {
        let tr = advance(db, &version.to_string()).await;
        if let Err(error) = tr.commit().await {
            error.on_error().await.unwrap();
        }
    }
}

#[tokio::test]
async fn versions_can_be_advanced_and_never_go_back() {
    let scratch = scratch();
    let db = &scratch.db;
    let before = db.create_trx().unwrap();
    before.get(b"k", false).await.unwrap();
    before.set(b"k", b"before");
    let from = read_version(db).await;
    let to = from + 1_000_000_000_000;
    advance_to(db, to).await;
    assert!(read_version(db).await > to);
    assert_eq!(commit(before).await, Err(1007), "as after a recovery");
    let tr = db.create_trx().unwrap();
    tr.set(b"k", b"after");
    let version = tr.commit().await.unwrap().committed_version().unwrap();
    assert!(version > to && version < to + 600_000_000, "{version} follows {to}");
    // Neither does what is lower take effect, nor what is no version.
    for wrong in [&from.to_string(), "soon", "", &i64::MAX.to_string()] {
        let code = loop {
            let tr = advance(db, wrong).await;
            assert_eq!(get(&tr, MIN_COMMIT_VERSION).await, Ok(Some(wrong.into())));
            match tr.commit().await {
                // A cluster may still be recovering.
                Err(error) if error.is_retryable() => drop(error.on_error().await.unwrap()),
                outcome => break outcome.map(drop).map_err(|error| error.code()),
            }
        };
        assert_eq!(code, Err(2117), "{wrong:?}");
    }
    assert!(read_version(db).await < to + 600_000_000);
    // Taken back, it is nothing.
    let tr = advance(db, &(to * 2).to_string()).await;
    tr.clear(&key(MIN_COMMIT_VERSION));
    tr.commit().await.unwrap();
    assert!(read_version(db).await < to + 600_000_000);
}

#[test]
fn advanced_versions_stay_in_the_next_process_and_for_guests() {
    let directory = tempfile::tempdir().unwrap();
    let host = Helper::start("hosts", directory.path());
    let db = open(directory.path());
    let to = block_on(read_version(&db)) + 1_000_000_000_000;
    block_on(advance_to(&db, to));
    let seen = block_on(read_version(&db));
    assert!(seen > to, "of the host's engine");
    // The host ends in a kill, this process takes over, and then another one opens the directory.
    let mut host = host;
    host.kill();
    let taken_over = block_on(read_version(&db));
    assert!(taken_over > seen, "{taken_over} > {seen}");
    drop(db);
    let db = open(directory.path());
    assert!(block_on(read_version(&db)) > taken_over);
}

#[test]
fn versions_do_not_run_ahead_with_every_opening() {
    let directory = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let version = || {
        let db = open(directory.path());
        let tr = db.create_trx().unwrap();
        tr.set(b"k", b"v");
        block_on(tr.commit()).unwrap();
        block_on(read_version(&db))
    };
    let first = version();
    (0..4).for_each(|_| assert!(version() > first));
    let last = version();
    let passed = i64::try_from(began.elapsed().as_micros()).unwrap();
    assert!(last > first && last - first < passed + 1_000_000, "{last} follows {first} after {passed} us");
}
