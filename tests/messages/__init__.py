"""Plain messages: published in transactions, sent by relays, taken once."""
