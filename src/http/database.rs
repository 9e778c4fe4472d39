//! Requests that ask the database, bounded in number.

use std::cell::Cell;

use foundationdb::Transaction;
use kvqueue_queue::{Queue, QueueError};

use super::{api_request::ApiRequest, error::ApiError, room::Place};
use crate::database::attempt::{Attempt, boxed};

impl ApiRequest {
    /// A database permit, if there is one left for this client.
    pub(super) fn permit(&self) -> Result<Place, ApiError> {
        self.app.backend.permit(&self.caller)
    }

    /// Takes a database permit, and keeps it until the request is answered, so that a change of several transactions is not refused in its middle.
    pub(super) fn hold_permit(&self) -> Result<(), ApiError> {
        let mut held = self.database_permit.borrow_mut();
        if held.is_none() {
            *held = Some(self.permit()?);
        }
        Ok(())
    }

    /// As [`Backend::run`](super::backend::Backend::run), with a database permit.
    pub(super) async fn transact<T, R>(&self, body: impl FnMut(Transaction) -> R) -> Result<T, ApiError>
    where
        R: Future<Output = (Transaction, Result<T, QueueError>)>,
    {
        let value = Cell::new(None);
        self.transact_boxed(&mut boxed(body, &value)).await?;
        Ok(value.take().expect("an attempt has committed"))
    }

    /// What [`Self::transact`] does with any body, compiled once.
    async fn transact_boxed<'a>(
        &self,
        body: &mut dyn FnMut(Transaction) -> Attempt<'a>,
    ) -> Result<(), ApiError> {
        let _permit = self.permit()?;
        self.app.backend.run(body).await
    }

    /// The queue that the path names.
    pub(super) fn queue(&self) -> Result<Queue, ApiError> {
        self.app.backend.queue(self.value("queue"))
    }
}
