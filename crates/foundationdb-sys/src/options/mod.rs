//! The C header's enumerations, named as bindgen names them: `<type>_<constant>`.

mod database;
mod network;
mod operation;
mod transaction;

pub use database::*;
pub use network::*;
pub use operation::*;
pub use transaction::*;
