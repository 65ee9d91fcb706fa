"""A drawn picture on a dark screen: the same file, with other colours.

A picture brings a style that follows the reader's screen, its ground included. So it is readable on every page, also
where the page is dark and the screen is not.
"""

from __future__ import annotations

import re

DARK = {
    "#ffffff": "#1f2124", "#eeeeee": "#2b2f34", "#dddddd": "#3b4047",
    "#000000": "#e8e8e6", "#555555": "#a9adb3", "#666666": "#a0a5ab", "#777777": "#979ca3", "#888888": "#8e949b",
    "#999999": "#868c94",
    "#0072b2": "#4a9bee", "#d55e00": "#f2803c", "#009e73": "#2fc497", "#cc79a7": "#e59cc8", "#56b4e9": "#9ad7ff",
    "#e69f00": "#f7c552",
}  # fmt: skip
"""A colour of the figures, which is drawn for white, and what it is in the dark. Others are values, and stay."""
_TEXT = 'svg[role="img"]'
"""Letters have no colour of their own."""


def with_dark_colors(svg: str) -> str:
    """The picture with a style for dark screens; it needs the style element that matplotlib writes."""
    rules = [f"{_TEXT}{{fill:{DARK['#000000']}}}"]
    for light, dark in DARK.items():
        for what in ("fill", "stroke"):
            if f"{what}: {light}" in svg:
                rules.append(f'{_TEXT} [style*="{what}: {light}"]{{{what}:{dark}!important}}')
    style = f"@media screen and (prefers-color-scheme:dark){{{''.join(rules)}}}"
    return re.sub(r"</style>", f"{style}</style>", svg, count=1)
