//! The shop's pages, one module each.

mod assets;
mod basket;
mod checkout;
mod frame;
mod list;
mod order;
mod product;

use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::http::{HeaderValue, header};
use axum::middleware::map_response;
use axum::response::{Html, Response};
use axum::routing::{get, post};
use tidegate_nucleus::{Nucleus, NucleusLayer};

use crate::error::ShopError;
use crate::money::Cents;
use crate::store::{Product, Shop};
pub(crate) use frame::Frame;

/// All pages. Those that are work are measured by the nucleus; what follows the layer is not.
pub fn router(shop: Shop, nucleus: Arc<Nucleus>) -> Router {
    Router::new()
        .route("/", get(list::show))
        .route("/products/{id}", get(product::show))
        .route("/basket", get(basket::show))
        .route("/basket/add", post(basket::add))
        .route("/basket/set", post(basket::set))
        .route("/checkout", get(checkout::show).post(checkout::place))
        .route("/orders/{reference}", get(order::show))
        .fallback(|| async { ShopError::NotFound })
        .layer(NucleusLayer::new(nucleus))
        .route("/assets/shop.css", get(assets::style))
        .route("/assets/pictures.svg", get(assets::pictures))
        .route("/health", get(|| async { "open\n" }))
        .layer(map_response(harden))
        .with_state(shop)
}

/// Pages load nothing from elsewhere and run no scripts, and browsers may hold them to that.
async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; \
             frame-ancestors 'none'; base-uri 'none'",
        ),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

/// A product and how many of it.
struct Line {
    product: Product,
    quantity: u32,
    sum: Cents,
}

fn priced(lines: Vec<(Product, u32)>) -> (Vec<Line>, Cents) {
    let priced = lines.into_iter().map(|(product, quantity)| Line {
        sum: product.price.times(quantity),
        product,
        quantity,
    });
    let lines: Vec<Line> = priced.collect();
    let total = lines.iter().map(|line| line.sum).sum();
    (lines, total)
}

fn html(page: &impl Template) -> Result<Html<String>, ShopError> {
    Ok(Html(page.render()?))
}
