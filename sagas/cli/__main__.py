"""`python -m sagas.cli`, for where scripts are not on the path."""

from sagas.cli import main

main()
