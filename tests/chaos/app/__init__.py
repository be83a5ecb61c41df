"""The application that suffers: a shop that keeps books beside those of its bank."""
