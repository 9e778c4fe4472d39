//! The audit trail: the records of requests that change something.
//!
//! The table of routes names the action of each such route. Its endpoint takes the record from its request and stores it
//! with the change, or before the first one.

use super::{api_request::ApiRequest, error::ApiError};
use crate::audit::Record;

impl ApiRequest {
    /// The record of this request, about the queue that the path names. It is to be stored in the transaction of the change.
    pub(super) fn record(&self) -> Record {
        let action =
            self.route.audit.expect("the table of routes has the action of each endpoint with a record");
        self.audited.set(true);
        let who = self.caller.who();
        let record = Record::new(action, who).with_address(self.address());
        match self.value("queue") {
            "" => record,
            queue => record.about(queue.as_bytes()),
        }
    }

    /// Stores the record before a change that needs several transactions, or that is not in the database.
    pub(super) async fn store(&self, record: Record) -> Result<(), ApiError> {
        let (audit, record) = (&self.app.backend.audit(), &record);
        self.transact(|tr| async move {
            audit.write(&tr, record);
            (tr, Ok(()))
        })
        .await
    }

    /// Where the request came from: an address, or the user at the other end of a Unix socket.
    pub(super) fn address(&self) -> Option<String> {
        match self.http.peer_addr() {
            Some(address) => Some(address.to_string()),
            None => self.peer().and_then(|peer| peer.user()).map(|uid| format!("Unix socket, uid {uid}")),
        }
    }
}
