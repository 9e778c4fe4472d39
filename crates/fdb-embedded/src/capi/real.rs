//! The real `libfdb_c.so`: loaded when it is first needed, with its own network thread.

use baton::thread::JoinHandle;
use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

use baton::Mutex;
use foundationdb_sys::{FDBDatabase, fdb_bool_t, fdb_error_t};
use libloading::os::unix::Library;

use super::database::RealDatabases;
use super::future::RealFutures;
use super::granule::{
    RealDatabaseGranules, RealGranuleFutures, RealParsers, RealTenantGranules, RealTransactionGranules,
};
use super::missing::found;
use super::result::RealResults;
use super::shared_object::{LoadError, SharedObject};
use super::tenant::{RealTenantOpening, RealTenants};
use super::transaction::RealTransactions;
use crate::error::Code;

type SelectApiVersion = unsafe extern "C" fn(c_int, c_int) -> fdb_error_t;
type SetOption = unsafe extern "C" fn(c_int, *const u8, c_int) -> fdb_error_t;
type NetworkCall = unsafe extern "C" fn() -> fdb_error_t;
type GetError = unsafe extern "C" fn(fdb_error_t) -> *const c_char;
type GetClientVersion = unsafe extern "C" fn() -> *const c_char;
type ErrorPredicate = unsafe extern "C" fn(c_int, fdb_error_t) -> fdb_bool_t;
type UseFutureProtocol = unsafe extern "C" fn();
type CreateDatabase = unsafe extern "C" fn(*const c_char, *mut *mut FDBDatabase) -> fdb_error_t;

/// The real library with its network running.
pub(super) struct Real {
    pub(super) get_error: GetError,
    get_client_version: GetClientVersion,
    pub(super) error_predicate: ErrorPredicate,
    pub(super) create_database: CreateDatabase,
    pub(super) create_database_from_connection_string: CreateDatabase,
    set_option: SetOption,
    stop_network: NetworkCall,
    network: Mutex<Option<JoinHandle<()>>>,
    /// Keeps the functions above valid.
    _library: Library,
}

static REAL: OnceLock<Real> = OnceLock::new();
/// The error of the library's first start. Even if unloaded, it would report a second start as the
/// error.
static FAILED: OnceLock<String> = OnceLock::new();
static LOADING: Mutex<()> = Mutex::new(());

/// Settings that were made before the real library was needed.
pub(super) struct Settings {
    /// API version: run-time version, header version.
    pub(super) api_version: (c_int, c_int),
    /// Network options in the order of the calls.
    pub(super) network_options: Vec<(c_int, Option<Vec<u8>>)>,
    /// The program asked for the protocol of the next version.
    pub(super) future_protocol: bool,
}

/// Loads and starts the library, unless it is running.
pub(super) fn load(settings: &Settings) -> Result<&'static Real, LoadError> {
    let _one_at_a_time = LOADING.lock();
    if let Some(real) = REAL.get() {
        return Ok(real);
    }
    if let Some(first) = FAILED.get() {
        return Err(LoadError::Before(first.clone()));
    }
    let (real, tables) = start(settings).inspect_err(|error| {
        if matches!(error, LoadError::Start { .. } | LoadError::Thread(_)) {
            FAILED.get_or_init(|| error.to_string());
        }
    })?;
    tables.keep();
    Ok(REAL.get_or_init(|| real))
}

/// The tables of all functions that act on a handle, each of which is kept by its module.
struct Tables {
    parsers: RealParsers,
    databases: RealDatabases,
    transactions: RealTransactions,
    futures: RealFutures,
    results: RealResults,
    tenants: RealTenants,
    tenant_opening: RealTenantOpening,
    database_granules: RealDatabaseGranules,
    tenant_granules: RealTenantGranules,
    transaction_granules: RealTransactionGranules,
    granule_futures: RealGranuleFutures,
}

impl Tables {
    fn load(object: &SharedObject) -> Result<Tables, LoadError> {
        Ok(Tables {
            parsers: RealParsers::load(object)?,
            databases: RealDatabases::load(object)?,
            transactions: RealTransactions::load(object)?,
            futures: RealFutures::load(object)?,
            results: RealResults::load(object)?,
            tenants: RealTenants::load(object)?,
            tenant_opening: RealTenantOpening::load(object)?,
            database_granules: RealDatabaseGranules::load(object)?,
            tenant_granules: RealTenantGranules::load(object)?,
            transaction_granules: RealTransactionGranules::load(object)?,
            granule_futures: RealGranuleFutures::load(object)?,
        })
    }

    /// Hands each table to its module.
    fn keep(self) {
        self.parsers.keep();
        self.databases.keep();
        self.transactions.keep();
        self.futures.keep();
        self.results.keep();
        self.tenants.keep();
        self.tenant_opening.keep();
        self.database_granules.keep();
        self.tenant_granules.keep();
        self.transaction_granules.keep();
        self.granule_futures.keep();
    }
}

fn start(settings: &Settings) -> Result<(Real, Tables), LoadError> {
    let object = SharedObject::open()?;
    // Looks up all functions before starting anything, so that an incomplete library can be
    // unloaded.
    let process = Process::load(&object)?;
    let tables = Tables::load(&object)?;
    let real = Real {
        get_error: process.get_error,
        get_client_version: process.get_client_version,
        error_predicate: process.error_predicate,
        create_database: process.create_database,
        create_database_from_connection_string: process.create_database_from_connection_string,
        set_option: process.set_option,
        stop_network: process.stop_network,
        network: Mutex::new(None),
        _library: object.library,
    };
    process.set_up(settings).map_err(|code| LoadError::Start { name: object.name.clone(), code })?;
    let run_network = process.run_network;
    // SAFETY: the network is set up, and this is the one thread that runs it.
    let run = move || unsafe {
        run_network();
    };
    let thread = baton::thread::Builder::new().name("fdb-network".to_owned()).spawn(run);
    *real.network.lock() = Some(thread.map_err(LoadError::Thread)?);
    Ok((real, tables))
}

/// The functions for the process as a whole.
struct Process {
    select_api_version: SelectApiVersion,
    set_option: SetOption,
    setup_network: NetworkCall,
    run_network: NetworkCall,
    stop_network: NetworkCall,
    get_error: GetError,
    get_client_version: GetClientVersion,
    error_predicate: ErrorPredicate,
    use_future_protocol: UseFutureProtocol,
    create_database: CreateDatabase,
    create_database_from_connection_string: CreateDatabase,
}

impl Process {
    fn load(object: &SharedObject) -> Result<Process, LoadError> {
        // SAFETY: the types are those of the C header, which the library implements.
        unsafe {
            Ok(Process {
                select_api_version: object.function("fdb_select_api_version_impl\0")?,
                set_option: object.function("fdb_network_set_option\0")?,
                setup_network: object.function("fdb_setup_network\0")?,
                run_network: object.function("fdb_run_network\0")?,
                stop_network: object.function("fdb_stop_network\0")?,
                get_error: object.function("fdb_get_error\0")?,
                get_client_version: object.function("fdb_get_client_version\0")?,
                error_predicate: object.function("fdb_error_predicate\0")?,
                use_future_protocol: found!(object, fdb_use_future_protocol_version, [720], ()),
                create_database: object.function("fdb_create_database\0")?,
                create_database_from_connection_string: found!(
                    object,
                    fdb_create_database_from_connection_string,
                    [720],
                    (*const c_char, *mut *mut FDBDatabase) -> fdb_error_t
                ),
            })
        }
    }

    /// Repeats the settings in the library, and sets its network up.
    fn set_up(&self, settings: &Settings) -> Result<(), Code> {
        let (runtime, header) = settings.api_version;
        // SAFETY: the calls come in the order that the C API asks for, with pointers that are valid during each.
        unsafe {
            check((self.select_api_version)(runtime, header))?;
            if settings.future_protocol {
                (self.use_future_protocol)();
            }
            for (code, value) in &settings.network_options {
                set_option(self.set_option, *code, value.as_deref())?;
            }
            check((self.setup_network)())
        }
    }
}

fn check(status: fdb_error_t) -> Result<(), Code> {
    Code::from_raw(status).map_or(Ok(()), Err)
}

/// Calls the library's function for a network option.
///
/// # Safety
/// `function` must be that function.
unsafe fn set_option(function: SetOption, code: c_int, value: Option<&[u8]>) -> Result<(), Code> {
    let length = value.map_or(0, |value| c_int::try_from(value.len()).unwrap_or(c_int::MAX));
    let pointer = value.map_or(std::ptr::null(), <[u8]>::as_ptr);
    // SAFETY: the caller's promise, and a pointer that is valid during the call.
    check(unsafe { function(code, pointer, length) })
}

impl Real {
    /// Sets a network option of the running library, if it still allows that.
    pub(super) fn set_network_option(&self, code: c_int, value: Option<&[u8]>) -> Result<(), Code> {
        // SAFETY: it is that function.
        unsafe { set_option(self.set_option, code, value) }
    }
}

/// The release of FoundationDB's client library, as `7.3.79`, after a cluster was opened with it.
pub fn client_version() -> Option<String> {
    let real = loaded()?;
    // SAFETY: the function takes nothing, and gives a text that stays for as long as the library does.
    let version = unsafe { CStr::from_ptr((real.get_client_version)()) };
    // The source and the protocol version follow.
    version.to_string_lossy().split(',').next().map(str::to_owned)
}

/// The library, if it has been loaded.
pub(super) fn loaded() -> Option<&'static Real> {
    REAL.get()
}

/// Stops the library's network, if it runs, and waits for its thread.
pub(super) fn stop() {
    let Some(real) = loaded() else { return };
    let Some(thread) = real.network.lock().take() else { return };
    // SAFETY: stopping is legal from any thread, once the network has been set up.
    unsafe { (real.stop_network)() };
    // The thread may have panicked, which does not matter here.
    let _ = thread.join();
}
