//! The basket.

use askama::Template;
use axum::Form;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::SET_COOKIE;
use axum::response::{Html, IntoResponse, Redirect};
use serde::Deserialize;

use super::{Frame, Line, html, priced};
use crate::basket::{Basket, QUANTITY_MAX};
use crate::error::ShopError;
use crate::money::Cents;
use crate::store::Shop;

#[derive(Debug, Deserialize)]
pub(super) struct Change {
    product: i64,
    quantity: u32,
}

#[derive(Template)]
#[template(path = "basket.html")]
struct BasketPage {
    frame: Frame,
    lines: Vec<Line>,
    total: Cents,
    quantity_max: u32,
}

pub(super) async fn show(
    State(shop): State<Shop>,
    headers: HeaderMap,
) -> Result<Html<String>, ShopError> {
    let basket = Basket::read(&headers);
    let (lines, total) = priced(shop.lines(basket.lines().to_vec()).await?);
    html(&BasketPage {
        frame: Frame::new("Your basket", &headers),
        lines,
        total,
        quantity_max: QUANTITY_MAX,
    })
}

pub(super) async fn add(headers: HeaderMap, Form(change): Form<Change>) -> impl IntoResponse {
    let mut basket = Basket::read(&headers);
    basket.add(change.product, change.quantity);
    keep(&basket)
}

pub(super) async fn set(headers: HeaderMap, Form(change): Form<Change>) -> impl IntoResponse {
    let mut basket = Basket::read(&headers);
    basket.set(change.product, change.quantity);
    keep(&basket)
}

fn keep(basket: &Basket) -> impl IntoResponse + use<> {
    let cookie = [(SET_COOKIE, basket.set_cookie())];
    (cookie, Redirect::to("/basket"))
}
