//! The examples of docs/API.md, as they stand there, but for the address.

use std::process::{Command, Stdio};

use super::LOG;
use crate::support::{Address, Database, serve};

const MANUAL: &str = include_str!("../../../docs/API.md");

#[test]
fn the_examples_work() {
    if Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("curl is not installed, so the examples are not tried");
        return;
    }
    let db = Database::new();
    let served = serve(&db, LOG);
    let Address::Tcp(address) = &served.at else { panic!("it listens on TCP") };
    let blocks = MANUAL.split("\n```sh\n").skip(1).map(|rest| rest.split("\n```").next().unwrap());
    let joined = blocks.map(|block| block.replace("\\\n", " ")).collect::<Vec<_>>().join("\n");
    let commands: Vec<_> = joined.lines().collect();
    assert!(commands.len() >= 8, "{commands:?}");
    for command in commands {
        let command =
            command.replace("127.0.0.1:7420", address).replacen("curl ", "curl -sS --fail-with-body ", 1);
        let output = Command::new("sh").args(["-c", &command]).output().unwrap();
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{command}: {}{}", said(&output.stdout), said(&output.stderr));
    }
}
