//! The examples of docs/api/examples.md, as they stand there, but for the address.

use std::process::{Command, Stdio};

use super::LOG;
use crate::support::{Address, Database, run, serve};

const MANUAL: &str = include_str!("../../../docs/api/examples.md");

#[test]
fn examples_of_the_http_manual_work() {
    if Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("curl is not installed, so the examples are not tried");
        return;
    }
    let db = Database::new();
    let served = serve(&db, LOG);
    let Address::Tcp(address) = &served.at else { panic!("it listens on TCP") };
    let parts: Vec<_> = MANUAL.split("\n```sh\n").collect();
    // The line above a block says if it is for elsewhere.
    let is_for_here = |pair: &&[&str]| !pair[0].lines().next_back().unwrap().starts_with("<!-- not run");
    let blocks = parts.windows(2).filter(is_for_here).map(|pair| pair[1].split("\n```").next().unwrap());
    let token = run(&db, &["token", "new", "curl", "--scope", "admin"]).ok();
    let joined = blocks.map(|block| block.replace("\\\n", " ")).collect::<Vec<_>>().join("\n");
    // The others make a token and start a daemon, which are here already.
    let commands: Vec<_> = joined.lines().filter(|line| line.starts_with("curl ")).collect();
    assert!(commands.len() >= 8, "{commands:?}");
    for command in commands {
        let command =
            command.replace("127.0.0.1:7420", address).replacen("curl ", "curl -sS --fail-with-body ", 1);
        let output = Command::new("sh")
            .args(["-c", &command])
            .env("auth", format!("Authorization: Bearer {}", token.trim()))
            .output()
            .unwrap();
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{command}: {}{}", said(&output.stdout), said(&output.stderr));
    }
}
