-- What was bought together with a product: by the cosine between two products as vectors over
-- orders, squared: together² / (bought(this) · bought(other)). What everybody buys anyway does not
-- win. The divisor of the product itself is the same for all and left out.
SELECT products.id, name, department, text, price, picture, port
FROM (
    SELECT other.product_id AS id, count(*) AS together
    FROM purchases AS this JOIN purchases AS other USING (order_id)
    WHERE this.product_id = ?1 AND other.product_id <> ?1
    GROUP BY other.product_id
) JOIN products USING (id)
ORDER BY 1.0 * together * together / bought DESC, id
LIMIT 4
