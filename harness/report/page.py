"""A document as one HTML file that loads nothing, and as Markdown."""

from __future__ import annotations

import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from harness.compare.statistics import FAST, SLOW
from harness.records.printable import printable
from harness.report.document import (
    STALE,
    Block,
    Bullets,
    Document,
    Figure,
    Fold,
    Kind,
    Log,
    Paragraph,
    Section,
    Table,
    format_value,
)
from harness.report.tables import escape_markdown, markdown_text, to_markdown

GENERATOR = "harness report"
_TEMPLATE = "page.html"
_WRAPPED_CHARACTERS = 60  # longer text cells break into lines


def to_html(document: Document) -> str:
    """The whole page: every value escaped, figures inline, light and dark."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.globals |= {
        "cell_class": _cell_class,
        "code_spans": _code_spans,
        "format_value": format_value,
        "kind_of": lambda block: type(block).__name__,
    }
    template = environment.get_template(_TEMPLATE)
    text = template.render(document=document, generator=GENERATOR)
    return "\n".join(line.rstrip() for line in text.split("\n") if line.strip()) + "\n"


def to_document_markdown(document: Document) -> str:
    """The same content; figures are links to files of plots/."""
    parts = [f"# {escape_markdown(document.title)}"]
    parts += [_section(section, 2) for section in document.sections]
    return "\n\n".join(parts) + "\n"


def _cell_class(kind: Kind, text: str) -> Markup:
    names = []
    if kind.is_number:
        names.append("n")
    elif kind in (Kind.CODE, Kind.CONTENT):
        names.append("c")
    elif len(text) > _WRAPPED_CHARACTERS:
        names.append("t")
    if kind is Kind.WORD and text in (FAST, SLOW):
        names.append(text)
    if kind is Kind.CONTENT and text.startswith(STALE):
        names.append("stale")
    return Markup(f' class="{" ".join(names)}"') if names else Markup()


def _code_spans(text: str) -> Markup:
    """Commands break between words, not behind a hyphen of an option."""
    return Markup(re.sub(r"`([^`\n]+)`", _code, str(escape(printable(text)))))


def _code(match: re.Match[str]) -> str:
    words = match[1].split(" ")
    whole = " ".join(f"<span>{word}</span>" if "-" in word else word for word in words)
    return f"<code>{whole}</code>"


def _section(section: Section, level: int) -> str:
    parts = [f"{'#' * level} {escape_markdown(section.title)}"]
    parts += [_block(block, level + 1) for block in section.blocks]
    return "\n\n".join(parts)


def _block(block: Block, level: int) -> str:
    if isinstance(block, Paragraph):
        return markdown_text(block.text)
    if isinstance(block, Bullets):
        return "\n".join(f"* {markdown_text(item)}" for item in block.items)
    if isinstance(block, Table):
        return f"{escape_markdown(block.caption)}\n\n{to_markdown(block)}"
    if isinstance(block, Figure):
        return f"![{escape_markdown(block.caption)}](plots/{block.name}.svg)"
    if isinstance(block, Log):
        return f"{escape_markdown(block.title)}\n\n{_fenced(block.text)}"
    if isinstance(block, Fold):
        inner = "\n\n".join(_block(one, level) for one in block.blocks)
        title = escape_markdown(block.title)
        return f"<details><summary>{title}</summary>\n\n{inner}\n\n</details>"
    return _section(block, level)


def _fenced(text: str) -> str:
    """Text between fences that it cannot close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
