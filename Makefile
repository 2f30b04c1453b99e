.DEFAULT_GOAL := help
.PHONY: help quickstart test fast test-lowest lint types docs docs-serve wheels release sync browser

# What is activated or set for other projects must not reach this one.
unexport VIRTUAL_ENV CONDA_PREFIX PYTHONHOME PYTHONPATH

python := .venv/bin/python
pytest := -m pytest -n auto --dist worksteal

help: ## say what each verb does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile
	@echo 'Each brings what it needs. PYTHON=path chooses the Python, ARGS="..." is handed on to what runs.'

quickstart: sync ## train a small byte transformer on the text of LICENSE
	$(python) docs/examples/quickstart.py $(ARGS)

test: sync browser ## run all tests
	$(python) $(pytest) $(ARGS)

fast: sync ## run the tests but for statistics, every layout, and many processes
	$(python) $(pytest) --fast $(ARGS)

test-lowest: ## run the fast tests on the lowest versions that the packages allow
	@tools/bootstrap.sh lowest
	.venv-lowest/bin/python $(pytest) --fast $(ARGS)

lint: sync ## check style with ruff
	$(python) -m ruff check
	$(python) -m ruff format --check

types: sync ## check types with mypy --strict
	$(python) -m mypy packages/*/src tools

# A notice, in red, of what is to come after mkdocs.
docs docs-serve: export NO_MKDOCS_2_WARNING := 1

docs: sync ## build the site into site/, strictly
	$(python) -m mkdocs build --strict $(ARGS)

docs-serve: sync ## serve the site on http://127.0.0.1:8000, built anew when a page changes
	$(python) -m mkdocs serve $(ARGS)

wheels: sync ## build all packages and check the wheels in clean environments
	$(python) tools/check_wheels.py

release: sync ## check, build and tag PACKAGE=name at VERSION=number, publishing nothing
	@$(python) tools/release.py "$(PACKAGE)" "$(VERSION)"

sync:
	@tools/bootstrap.sh sync

browser:
	@tools/bootstrap.sh browser
