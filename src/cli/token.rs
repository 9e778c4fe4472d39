//! `kvqueue token`: the access tokens of the HTTP API.

use crate::operations::{ListTokens, NewToken, RevokeToken};

super::operation::group! {
    /// Make, list and revoke access tokens, with which programs use the HTTP API
    Command {
        New(NewToken),
        List(ListTokens),
        Revoke(RevokeToken),
    }
}
