//! The guards: they decide by a request's head, before its body is read.

mod caller;
mod host;
mod origin;
mod rotation;
mod session;
mod token;

pub(super) use caller::{Caller, bearer};
pub(super) use host::Hosts;
pub(super) use origin::check as check_origin;
pub(super) use rotation::{LOOK, Rotation};
pub(super) use session::{SessionKey, SignedIn};
pub(crate) use token::{OTHERS, Token};
