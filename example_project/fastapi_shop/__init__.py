"""A small shop on FastAPI and asynchronous SQLAlchemy, with the bank of the Django shop beside it.

export DATABASE_URL=postgresql+asyncpg://user:password@localhost/shop BANK_URL=http://127.0.0.1:8001
python -m example_project.bank --port 8001
python -m example_project.fastapi_shop.tables
uvicorn example_project.fastapi_shop.app:app
sagas --app example_project.fastapi_shop.db:sagas worker
"""
