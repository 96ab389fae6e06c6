//! What surrounds every page.

use axum::http::HeaderMap;

use crate::basket::Basket;
use crate::catalogue::{DEPARTMENTS, Department};

/// Title, departments and the way to the basket.
pub(crate) struct Frame {
    pub(crate) title: String,
    pub(crate) basket_count: u32,
    /// The department that is being looked at.
    pub(crate) department: Option<&'static str>,
}

impl Frame {
    pub(crate) fn plain(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            basket_count: 0,
            department: None,
        }
    }

    pub(super) fn new(title: &str, headers: &HeaderMap) -> Self {
        Self {
            basket_count: Basket::read(headers).count(),
            ..Self::plain(title)
        }
    }

    pub(crate) fn departments(&self) -> &'static [Department] {
        &DEPARTMENTS
    }

    pub(crate) fn is_current(&self, department: &Department) -> bool {
        self.department == Some(department.slug)
    }
}
