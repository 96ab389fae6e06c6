//! What browsers keep: the style sheet and the pictures.

use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse;

const AN_HOUR: &str = "public, max-age=3600";

pub(super) async fn style() -> impl IntoResponse {
    let headers = [(CONTENT_TYPE, "text/css"), (CACHE_CONTROL, AN_HOUR)];
    (headers, include_str!("../../assets/shop.css"))
}

pub(super) async fn pictures() -> impl IntoResponse {
    let headers = [(CONTENT_TYPE, "image/svg+xml"), (CACHE_CONTROL, AN_HOUR)];
    (headers, include_str!("../../assets/pictures.svg"))
}
