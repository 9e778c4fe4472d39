//! The command lines, command by command. Words are separated by blanks; `DIR` is the directory of [`FILES`], `LETTER` the id of
//! the first dead letter of queue `q`.

/// One run of the program.
pub(super) enum Step {
    /// Prepares something; it has to go well, and is not shown.
    Before(&'static str),
    /// Is shown.
    Says(&'static str),
    /// Is shown, and reads this.
    Reads(&'static str, &'static str),
    /// Is shown without its numbers, which differ from run to run.
    Measures(&'static str),
    /// A daemon that listens and runs from here on.
    Running(&'static str),
    /// A file gets another text.
    Becomes(&'static str, &'static str),
}

use Step::{Becomes, Before, Measures, Reads, Running, Says};

impl Step {
    pub(super) fn line(&self) -> &'static str {
        match self {
            Before(line) | Says(line) | Reads(line, _) | Measures(line) | Running(line) => line,
            Becomes(file, _) => file,
        }
    }

    pub(super) fn input(&self) -> &'static str {
        match self {
            Reads(_, input) | Becomes(_, input) => input,
            _ => "",
        }
    }
}

/// Configurations.
pub(super) const FILES: &[(&str, &str)] = &[
    ("good.toml", "[queues.q]\nhandler = 'log'\n"),
    ("unknown.toml", "[queues.q]\nhandler = 'lgo'\n"),
    ("broken.toml", "[queues.q\n"),
    (
        "dead.toml",
        "log.level = 'error'\n[queues.q]\nhandler = 'exec'\nhandler-config.command = ['sh', '-c', 'echo bad address >&2; exit 65']\n",
    ),
    (
        "keyed.toml",
        "log.level = 'error'\n[queues.q]\nkind = 'keyed'\nhandler = 'exec'\nhandler-config.command = ['sh', '-c', 'echo bad address >&2; exit 65']\n",
    ),
    ("pull.toml", "[queues.q]\nhandler = 'pull'\n"),
    ("working.toml", "http.listen = 'unix:http.sock'\n[queues.q]\nhandler = 'pull'\n"),
    (
        "listening.toml",
        "http.listen = 'unix:http.sock'\nshutdown-timeout = '1s'\n[queues.q]\nhandler = 'log'\n",
    ),
];

/// The daemon of `listening.toml`.
const LISTEN: Step = Running("run --config DIR/listening.toml");

/// The daemon of `working.toml`.
const WORK: Step = Running("run --config DIR/working.toml");

const DIE: Step = Before("run --config DIR/dead.toml --until-empty");

/// Each command with its runs, on a database of its own.
pub(super) const CASES: &[(&str, &[Step])] = &[
    (
        "run",
        &[
            Before("push q one two"),
            Says("run --queue q --handler stdout --until-empty"),
            Says("run"),
            Says("run --queue q"),
            Says("run --queue q --handler nothing"),
            Says("run --handler stdout"),
            Says("run --config DIR/missing.toml"),
            Says("run --config DIR/pull.toml --until-empty"),
        ],
    ),
    (
        "push",
        &[
            Says("push q one two"),
            Says("push q three --json"),
            Reads("push q --lines -", "a\nb\n"),
            Says("push q again --idempotency-key order-7"),
            Says("push q again --idempotency-key order-7"),
            Says("push q other --idempotency-key order-7"),
            Says("push q"),
            Says("push q --lines DIR/missing"),
            Says("push q x --end max"),
            Says("push q x --delay soon"),
        ],
    ),
    (
        "pop",
        &[
            Before("push q one two three"),
            Says("pop q"),
            Says("pop q --json"),
            Says("pop q -k 10"),
            Says("pop q"),
            Says("pop q -k 0"),
            Says("pop"),
        ],
    ),
    ("peek", &[Before("push q one two"), Says("peek q -k 2"), Says("peek q --json"), Says("peek empty")]),
    ("why", &[Before("push q one two"), Says("why q 000000000000000000000000"), Says("why q x")]),
    ("len", &[Before("push q one two"), Says("len q"), Says("len q --json"), Says("len --kind stack q")]),
    ("list", &[Says("list"), Before("push q one"), Before("push r one"), Says("list"), Says("list --json")]),
    (
        "delete",
        &[
            Before("push q one"),
            Says("delete q"),
            Says("delete q --item 000000000000000000000000"),
            Says("delete q --item 000000000000000000000000 --yes"),
            Says("delete q --yes"),
            Says("delete q --yes --json"),
        ],
    ),
    (
        "limits set",
        &[
            Says("limits q set tenant-* --running 4"),
            Says("limits q set tenant-vip --running 50 --weight 3 --json"),
            Says("limits q set --queue --running 100"),
            Says("limits q set host-* --rate 100/60s --burst 20"),
            Says("limits q"),
            Says("limits q --json"),
            Says("limits q set tenant-*"),
            Says("limits q set --running 4"),
            Says("limits q set account-* --ordered --on-dead block"),
            Says("limits q set account-7 --on-dead continue --json"),
            Says("limits q set a --ordered --on-dead stop"),
            Says("limits q set --queue --weight 3"),
            Says("limits q set a --weight 0"),
            Says("limits q set a --rate 100"),
            Says("limits q set a --rate 1/2m30"),
            Says("limits q set a --rate 0/1m"),
            Says("limits q set a --rate 1/366d"),
            Says("limits q set a --running 3 --burst 2"),
            Says("limits q --config DIR/good.toml"),
            Before("push plain one"),
            Says("limits plain"),
            Says("limits plain set a --running 1"),
            Says("limits"),
        ],
    ),
    (
        "limits remove",
        &[
            Before("limits q set a --running 4"),
            Before("limits q set --queue --running 4"),
            Says("limits q remove a"),
            Says("limits q remove a"),
            Says("limits q remove --queue --json"),
            Says("limits q"),
            Says("limits q remove"),
        ],
    ),
    (
        "limits held",
        &[
            Before("limits q set * --ordered --on-dead block"),
            Says("limits q held"),
            Before("push q one --key a --kind keyed"),
            Before("push q two --key b --kind keyed"),
            Before("run --config DIR/keyed.toml --until-empty"),
            Says("limits q held"),
            Says("limits q held --json"),
            Says("limits q held -n 1"),
            Says("limits q held --after 000000000000000000000000"),
            Says("limits q held -n 0"),
        ],
    ),
    (
        "limits unblock",
        &[
            Before("limits q set * --ordered --on-dead block"),
            Before("push q one --key a --kind keyed"),
            Before("push q two --key b --kind keyed"),
            Before("run --config DIR/keyed.toml --until-empty"),
            Says("limits q unblock a"),
            Says("limits q unblock a"),
            Says("limits q unblock b --json"),
            Says("limits q unblock"),
            Before("push plain one"),
            Says("limits plain unblock a"),
        ],
    ),
    (
        "dead list",
        &[
            Before("push r one"),
            Says("dead list q"),
            Before("push q one two"),
            DIE,
            Says("dead list q -n 1"),
            Says("dead list q --json"),
            Says("dead list q --after nonsense"),
        ],
    ),
    (
        "dead show",
        &[
            Before("push q one"),
            DIE,
            Says("dead show q LETTER"),
            Says("dead show q LETTER --json"),
            Says("dead show other LETTER"),
        ],
    ),
    (
        "dead retry",
        &[
            Before("push q one two"),
            DIE,
            Says("dead retry q LETTER"),
            Says("dead retry q --all"),
            Says("dead retry q --all --json"),
            Says("dead retry q 000000000000000000000000"),
            Says("dead retry q"),
        ],
    ),
    (
        "dead purge",
        &[
            Before("push q one two"),
            DIE,
            Says("dead purge q --all"),
            Says("dead purge q LETTER --yes --json"),
            Says("dead purge q --all --yes"),
        ],
    ),
    (
        "config check",
        &[
            Says("config check"),
            Says("config check --config DIR/good.toml --json"),
            Says("config check --config DIR/unknown.toml"),
            Says("config check --config DIR/broken.toml"),
        ],
    ),
    // Its text is docs/CONFIG.md.
    ("config manual", &[Before("config manual"), Before("config manual --json")]),
    ("config show", &[Says("config show --config DIR/good.toml"), Says("config show --json")]),
    (
        "backup",
        &[
            Before("push q one two"),
            Measures("backup --to DIR/copy"),
            Measures("backup --to DIR/other --json"),
            Says("backup --to DIR/copy"),
            Measures("backup --to DIR/missing/copy"),
            Says("backup"),
        ],
    ),
    (
        "export",
        &[
            Before("push q one two"),
            DIE,
            Before("push q three"),
            Says("export q"),
            Says("export q --output DIR/q.ndjson"),
            Says("export q --output DIR/q.ndjson --state dead --json"),
            Says("export q --output DIR/missing/q.ndjson"),
            Says("export q --state lost"),
            Says("export empty"),
            Says("export"),
        ],
    ),
    (
        "import",
        &[
            Before("push q one two"),
            Before("export q --output DIR/q.ndjson"),
            Says("import r --input DIR/q.ndjson"),
            Says("import r --input DIR/q.ndjson"),
            Says("import r --input DIR/q.ndjson --again --json"),
            Says("import r --input DIR/missing"),
            Says("import r --input DIR/good.toml"),
            Reads("import r", ""),
            Reads("import r", "{\"kvqueue\":\"export\"}\n"),
            Says("import"),
        ],
    ),
    (
        "migrate",
        &[
            Before("push q one two"),
            Measures("migrate --to embedded:DIR/new --verify-only"),
            Measures("migrate --to embedded:DIR/new"),
            Measures("migrate --to embedded:DIR/new"),
            Measures("migrate --to embedded:DIR/new --verify-only"),
            Measures("migrate --to embedded:DIR/other --json"),
            Says("migrate --to embedded:DIR/data"),
            Says("migrate --to embedded:DIR/new --kind fifo"),
            Says("migrate"),
        ],
    ),
    (
        "move",
        &[
            Before("push q one two three"),
            Says("move q r -n 1"),
            Says("move q r --all --json"),
            Says("move q r --all"),
            Says("move q r --all --dead"),
            Says("move q q --all"),
            Says("move r q --all"),
            Says("move q r"),
            Says("move q r -n 0"),
            Says("move q"),
        ],
    ),
    (
        "pause",
        &[
            Before("push q one"),
            Says("pause q"),
            Says("pause q --reason bills --json"),
            Says("list"),
            Says("pause q --local"),
            Says("pause q --at 127.0.0.1:1"),
            Says("pause q --local --at 127.0.0.1:1"),
            LISTEN,
            Says("pause q --local --at unix:http.sock"),
            Says("pause q --local --at unix:http.sock --json"),
            Says("pause r --local --at unix:http.sock"),
            Says("pause"),
        ],
    ),
    (
        "recount",
        &[
            Before("push q one two"),
            Says("recount q"),
            Says("recount q --json"),
            Says("recount q --dry-run"),
            Says("recount nosuch"),
            Says("recount"),
        ],
    ),
    (
        "token new",
        &[
            Says("token new shop --scope push --queue orders-*"),
            Says("token new shop --scope read"),
            Says("token new board --scope read,work --expires 90d --json"),
            Says("token new bad/name --scope read"),
            Says("token new late --scope read --expires 0s"),
            Says("token new late --scope read --expires soon"),
            Says("token new all --scope root"),
        ],
    ),
    (
        "token list",
        &[
            Says("token list"),
            Before("token new shop --scope push --queue orders-* --queue mail"),
            Before("token new board --scope read,work"),
            Says("token list"),
            Says("token list --json"),
        ],
    ),
    (
        "token revoke",
        &[
            Before("token new shop --scope push"),
            Says("token revoke shop"),
            Says("token revoke shop"),
            Before("token new shop --scope push"),
            Says("token revoke shop --json"),
        ],
    ),
    (
        "history",
        &[
            Before("push q one two"),
            Says("history q"),
            Says("history q --json"),
            Says("history none"),
            Says("history q --outcome finished"),
            Says("history q --since yesterday"),
            Says("history q --attribute customer"),
            Says("history q --before 7"),
        ],
    ),
    (
        "audit",
        &[
            Before("push q one"),
            Says("audit"),
            Before("pause q --reason bills"),
            Before("move q r --all"),
            Before("token new shop --scope push --queue orders-*"),
            Before("resume q --json"),
            Says("audit"),
            Says("audit -n 2"),
            Says("audit --queue r --since 2h"),
            Says("audit --queue r --json"),
            Says("audit --since yesterday"),
        ],
    ),
    (
        "reload",
        &[
            Says("reload"),
            Says("reload --at 127.0.0.1:1"),
            Says("reload --at unix:http.sock"),
            Says("reload --at nowhere"),
            LISTEN,
            Says("reload --at unix:http.sock"),
            Becomes(
                "listening.toml",
                "http.listen = 'unix:http.sock'\nshutdown-timeout = '2s'\n[queues.r]\nhandler = 'log'\n",
            ),
            Says("reload --at unix:http.sock --json"),
            Becomes("listening.toml", "http.listen = 'unix:http.sock'\n[queues.r]\nhandler = 'lgo'\n"),
            Says("reload --at unix:http.sock"),
            Becomes("listening.toml", "http.listen = 'unix:other.sock'\n[queues.r]\nhandler = 'log'\n"),
            Says("reload --at unix:http.sock"),
        ],
    ),
    (
        "work",
        &[
            Says("work q"),
            Says("work q -- ./nothing"),
            Says("work q --dead-exit-codes 0 -- true"),
            Says("work q --concurrency 0 -- true"),
            Says("work q --url queues.example -- true"),
            Says("work q -- true"),
            Says("work q --url unix:http.sock --timeout 200ms -- true"),
        ],
    ),
    (
        "lease",
        &[
            Before("push q one two three"),
            Says("lease q"),
            Says("lease q --url unix:http.sock"),
            WORK,
            Says("lease q --max 2 --url unix:http.sock"),
            Says("lease q --json --url unix:http.sock"),
            Says("lease q --url unix:http.sock"),
            Says("lease q --json --url unix:http.sock"),
            Says("lease q --max 1001 --url unix:http.sock"),
            Says("lease q --wait 2m --url unix:http.sock"),
            Says("lease q --lease soon"),
            Says("lease"),
        ],
    ),
    (
        "extend",
        &[
            WORK,
            Says("extend q nonsense"),
            Says("extend q 00000000000000000000000000000000-1 --url unix:http.sock"),
            Says("extend q"),
        ],
    ),
    (
        "ack",
        &[
            WORK,
            Says("ack q nonsense --release-rest"),
            Says("ack q 00000000000000000000000000000000-1 --release-rest --url unix:http.sock"),
            Says("ack q 00000000000000000000000000000000-1"),
            Says("ack q 00000000000000000000000000000000-1 --done nonsense"),
            Says("ack q 00000000000000000000000000000000-1 --done 000000000000000000000000 --after 5s"),
            Says("ack q 00000000000000000000000000000000-1 --done 000000000000000000000000 --reason no"),
        ],
    ),
    (
        "requeue",
        &[
            Before("push q one two"),
            DIE,
            Before("push q three --delay 1h"),
            Says("requeue q LETTER"),
            Says("requeue q --dead"),
            Says("requeue q --waiting --json"),
            Says("requeue q --expired"),
            Says("requeue q 000000000000000000000000"),
            Says("requeue q 000000000000000000000000 --json"),
            Says("requeue q nonsense"),
            Says("requeue q"),
        ],
    ),
    (
        "resume",
        &[
            Before("pause q"),
            Says("resume q"),
            Says("resume q"),
            Before("pause q"),
            Says("resume q --json"),
            Says("resume q --local"),
            LISTEN,
            Says("resume q --local --at unix:http.sock"),
            Says("resume r --local --at unix:http.sock"),
            Says("resume"),
        ],
    ),
    (
        "status",
        &[
            Before("push other one two"),
            Measures("status"),
            Measures("status --json"),
            Says("status --at 127.0.0.1:1"),
            Before("pause q --reason bills"),
            LISTEN,
            Measures("status --at unix:http.sock"),
            Measures("status --at unix:http.sock --json"),
        ],
    ),
    (
        "top",
        &[
            Says("top"),
            Says("top --at 127.0.0.1:1"),
            Before("pause q --reason bills"),
            LISTEN,
            Measures("top --at unix:http.sock"),
        ],
    ),
    (
        "page",
        &[
            Says("page"),
            Says("page --at 127.0.0.1:1"),
            LISTEN,
            Says("page --at unix:http.sock"),
            Says("page --at unix:http.sock --json"),
        ],
    ),
    (
        "doctor",
        &[
            Before("push q one"),
            Measures("doctor --unit kvqueue-of-a-test"),
            Measures("doctor --unit kvqueue-of-a-test --json"),
            Measures("doctor --unit kvqueue-of-a-test --config DIR/unknown.toml"),
        ],
    ),
    ("demo", &[Measures("demo -q"), Measures("demo -q --json")]),
    ("bench", &[Says("bench nothing")]),
    ("bench push", &[Says("bench push --limit never")]),
    ("bench burn", &[Says("bench burn -k 0")]),
    ("bench sustained", &[Says("bench sustained --rate none")]),
    ("bench flood", &[Says("bench flood --limit never")]),
    ("bench pickup", &[Says("bench pickup --limit never")]),
    ("bench pull", &[Says("bench pull --limit never")]),
    ("bench idle", &[Says("bench idle --limit never")]),
    ("completions", &[Says("completions"), Says("completions csh")]),
    ("man", &[Says("man"), Says("man --out DIR/good.toml/man")]),
];
