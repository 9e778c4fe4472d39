//! `kvqueue bench` without a cell: some of all, each in a process of its own, and a table.

use crate::{cli::globals::Globals, config::Config, exit::Exit};

use super::options::Common;

pub(super) fn run(_globals: &Globals, _common: &Common, _config: &Config) -> anyhow::Result<Exit> {
    anyhow::bail!("name a CELL; see kvqueue bench --help")
}
