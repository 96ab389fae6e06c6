//! The basket lives in a cookie, so that any replica can show it: `basket=7:2.31:1` is two of
//! product 7 and one of product 31. Anyone who edits the cookie edits their own basket only.

use axum::http::HeaderMap;
use axum::http::header::COOKIE;

const NAME: &str = "basket";
/// A cookie holds 4096 bytes (RFC 6265); this many lines are well below.
const LINES_MAX: usize = 50;
/// Nobody buys more of one thing by hand.
pub(crate) const QUANTITY_MAX: u32 = 99;

/// Products and how many of each, in the order in which they were chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Basket {
    lines: Vec<(i64, u32)>,
}

impl Basket {
    /// Reads the cookie; what is malformed is left out.
    pub(crate) fn read(headers: &HeaderMap) -> Self {
        let mut basket = Self::default();
        let cookies = headers.get_all(COOKIE).iter();
        let text = cookies
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .find_map(|pair| pair.trim().strip_prefix(NAME)?.strip_prefix('='));
        for line in text.unwrap_or_default().split('.') {
            if let Some((product, quantity)) = line.split_once(':')
                && let (Ok(product), Ok(quantity)) = (product.parse(), quantity.parse())
            {
                basket.add(product, quantity);
            }
        }
        basket
    }

    /// The header that makes a browser keep it.
    pub(crate) fn set_cookie(&self) -> String {
        let lines: Vec<String> = self
            .lines
            .iter()
            .map(|(product, quantity)| format!("{product}:{quantity}"))
            .collect();
        let age_s = if lines.is_empty() { 0 } else { 30 * 24 * 3600 };
        let lines = lines.join(".");
        format!("{NAME}={lines}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Lax")
    }

    /// Adds some of a product.
    pub(crate) fn add(&mut self, product: i64, quantity: u32) {
        let had = self.lines.iter().find(|line| line.0 == product);
        let had = had.map_or(0, |line| line.1);
        self.set(product, had.saturating_add(quantity));
    }

    /// Has this many of a product; 0 removes it.
    pub(crate) fn set(&mut self, product: i64, quantity: u32) {
        let quantity = quantity.min(QUANTITY_MAX);
        let has_room = self.lines.len() < LINES_MAX;
        match self.lines.iter_mut().find(|line| line.0 == product) {
            Some(line) => line.1 = quantity,
            None if has_room => self.lines.push((product, quantity)),
            None => {}
        }
        self.lines.retain(|line| line.1 > 0);
    }

    pub(crate) fn lines(&self) -> &[(i64, u32)] {
        &self.lines
    }

    /// How many things are in it.
    pub(crate) fn count(&self) -> u32 {
        self.lines.iter().map(|line| line.1).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(cookie: &'static str) -> Vec<(i64, u32)> {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, cookie.parse().unwrap());
        Basket::read(&headers).lines
    }

    #[test]
    fn a_basket_survives_its_cookie() {
        let mut basket = Basket::default();
        basket.add(7, 2);
        basket.add(31, 1);
        basket.add(7, 1);
        let cookie = basket.set_cookie();
        let pair = cookie.split(';').next().unwrap().to_owned();
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, format!("a=b; {pair}; c=d").parse().unwrap());
        assert_eq!(Basket::read(&headers), basket);
        assert_eq!(basket.count(), 4);
    }

    #[test]
    fn an_empty_basket_removes_the_cookie() {
        let mut basket = Basket::default();
        basket.add(7, 1);
        basket.set(7, 0);
        assert!(basket.set_cookie().contains("Max-Age=0;"));
    }

    #[test]
    fn nonsense_is_left_out_and_amounts_are_bounded() {
        assert_eq!(read("basket=7:2.x:1.8.9:-1.10:0"), [(7, 2)]);
        assert_eq!(read("basket=7:4000000000.7:4000000000"), [(7, 99)]);
        assert_eq!(read("basket"), []);
        assert_eq!(read("xbasket=7:2"), []);
        let many: String = (0..200).map(|id| format!("{id}:1.")).collect();
        let cookie = Box::leak(format!("basket={many}").into_boxed_str());
        assert_eq!(read(cookie).len(), 50);
    }
}
