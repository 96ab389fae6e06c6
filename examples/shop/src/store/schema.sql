CREATE TABLE IF NOT EXISTS products (
    id         INTEGER PRIMARY KEY,
    name       TEXT    NOT NULL,
    department TEXT    NOT NULL,
    text       TEXT    NOT NULL,
    price      INTEGER NOT NULL,            -- cents
    picture    TEXT    NOT NULL,
    port       INTEGER NOT NULL,
    bought     INTEGER NOT NULL DEFAULT 0   -- in how many orders
);

CREATE TABLE IF NOT EXISTS orders (
    id        INTEGER PRIMARY KEY,
    reference TEXT UNIQUE,                  -- what its page is found by; past orders have none
    buyer     TEXT,
    placed_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
);

CREATE TABLE IF NOT EXISTS purchases (
    order_id   INTEGER NOT NULL REFERENCES orders (id),
    product_id INTEGER NOT NULL REFERENCES products (id),
    quantity   INTEGER NOT NULL,
    PRIMARY KEY (order_id, product_id)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS purchases_of_product ON purchases (product_id, order_id);
