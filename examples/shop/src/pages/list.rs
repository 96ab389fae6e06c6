//! The front page: products, all or of one department.

use askama::Template;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Html;
use serde::Deserialize;

use super::{Frame, html};
use crate::catalogue::DEPARTMENTS;
use crate::error::ShopError;
use crate::store::{Product, Selection, Shop};

const PER_PAGE: u32 = 24;

#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    department: Option<String>,
    page: Option<u32>,
}

#[derive(Template)]
#[template(path = "list.html")]
struct ListPage {
    frame: Frame,
    heading: &'static str,
    products: Vec<Product>,
    page: u32,
    pages: u32,
}

pub(super) async fn show(
    State(shop): State<Shop>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
) -> Result<Html<String>, ShopError> {
    let department = match &wanted.department {
        Some(slug) => Some(
            DEPARTMENTS
                .iter()
                .find(|department| department.slug == slug)
                .ok_or(ShopError::NotFound)?,
        ),
        None => None,
    };
    let page = wanted.page.unwrap_or(1).max(1);
    let selection = Selection {
        department: department.map(|department| department.slug),
        offset: (page - 1).saturating_mul(PER_PAGE),
        limit: PER_PAGE,
    };
    let (products, total) = shop.products(selection).await?;
    let pages = total.div_ceil(PER_PAGE).max(1);
    if page > pages {
        return Err(ShopError::NotFound);
    }
    let heading = department.map_or("Everything for the boat", |department| department.name);
    let frame = Frame {
        department: department.map(|department| department.slug),
        ..Frame::new(heading, &headers)
    };
    html(&ListPage {
        frame,
        heading,
        products,
        page,
        pages,
    })
}

impl ListPage {
    /// The address of another page of the same list.
    fn at(&self, page: &u32) -> String {
        match self.frame.department {
            Some(slug) => format!("/?department={slug}&page={page}"),
            None => format!("/?page={page}"),
        }
    }

    fn numbers(&self) -> std::ops::RangeInclusive<u32> {
        1..=self.pages
    }
}
