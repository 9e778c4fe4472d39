//! Who may ask for what. Decisions over what a request says; each is made before the body is read.
//!
//! | file | |
//! |---|---|
//! | `host` | on loopback, only by the names that loopback has: a page of another site cannot make itself ours by its name's address |
//! | `token` | the secret, if one is needed |
//! | `rotation` | the secret's file is read again for clients that send another secret |
//! | `origin` | changes by pages of other sites |

mod host;
mod origin;
mod rotation;
mod token;

pub(super) use host::Hosts;
pub(super) use origin::check as check_origin;
pub(super) use rotation::{PAUSE, Rotation};
pub(crate) use token::{OTHERS, Token};
