//! Making a schedule.

use actix_web::HttpResponse;

use super::{
    api_request::{Answer, ApiRequest},
    operation::failure,
};
use crate::{
    config::ScheduleDefinition,
    operations::{schedules::PutSchedule, target::Target},
};

/// `PUT /api/v1/queues/{queue}/schedules/{name}`
pub(super) async fn put(mut request: ApiRequest) -> Answer {
    // In base 64 a payload is longer than the body of other requests may be.
    let definition: ScheduleDefinition = request.long_json().await?;
    let (target, name) = (Target::named(request.value("queue")), request.value("name").to_owned());
    let put = PutSchedule { target, name, definition, create: request.query.flag("create")? };
    Ok(HttpResponse::Ok().json(put.run(&request).await.map_err(failure)?))
}
