"""CSS colour names as the 24-bit numbers that NVTX takes; ``nvtx`` itself knows ten, or needs matplotlib."""

from __future__ import annotations

NAMED = {
    "aqua": 0x00FFFF, "black": 0x000000, "blue": 0x0000FF, "brown": 0xA52A2A, "chocolate": 0xD2691E, "coral": 0xFF7F50,
    "crimson": 0xDC143C, "cyan": 0x00FFFF, "darkblue": 0x00008B, "darkcyan": 0x008B8B, "darkgray": 0xA9A9A9,
    "darkgreen": 0x006400, "darkorange": 0xFF8C00, "darkred": 0x8B0000, "darkviolet": 0x9400D3, "deeppink": 0xFF1493,
    "dodgerblue": 0x1E90FF, "firebrick": 0xB22222, "forestgreen": 0x228B22, "fuchsia": 0xFF00FF, "gold": 0xFFD700,
    "gray": 0x808080, "green": 0x008000, "grey": 0x808080, "hotpink": 0xFF69B4, "indigo": 0x4B0082, "khaki": 0xF0E68C,
    "lavender": 0xE6E6FA, "lightblue": 0xADD8E6, "lightgray": 0xD3D3D3, "lightgreen": 0x90EE90, "lime": 0x00FF00,
    "limegreen": 0x32CD32, "magenta": 0xFF00FF, "maroon": 0x800000, "navy": 0x000080, "olive": 0x808000,
    "orange": 0xFFA500, "orangered": 0xFF4500, "orchid": 0xDA70D6, "pink": 0xFFC0CB, "plum": 0xDDA0DD,
    "purple": 0x800080, "rapids": 0x7400FF, "red": 0xFF0000, "royalblue": 0x4169E1, "salmon": 0xFA8072,
    "seagreen": 0x2E8B57, "silver": 0xC0C0C0, "skyblue": 0x87CEEB, "slateblue": 0x6A5ACD, "steelblue": 0x4682B4,
    "tan": 0xD2B48C, "teal": 0x008080, "tomato": 0xFF6347, "turquoise": 0x40E0D0, "violet": 0xEE82EE,
    "white": 0xFFFFFF, "yellow": 0xFFFF00, "yellowgreen": 0x9ACD32,
}  # fmt: skip
OPAQUE = 0xFF000000


def to_argb(color: str) -> int | None:
    """``0xAARRGGBB`` of a CSS name, ``#rgb`` or ``#rrggbb``; ``None`` (the tool's own colour) for anything else."""
    text = color.strip().lower()
    if text in NAMED:
        return OPAQUE | NAMED[text]
    digits = text.removeprefix("#")
    if not text.startswith("#") or len(digits) not in (3, 6):
        return None
    if len(digits) == 3:
        digits = "".join(digit * 2 for digit in digits)
    try:
        return OPAQUE | int(digits, 16)
    except ValueError:
        return None


def from_argb(value: int | None) -> str:
    """``#rrggbb`` of a colour as a report stores it; an empty string for none."""
    return "" if value is None else f"#{value & 0xFFFFFF:06x}"
