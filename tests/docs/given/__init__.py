"""What the code of a page takes for granted: one module for each page that needs any, run in front of its blocks.

`around()` is a context manager that the blocks run in, `afterwards(names)` looks at what came of them, and `MODULE` is
what the module of the page is called, where that matters.
"""
