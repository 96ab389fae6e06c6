//! Buying what is in the basket.

use askama::Template;
use axum::Form;
use axum::extract::State;
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;

use super::{Frame, Line, html, priced};
use crate::basket::Basket;
use crate::error::ShopError;
use crate::money::Cents;
use crate::store::{Product, Shop};

/// Longer than any name; keeps the database from being filled with one order.
const NAME_MAX: usize = 200;

#[derive(Debug, Deserialize)]
pub(super) struct Buyer {
    name: String,
}

#[derive(Template)]
#[template(path = "checkout.html")]
struct CheckoutPage {
    frame: Frame,
    lines: Vec<Line>,
    total: Cents,
    name: String,
    /// What is wrong with the name.
    problem: Option<&'static str>,
}

impl CheckoutPage {
    fn new(headers: &HeaderMap, lines: Vec<(Product, u32)>) -> Self {
        let (lines, total) = priced(lines);
        Self {
            frame: Frame::new("Checkout", headers),
            lines,
            total,
            name: String::new(),
            problem: None,
        }
    }
}

pub(super) async fn show(
    State(shop): State<Shop>,
    headers: HeaderMap,
) -> Result<Response, ShopError> {
    let lines = bought(&shop, &headers).await?;
    if lines.is_empty() {
        return Ok(Redirect::to("/basket").into_response());
    }
    Ok(html(&CheckoutPage::new(&headers, lines))?.into_response())
}

pub(super) async fn place(
    State(shop): State<Shop>,
    headers: HeaderMap,
    Form(buyer): Form<Buyer>,
) -> Result<Response, ShopError> {
    let lines = bought(&shop, &headers).await?;
    if lines.is_empty() {
        return Ok(Redirect::to("/basket").into_response());
    }
    let name = buyer.name.trim();
    if let Some(problem) = problem(name) {
        let page = CheckoutPage {
            name: name.to_owned(),
            problem: Some(problem),
            ..CheckoutPage::new(&headers, lines)
        };
        return Ok((StatusCode::UNPROCESSABLE_ENTITY, html(&page)?).into_response());
    }
    let ids = lines
        .iter()
        .map(|(product, quantity)| (product.id, *quantity));
    let reference = shop.place(name.to_owned(), ids.collect()).await?;
    let emptied = [(SET_COOKIE, Basket::default().set_cookie())];
    Ok((emptied, Redirect::to(&format!("/orders/{reference}"))).into_response())
}

async fn bought(shop: &Shop, headers: &HeaderMap) -> Result<Vec<(Product, u32)>, ShopError> {
    shop.lines(Basket::read(headers).lines().to_vec()).await
}

fn problem(name: &str) -> Option<&'static str> {
    match name.len() {
        0 => Some("Please tell us who the parcel is for."),
        1..=NAME_MAX => None,
        _ => Some("This name does not fit on a label."),
    }
}
