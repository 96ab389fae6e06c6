//! Thanks for an order; anyone who has its address can see it.

use askama::Template;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Html;

use super::{Frame, Line, html, priced};
use crate::error::ShopError;
use crate::money::Cents;
use crate::store::Shop;

#[derive(Template)]
#[template(path = "order.html")]
struct OrderPage {
    frame: Frame,
    number: i64,
    buyer: String,
    lines: Vec<Line>,
    total: Cents,
}

pub(super) async fn show(
    State(shop): State<Shop>,
    Path(reference): Path<String>,
    headers: HeaderMap,
) -> Result<Html<String>, ShopError> {
    let order = shop.order(reference).await?.ok_or(ShopError::NotFound)?;
    let (lines, total) = priced(order.lines);
    html(&OrderPage {
        frame: Frame::new("Thank you", &headers),
        number: order.number,
        buyer: order.buyer,
        lines,
        total,
    })
}
