//! Who may ask for what. Decisions over what a request says; each is made before the body is read.
//!
//! | file | |
//! |---|---|
//! | `host` | on loopback, only by the names that loopback has: a page of another site cannot make itself ours by its name's address |
//! | `token` | the secret, if one is needed |
//! | `origin` | changes by pages of other sites |

mod host;
mod origin;
mod token;

pub(super) use host::Hosts;
pub(super) use origin::check as check_origin;
pub(crate) use token::{OTHERS, Token};
