//! Functions of the process: API version, network and error texts.

use std::ffi::{CStr, c_char, c_int, c_void};

use foundationdb_sys::{FDBNetworkOption, fdb_bool_t, fdb_error_t};

use super::chosen::{API_VERSION, CHOSEN, select_api_version};
use super::{open, option_value, real, status};
use crate::error::{Code, Result};
use crate::{network, network_options};

/// Release, source and protocol version of the client, in FoundationDB's form: the release whose
/// behaviour this library has, 40 digits in place of a source hash, and the release's protocol
/// version.
const CLIENT_VERSION: &CStr = c"7.3.79,0000000000000000000000000000000000000000,fdb00b073000000";

pub(super) fn setup() -> Result<()> {
    if CHOSEN.lock().api_version.is_none() {
        return Err(Code::API_VERSION_UNSET);
    }
    // The real library reads the environment itself, so these options are only checked here.
    network_options::check_environment(|name| std::env::var_os(name))?;
    network::setup()
}

pub(super) fn run() -> Result<()> {
    let result = network::run();
    if result.is_ok() {
        crate::link::Link::close_all();
        real::stop();
    }
    result
}

/// Selects the API version: the run-time version, and that of the header.
#[unsafe(no_mangle)]
pub extern "C" fn fdb_select_api_version_impl(runtime: c_int, header: c_int) -> fdb_error_t {
    status(select_api_version(runtime, header))
}

/// The newest API version that can be selected.
#[unsafe(no_mangle)]
pub extern "C" fn fdb_get_max_api_version() -> c_int {
    API_VERSION
}

/// Release, source and protocol of this client, separated by commas.
#[unsafe(no_mangle)]
pub extern "C" fn fdb_get_client_version() -> *const c_char {
    CLIENT_VERSION.as_ptr()
}

/// Makes the real library, once it is loaded, use the protocol of the next version.
#[unsafe(no_mangle)]
pub extern "C" fn fdb_use_future_protocol_version() {
    CHOSEN.lock().future_protocol = true;
}

/// The text of an error code: static, NUL-terminated, UTF-8.
#[unsafe(no_mangle)]
pub extern "C" fn fdb_get_error(code: fdb_error_t) -> *const c_char {
    // Code 0 means success.
    let Some(code) = Code::from_raw(code) else { return c"Success".as_ptr() };
    match real::loaded() {
        // SAFETY: any code may be asked about.
        Some(real) => unsafe { (real.get_error)(code.raw()) },
        None => code.message().as_ptr(),
    }
}

/// True if a code belongs to a class: 50000 retryable, 50001 maybe committed, 50002 retryable and
/// not committed.
#[unsafe(no_mangle)]
pub extern "C" fn fdb_error_predicate(predicate: c_int, code: fdb_error_t) -> fdb_bool_t {
    if let Some(real) = real::loaded() {
        // SAFETY: any predicate may be asked of any code.
        return unsafe { (real.error_predicate)(predicate, code) };
    }
    let Some(code) = Code::from_raw(code) else { return 0 };
    let holds = match predicate {
        50_000 => code.is_retryable(),
        50_001 => code.is_maybe_committed(),
        50_002 => code.is_retryable_not_committed(),
        _ => false,
    };
    fdb_bool_t::from(holds)
}

/// Sets a network option. Some are accepted only before the network is set up.
///
/// # Safety
/// `value` must be null or point at `value_length` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_network_set_option(
    option: FDBNetworkOption,
    value: *const u8,
    value_length: c_int,
) -> fdb_error_t {
    // SAFETY: the caller's promise.
    let value = unsafe { option_value(value, value_length) };
    status(value.and_then(|value| set_option(option, value)))
}

fn set_option(option: FDBNetworkOption, value: Option<&[u8]>) -> Result<()> {
    let code = c_int::try_from(option).map_err(|_| Code::INVALID_OPTION)?;
    let mut chosen = CHOSEN.lock();
    let earlier: Vec<_> = chosen.options.iter().map(|(code, _)| *code).collect();
    network_options::check(code, value, &earlier, network::is_setup())?;
    // A library that is loaded later gets the option with the others.
    if let Some(real) = real::loaded() {
        return real.set_network_option(code, value);
    }
    chosen.options.push((code, value.map(<[u8]>::to_vec)));
    Ok(())
}

/// Sets the network up, once.
#[unsafe(no_mangle)]
pub extern "C" fn fdb_setup_network() -> fdb_error_t {
    open::report_errors();
    status(setup())
}

/// Runs callbacks on the calling thread until the network is stopped.
#[unsafe(no_mangle)]
pub extern "C" fn fdb_run_network() -> fdb_error_t {
    status(run())
}

/// Makes `fdb_run_network` return.
#[unsafe(no_mangle)]
pub extern "C" fn fdb_stop_network() -> fdb_error_t {
    status(network::stop())
}

struct HookParameter(*mut c_void);

// SAFETY: the C API's caller hands the parameter over to be used on the network thread.
unsafe impl Send for HookParameter {}

/// Runs `hook` on the network thread when its loop has ended.
///
/// # Safety
/// `hook` must be callable with `parameter` on another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_add_network_thread_completion_hook(
    hook: Option<unsafe extern "C" fn(*mut c_void)>,
    parameter: *mut c_void,
) -> fdb_error_t {
    let Some(hook) = hook else { return Code::CLIENT_INVALID_OPERATION.raw() };
    let parameter = HookParameter(parameter);
    let run = move || {
        let parameter = parameter;
        // SAFETY: the caller's promise.
        unsafe { hook(parameter.0) }
    };
    status(network::on_completion(Box::new(run)))
}
