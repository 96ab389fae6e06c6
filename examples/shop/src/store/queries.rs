//! All SQL of the shop.

use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};

use crate::catalogue;
use crate::money::Cents;

const SCHEMA: &str = include_str!("schema.sql");
const RECOMMEND: &str = include_str!("recommend.sql");

/// Something that is sold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Product {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) department: String,
    pub(crate) text: String,
    pub(crate) price: Cents,
    pub(crate) picture: String,
    pub(crate) port: i64,
}

/// Which products to show.
#[derive(Debug, Clone)]
pub(crate) struct Selection {
    pub(crate) department: Option<&'static str>,
    pub(crate) offset: u32,
    pub(crate) limit: u32,
}

/// An order that was placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) number: i64,
    pub(crate) buyer: String,
    pub(crate) lines: Vec<(Product, u32)>,
}

impl TryFrom<&Row<'_>> for Product {
    type Error = rusqlite::Error;

    fn try_from(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get("id")?,
            name: row.get("name")?,
            department: row.get("department")?,
            text: row.get("text")?,
            price: row.get("price")?,
            picture: row.get("picture")?,
            port: row.get("port")?,
        })
    }
}

/// Makes the tables, and fills them when they are new. Replicas that start together on one file do
/// so one after the other.
pub(super) fn set_up(connection: &mut Connection, past_orders: u32) -> rusqlite::Result<()> {
    let work = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    work.execute_batch(SCHEMA)?;
    let is_new: bool = work.query_row("SELECT NOT EXISTS (SELECT 1 FROM products)", [], |row| {
        row.get(0)
    })?;
    if is_new {
        add_products(&work)?;
        add_history(&work, past_orders)?;
        work.execute(
            "UPDATE products SET bought =
                (SELECT count(*) FROM purchases WHERE product_id = products.id)",
            [],
        )?;
    }
    work.commit()
}

fn add_products(connection: &Connection) -> rusqlite::Result<()> {
    let mut add = connection.prepare(
        "INSERT INTO products (id, name, department, text, price, picture, port)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    for new in catalogue::products() {
        let port = new.port as i64;
        let (name, text) = (new.name, new.text);
        add.execute(params![
            new.id,
            name,
            new.department,
            text,
            new.price,
            new.picture,
            port
        ])?;
    }
    Ok(())
}

fn add_history(connection: &Connection, orders: u32) -> rusqlite::Result<()> {
    let mut add_order = connection.prepare("INSERT INTO orders DEFAULT VALUES")?;
    let mut add_line = connection
        .prepare("INSERT INTO purchases (order_id, product_id, quantity) VALUES (?1, ?2, 1)")?;
    for ids in catalogue::history(orders) {
        let order = add_order.insert([])?;
        for id in ids {
            add_line.execute([order, id])?;
        }
    }
    Ok(())
}

pub(super) fn products(
    connection: &Connection,
    selection: &Selection,
) -> rusqlite::Result<(Vec<Product>, u32)> {
    let department = selection.department;
    let total = connection
        .prepare_cached("SELECT count(*) FROM products WHERE ?1 IS NULL OR department = ?1")?
        .query_row([department], |row| row.get(0))?;
    let products = connection
        .prepare_cached(
            "SELECT * FROM products WHERE ?1 IS NULL OR department = ?1
             ORDER BY bought DESC, id LIMIT ?2 OFFSET ?3",
        )?
        .query_map(
            params![department, selection.limit, selection.offset],
            |row| row.try_into(),
        )?
        .collect::<Result<_, _>>()?;
    Ok((products, total))
}

pub(super) fn product(connection: &Connection, id: i64) -> rusqlite::Result<Option<Product>> {
    connection
        .prepare_cached("SELECT * FROM products WHERE id = ?1")?
        .query_row([id], |row| row.try_into())
        .optional()
}

pub(super) fn product_ids(connection: &Connection) -> rusqlite::Result<Vec<i64>> {
    connection
        .prepare("SELECT id FROM products")?
        .query_map([], |row| row.get(0))?
        .collect()
}

/// What others bought with a product, the best first.
pub(super) fn recommendations(connection: &Connection, id: i64) -> rusqlite::Result<Vec<Product>> {
    connection
        .prepare_cached(RECOMMEND)?
        .query_map([id], |row| row.try_into())?
        .collect()
}

pub(super) fn lines(
    connection: &Connection,
    lines: &[(i64, u32)],
) -> rusqlite::Result<Vec<(Product, u32)>> {
    let mut found = Vec::with_capacity(lines.len());
    for &(id, quantity) in lines {
        if let Some(product) = product(connection, id)? {
            found.push((product, quantity));
        }
    }
    Ok(found)
}

pub(super) fn place(
    connection: &mut Connection,
    buyer: &str,
    lines: &[(i64, u32)],
) -> rusqlite::Result<String> {
    let work = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Sixteen random bytes: nobody finds another's order by counting.
    let (order, reference): (i64, String) = work.query_row(
        "INSERT INTO orders (reference, buyer) VALUES (lower(hex(randomblob(16))), ?1)
         RETURNING id, reference",
        [buyer],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    for &(id, quantity) in lines {
        work.execute(
            "INSERT INTO purchases (order_id, product_id, quantity) VALUES (?1, ?2, ?3)",
            params![order, id, quantity],
        )?;
        work.execute(
            "UPDATE products SET bought = bought + 1 WHERE id = ?1",
            [id],
        )?;
    }
    work.commit()?;
    Ok(reference)
}

pub(super) fn order(connection: &Connection, reference: &str) -> rusqlite::Result<Option<Order>> {
    let found = connection
        .prepare_cached("SELECT id, buyer FROM orders WHERE reference = ?1")?
        .query_row([reference], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((number, buyer)) = found else {
        return Ok(None);
    };
    let lines = connection
        .prepare_cached(
            "SELECT products.*, quantity FROM purchases JOIN products ON products.id = product_id
             WHERE order_id = ?1 ORDER BY products.id",
        )?
        .query_map([number], |row| Ok((row.try_into()?, row.get("quantity")?)))?
        .collect::<Result<_, _>>()?;
    Ok(Some(Order {
        number,
        buyer,
        lines,
    }))
}
