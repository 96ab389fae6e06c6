//! Prices, exact to the cent.

use std::fmt;

use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};

/// An amount in cents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Cents(pub(crate) i64);

impl Cents {
    pub(crate) fn times(self, quantity: u32) -> Self {
        Self(self.0 * i64::from(quantity))
    }
}

impl std::iter::Sum for Cents {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        Self(amounts.map(|amount| amount.0).sum())
    }
}

impl fmt::Display for Cents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "€\u{a0}{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

impl FromSql for Cents {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        i64::column_result(value).map(Self)
    }
}

impl ToSql for Cents {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_written_with_two_decimals() {
        assert_eq!(Cents(1205).to_string(), "€\u{a0}12.05");
        assert_eq!(Cents(5).times(3).to_string(), "€\u{a0}0.15");
    }
}
