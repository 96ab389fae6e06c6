//! A web shop with something it can leave out.
//!
//! A product page has a part that nobody can do without, the product, and one that is pleasant to
//! have: what others bought with it, computed from all purchases on every request. The second costs
//! many times the first. When the shop is busy a proxy asks for pages without it
//! (`tidegate-optional: 0`), and the page says so where the recommendations would be.
//!
//! What a brownout-aware service has to do is in two places: the layer in [`router`], and the
//! [`OptionalContent`](tidegate_nucleus::OptionalContent) that `pages/product.rs` looks at.

mod basket;
mod capacity;
mod catalogue;
mod error;
mod money;
mod pages;
mod store;

pub use capacity::VirtualCost;
pub use error::ShopError;
pub use pages::router;
pub use store::{Shop, ShopConfig};
