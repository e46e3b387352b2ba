"""A matplotlib figure as an SVG element that fits light and dark pages and says the same each time.

Ink is the colour of the surrounding text. Letters stay text, no date and no random name is
written, and names inside begin with the figure's own, so that many figures share one page.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from xml.etree import ElementTree

import matplotlib.style
from matplotlib.figure import Figure

from harness.report.document import Figure as ReportFigure

INK = "#010203"  # stands for the page's text colour until the file is written
WIDTH_IN, TEXT_POINTS = 5.4, 9.0
_NAMESPACE = "http://www.w3.org/2000/svg"
_LINK = "{http://www.w3.org/1999/xlink}href"
_DRAWN_FONT = "DejaVu Sans"  # comes with matplotlib, so widths are the same everywhere
_FONTS = f"'{_DRAWN_FONT}',Verdana,sans-serif"
_STYLE = {
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "none",
    "font.family": [_DRAWN_FONT],
    "font.size": TEXT_POINTS,
    "grid.alpha": 0.2,
    "grid.color": INK,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "report",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
}
_NUMBERS = ("d", "x", "y", "width", "height", "transform")
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_THEME = (
    "svg{color:#1b1f24;background:#fff}"
    "@media (prefers-color-scheme:dark){svg{color:#e4e7eb;background:#14171a}}"
)


@contextmanager
def drawing() -> Iterator[None]:
    """Within it figures are drawn alike, whatever the user's own settings."""
    with matplotlib.style.context(["default", _STYLE]), warnings.catch_warnings():
        # Letters stay text: the reader's fonts draw what the measuring font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def new_figure(height_in: float) -> Figure:
    """An empty figure of the page's width, in inches."""
    return Figure(figsize=(WIDTH_IN, height_in), layout="constrained")


def to_svg(figure: Figure, name: str, caption: str) -> str:
    """One <svg> element, labelled with the caption. Call it inside `drawing`."""
    data = io.BytesIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(data, format="svg", metadata=nothing)
    root = ElementTree.fromstring(data.getvalue())
    for definitions in root.iter(f"{{{_NAMESPACE}}}defs"):
        for style in definitions.findall(f"{{{_NAMESPACE}}}style"):
            definitions.remove(style)  # it would apply to the whole page
    for element in root.iter():
        _rewrite(element, name)
    for element in root.iter():
        _share_style(element)
    for size in ("width", "height", "version"):
        root.attrib.pop(size, None)
    root.attrib |= {
        "class": "plot",
        "role": "img",
        "aria-label": caption,
        "style": f"stroke-linejoin:round;stroke-linecap:butt;font-family:{_FONTS}",
    }
    ElementTree.register_namespace("", _NAMESPACE)
    text = ElementTree.tostring(root, encoding="unicode")
    return "\n".join(line.rstrip() for line in text.split("\n") if line.strip())


def standalone(figure: ReportFigure) -> str:
    """The figure as a file of its own, with a background that suits its ink."""
    head, _, rest = figure.svg.partition(">")
    return f"{head}><style>{_THEME}</style>{rest}\n"


def _share_style(group: ElementTree.Element) -> None:
    """The style of many equal markers, once."""
    styles = {child.get("style") for child in group}
    tags = {child.tag for child in group}
    if len(group) > 1 and tags == {f"{{{_NAMESPACE}}}use"} and len(styles) == 1:
        group.set("style", styles.pop() or "")
        for child in group:
            del child.attrib["style"]


def _rewrite(element: ElementTree.Element, name: str) -> None:
    """Names of this figure alone, links without a namespace, ink of the page."""
    if "id" in element.attrib:
        element.attrib["id"] = f"{name}-{element.attrib['id']}"
    if _LINK in element.attrib:
        element.attrib["href"] = f"#{name}-{element.attrib.pop(_LINK)[1:]}"
    for key, value in element.attrib.items():
        if key in _NUMBERS:
            element.attrib[key] = _LONG_NUMBER.sub(lambda match: f"{float(match[0]):.2f}", value)
        elif key in ("style", "clip-path"):
            value = re.sub(r"url\(#", f"url(#{name}-", value)
            value = value.replace(f" font-family: '{_DRAWN_FONT}';", "")
            element.attrib[key] = value.replace(INK, "currentColor")
