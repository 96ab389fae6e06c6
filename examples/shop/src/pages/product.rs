//! A product, and what others bought with it: the page that can be served in full or reduced.

use askama::Template;
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Html;
use tidegate_nucleus::OptionalContent;

use super::{Frame, html};
use crate::catalogue::DEPARTMENTS;
use crate::error::ShopError;
use crate::store::{Product, Shop};

#[derive(Template)]
#[template(path = "product.html")]
struct ProductPage {
    frame: Frame,
    department: &'static str,
    product: Product,
    /// `None` when they were left out.
    others: Option<Vec<Product>>,
}

pub(super) async fn show(
    State(shop): State<Shop>,
    Extension(OptionalContent(full)): Extension<OptionalContent>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Html<String>, ShopError> {
    let id = id.parse().map_err(|_| ShopError::NotFound)?;
    let found = shop.product(id, full).await?;
    let (product, others) = found.ok_or(ShopError::NotFound)?;
    let department = DEPARTMENTS
        .iter()
        .find(|department| department.slug == product.department)
        .ok_or(ShopError::NotFound)?;
    let frame = Frame {
        department: Some(department.slug),
        ..Frame::new(&product.name, &headers)
    };
    html(&ProductPage {
        frame,
        department: department.name,
        product,
        others,
    })
}
