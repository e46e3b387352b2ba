"""A strict reading of an HTML page for tests: nesting, tables, attributes, ids."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "img", "input"}


@dataclass
class ReadTable:
    columns: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    caption: str = ""


class Page(HTMLParser):
    """tables: by id. attributes: (tag, name, value). text: all text outside <style>."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: dict[str, ReadTable] = {}
        self.attributes: list[tuple[str, str, str]] = []
        self.tags: list[str] = []
        self.text, self.style = "", ""
        self._open: list[str] = []
        self._table: ReadTable | None = None
        self.feed(text)
        self.close()
        assert self._open == [], f"never closed: {self._open}"

    def ids(self) -> list[str]:
        return [value for _, name, value in self.attributes if name == "id"]

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), f"<{tag}> has an attribute twice"
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self._table = self.tables.setdefault(dict(attrs)["id"], ReadTable())
        elif self._table is not None and tag == "tr":
            self._table.rows.append([])
        elif self._table is not None and tag in ("td", "th"):
            row = self._table.columns if "thead" in self._open else self._table.rows[-1]
            row.append("")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self._open and self._open[-1] == tag, f"</{tag}> in {self._open}"
        self._open.pop()
        if tag == "thead":
            assert self._table is not None
            self._table.rows.pop()  # the header's own line
        elif tag == "table":
            self._table = None

    def handle_data(self, data):
        if self._open and self._open[-1] == "style":
            self.style += data
            return
        self.text += data
        if self._table is None:
            return
        if "td" in self._open or "th" in self._open:
            row = self._table.columns if "thead" in self._open else self._table.rows[-1]
            row[-1] += data
        elif "caption" in self._open:
            self._table.caption += data
