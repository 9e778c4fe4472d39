//! `GET /api/v1/queues/{queue}/ended`: items that have ended.

use std::num::NonZeroUsize;

use actix_web::HttpResponse;
use kvqueue_queue::{Ending, HistoryCursor, HistoryFilter, Millis};
use serde_json::{Value, json};

use super::{
    api_request::{Answer, ApiRequest},
    error::ApiError,
};
use crate::{item_history::moment, json};

/// The range of `limit`, the most items of a page, and its default.
const PAGE: [usize; 2] = [1, 500];
const SOME: usize = 50;

/// A page, the newest first.
pub(super) async fn list(request: ApiRequest) -> Answer {
    let queue = request.queue()?;
    let (filter, before) = (&request.history_filter()?, &request.query.parsed::<HistoryCursor>("before")?);
    let limit = request.query.number("limit", PAGE, SOME)?;
    let limit = NonZeroUsize::new(limit).unwrap_or(NonZeroUsize::MIN);
    let queue = &queue;
    let (page, kept, index) = request
        .transact(|tr| async move {
            let read = async {
                let page = queue.history(&tr, filter, before.as_ref(), limit).await?;
                Ok((page, queue.history_kept(&tr).await?, queue.history_index(&tr).await?))
            };
            let read = read.await;
            (tr, read)
        })
        .await?;
    let items: Vec<Value> = page.items.iter().map(json::ended).collect();
    let next = page.next.map(|next| next.to_string());
    let kept = kept.map(|kept| kept.as_secs());
    Ok(HttpResponse::Ok().json(json!({
        "items": items,
        "next": next,
        "unreadable": page.unreadable,
        "kept_seconds": kept,
        "indexed": index.names().collect::<Vec<_>>(),
    })))
}

impl ApiRequest {
    fn history_filter(&self) -> Result<HistoryFilter, ApiError> {
        let attribute = self.query.text("attribute").map(|text| match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
            _ => Err(ApiError::Bad("parameter attribute: write it as in customer=ann".to_owned())),
        });
        Ok(HistoryFilter {
            ending: self.query.parsed::<Ending>("outcome")?,
            attributes: attribute.transpose()?.into_iter().collect(),
            schedule: self.query.text("schedule").map(str::to_owned),
            since: self.moment("since")?,
            until: self.moment("until")?,
        })
    }

    fn moment(&self, name: &str) -> Result<Option<Millis>, ApiError> {
        let read = |text| moment(text).map_err(|error| ApiError::Bad(format!("parameter {name}: {error}")));
        self.query.text(name).map(read).transpose()
    }
}
