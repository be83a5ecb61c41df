"""The shop: stock, orders, and the saga that sees an order through."""
