//! What the program has chosen before it uses a database: its API version, and options of the network.

use std::ffi::c_int;

use baton::Mutex;

use super::OLDEST_API_VERSION;
use super::real::Settings;
use crate::error::{Code, Result};

/// The API version that this library implements.
pub(super) const API_VERSION: c_int = 730;

/// What the program has chosen.
pub(super) struct Chosen {
    pub(super) api_version: Option<(c_int, c_int)>,
    pub(super) options: Vec<(c_int, Option<Vec<u8>>)>,
    pub(super) future_protocol: bool,
}

pub(super) static CHOSEN: Mutex<Chosen> =
    Mutex::new(Chosen { api_version: None, options: Vec::new(), future_protocol: false });

/// The settings to repeat for the real library when it is loaded.
pub(super) fn settings() -> Result<Settings> {
    let chosen = CHOSEN.lock();
    let api_version = chosen.api_version.ok_or(Code::API_VERSION_UNSET)?;
    let network_options = chosen.options.clone();
    Ok(Settings { api_version, network_options, future_protocol: chosen.future_protocol })
}

/// The API version of the header with which the program was compiled, after it was selected.
pub(super) fn header_version() -> Option<c_int> {
    CHOSEN.lock().api_version.map(|(_, header)| header)
}

/// Selects the API version: the run-time version, and that of the header.
pub(super) fn select_api_version(runtime: c_int, header: c_int) -> Result<()> {
    let mut chosen = CHOSEN.lock();
    if chosen.api_version.is_some() {
        return Err(Code::API_VERSION_ALREADY_SET);
    }
    if runtime > header {
        return Err(Code::API_VERSION_INVALID);
    }
    if header > API_VERSION || runtime < OLDEST_API_VERSION {
        return Err(Code::API_VERSION_NOT_SUPPORTED);
    }
    chosen.api_version = Some((runtime, header));
    Ok(())
}
