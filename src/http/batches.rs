//! Making batches.

use actix_web::HttpResponse;

use super::{
    api_request::{Answer, ApiRequest},
    operation::failure,
};
use crate::operations::{
    batches::{MakeBatch, NewBatchBody},
    target::Target,
};

/// `POST /api/v1/queues/{queue}/batches`
pub(super) async fn create(mut request: ApiRequest) -> Answer {
    // In base 64 a payload is longer than the body of other requests may be.
    let batch: NewBatchBody = request.long_json().await?;
    let target = Target::named(request.value("queue"));
    let made = MakeBatch { target, batch }.run(&request).await.map_err(failure)?;
    Ok(HttpResponse::Created().json(made))
}
