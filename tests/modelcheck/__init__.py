"""An exhaustive check of the state machine and the claim protocol: every interleaving of small sagas.

Pure Python without I/O. The real `decide`, `assess`, `frontier` and `rows` decide; what is modelled is the world
around them: the database statements (`statements`), relay, broker, workers and people (`actions`) and the other
side, where effects happen (`provider`). `python -m tests.modelcheck` writes the table in the docs.
"""
