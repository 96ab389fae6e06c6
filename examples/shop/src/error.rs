//! What can go wrong, and the page that says so.

use askama::Template;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};

use crate::pages::Frame;

/// Why a page cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ShopError {
    /// There is no such page, product or order.
    #[error("there is no such page")]
    NotFound,
    /// The database failed.
    #[error("the database failed: {0}")]
    Database(#[from] rusqlite::Error),
    /// A file of the database could not be made.
    #[error("cannot make a database: {0}")]
    File(#[from] std::io::Error),
    /// A page could not be written.
    #[error("a page could not be written: {0}")]
    Template(#[from] askama::Error),
    /// The shop is being closed.
    #[error("the work was given up: {0}")]
    GivenUp(#[from] tokio::task::JoinError),
}

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage {
    frame: Frame,
    text: &'static str,
}

impl IntoResponse for ShopError {
    fn into_response(self) -> Response {
        let (status, title, text) = match self {
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                "Not found",
                "There is nothing at this address. It may have been sold out and taken down.",
            ),
            error => {
                eprintln!("shop: {error}");
                (
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "Something broke",
                    "This is our fault. Please try again in a moment.",
                )
            }
        };
        let frame = Frame::plain(title);
        match (ErrorPage { frame, text }).render() {
            Ok(page) => (status, Html(page)).into_response(),
            Err(_) => (status, text).into_response(),
        }
    }
}
