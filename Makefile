.DEFAULT_GOAL := help
.PHONY: help test fast lint types

help:
	@echo "make test | fast | lint | types"

test:
	.venv/bin/python -m pytest

fast:
	.venv/bin/python -m pytest --fast

lint:
	.venv/bin/ruff check
	.venv/bin/ruff format --check

types:
	.venv/bin/mypy packages/*/src
