"""What the command `shardes-zoo` can do. Progress goes to stderr, results to stdout."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import jax
import rich.console
import rich.markup
import typer

from shardes.zoo.errors import ZooError
from shardes.zoo.model import Model
from shardes.zoo.printing import print_fields, print_json, print_table
from shardes.zoo.registry import MODELS, Entry, info
from shardes.zoo.snapshot.tokenizer import Tokenizer

__all__ = ["app"]

app = typer.Typer(
    help="Models for evolution strategies: by a name of the zoo, the id of a Hub repository, or a folder.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Name = Annotated[str, typer.Argument(help="A name that `list` shows, the id of a Hub repository, or a folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for a program to read.")]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit of the repository.")]
Token = Annotated[str | None, typer.Option(help="Token of the Hub; by default that of HF_TOKEN or of the login.")]
CacheDir = Annotated[Path | None, typer.Option(help="Where downloads are kept; by default as HF_HOME says.")]
Offline = Annotated[bool, typer.Option("--offline", help="Read the cache alone.")]


@app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """List the models that have a name of their own."""
    if as_json:
        print_json([_entry(entry) for entry in MODELS])
        return
    rows = [
        (entry.name, f"{entry.parameters:,}", entry.licence, entry.repo_id or "bundled", entry.architecture)
        for entry in MODELS
    ]
    print_table(("name", "parameters", "licence", "repository", "architecture"), rows, right="parameters")


@app.command("info")
def show_info(name: Annotated[str, typer.Argument(help="A name that `list` shows.")], as_json: AsJson = False) -> None:
    """Say what the zoo knows of a model, without loading it."""
    with _errors():
        entry = info(name)
    if as_json:
        print_json(_entry(entry))
        return
    fields = {key: getattr(entry, key) for key in ("name", "family", "architecture", "parameters", "licence")}
    repository = entry.repo_id or "none, the model comes with the package"
    print_fields(fields | {"repository": repository, "revision": entry.revision})


@app.command()
def pull(
    name: Name,
    revision: Revision = None,
    token: Token = None,
    cache_dir: CacheDir = None,
    offline: Offline = False,
    as_json: AsJson = False,
) -> None:
    """Download a model's files, verify them, and print the folder that holds them."""
    from shardes.zoo.loading import find

    with _errors():
        source = find(name, revision, token=token, cache_dir=cache_dir, offline=offline)
    if as_json:
        print_json({"folder": str(source.folder), "repo_id": source.repo_id, "commit": source.commit})
    else:
        typer.echo(source.folder)


@app.command()
def verify(
    name: Name,
    revision: Revision = None,
    token: Token = None,
    cache_dir: CacheDir = None,
    offline: Offline = False,
    as_json: AsJson = False,
) -> None:
    """Check a model: its files against the Hub's hashes, every tensor, and that a forward pass gives finite numbers."""
    import jax.numpy as jnp

    from shardes.zoo.loading import load

    with _errors():
        model = load(name, revision=revision, token=token, cache_dir=cache_dir, offline=offline)
        forward = model.architecture.logits is not None
        if forward:
            with _ended_by_ctrl_c():
                logits = model.logits(model.params, jnp.arange(8, dtype=jnp.int32)[None] % len(model.params["embed"]))
                finite = bool(jnp.isfinite(logits).all())
            if not finite:
                raise ZooError(f"{name}: a forward pass gives numbers that are not finite. Do not use this model.")
    found = {
        "folder": str(model.source.folder),
        "architecture": model.architecture.model_type,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(model.params)),
        "commit": model.source.commit,
        "hashes": "those of the Hub" if model.source.repo_id else "not checked, for want of a repository to ask",
        "forward": "finite" if forward else "not run, since this is no model of tokens",
    }
    if as_json:
        print_json(found)
    else:
        print_fields(found)


@app.command()
def generate(
    name: Name,
    prompt: Annotated[str, typer.Argument(help="The text to go on from, or the question with --chat.")],
    max_new_tokens: Annotated[int, typer.Option(min=1, help="How many tokens to add at most.")] = 64,
    temperature: Annotated[float, typer.Option(min=0.0, help="Scale of the randomness; 0 takes the likeliest.")] = 0.0,
    top_p: Annotated[float, typer.Option(min=1e-6, max=1.0, help="Sample among the likeliest that reach this.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of the randomness.")] = 0,
    chat: Annotated[bool, typer.Option("--chat", help="Put the prompt into the model's chat template.")] = False,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16 or float16; by default as stored.")] = None,
    revision: Revision = None,
    token: Token = None,
    cache_dir: CacheDir = None,
    offline: Offline = False,
    as_json: AsJson = False,
) -> None:
    """Continue a prompt, and print what the model adds."""
    import numpy as np

    from shardes.zoo.loading import load

    if dtype not in (None, "float32", "bfloat16", "float16"):
        raise typer.BadParameter(f"{dtype} is not float32, bfloat16 or float16.", param_hint="--dtype")
    with _errors():
        model = load(name, revision=revision, dtype=dtype, token=token, cache_dir=cache_dir, offline=offline)
        tokenizer, ids = _prompt(model, prompt, chat)
        with _ended_by_ctrl_c():
            whole = model.generate(
                *(model.params, np.asarray(ids, np.int32)[None]),
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                top_p=top_p,
                key=jax.random.key(seed) if temperature else None,
            )
            added = np.asarray(whole)[0, len(ids) :].tolist()
        ends = [i for i, token_id in enumerate(added) if token_id in model.defaults.eos_token_id]
        added = added[: ends[0]] if ends else added
        text = tokenizer.decode(added, skip_special_tokens=True)
    if as_json:
        print_json({"prompt_ids": ids, "ids": added, "text": text})
    else:
        typer.echo(text)


def _prompt(model: Model, prompt: str, chat: bool) -> tuple[Tokenizer, list[int]]:
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise ZooError("The model has no tokenizer.json, which text needs. Use zoo.load and token ids.")
    if chat:
        prompt = tokenizer.chat([{"role": "user", "content": prompt}], add_generation_prompt=True)
    ids = tokenizer.encode(prompt, add_special_tokens=not chat)
    if not ids:
        raise ZooError("The prompt has no tokens, and needs at least one. Start with a newline.")
    return tokenizer, ids


def _entry(entry: Entry) -> dict[str, Any]:
    return dataclasses.asdict(entry) | {"bundled": entry.bundled}


@contextlib.contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end the process at once: a computation of XLA would run to its end before Python hears of it."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (ZooError, ValueError, TypeError, MemoryError, jax.errors.JaxRuntimeError) as error:
        console = rich.console.Console(stderr=True, soft_wrap=True)
        first_line, _, _ = str(error).partition("\n")
        message = first_line if isinstance(error, jax.errors.JaxRuntimeError) else str(error) or type(error).__name__
        console.print(f"[bold red]error:[/] {rich.markup.escape(message)}", highlight=False)
        raise typer.Exit(1) from None
