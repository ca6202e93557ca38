"""The chart of bench/peers, made of the tables of a page."""

import pathlib
import sys
import xml.etree.ElementTree as ET

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench" / "peers"))

import chart  # noqa: E402

PAGE = """## Beside other libraries

1 × 64.0 MiB, 200 tensors, tmpfs:

| library | blocked | durable | load | memory | extra |
|---|---|---|---|---|---|
| shoal | 10.0 ms | 40.0 ms | 20.0 ms | 135.7 MiB | 60.6 KiB |
| orbax | did not run to its end | | | | |
| torch.save | 80.0 ms, ×8.00 | 1.28 s, ×32.00 | 40.0 ms, ×2.00 | 69.0 MiB | 52.2 KiB |

## Another table

| library | blocked | durable | load |
|---|---|---|---|
| none | 1 ms | 1 ms | 1 ms |
"""


def test_the_bars_of_a_page():
    panels = chart.panels_of(PAGE)
    assert panels == [
        (
            "1 × 64.0 MiB, 200 tensors, tmpfs",
            {
                "shoal": {"blocked": 0.01, "durable": 0.04, "load": 0.02},
                "torch.save": {"blocked": 0.08, "durable": 1.28, "load": 0.04},
            },
        )
    ]
    bars = [each for each in ET.fromstring(chart.svg(panels)).iter() if each.get("height") == "11"]
    assert len(bars) == 6
    widths = [float(bar.get("width")) for bar in bars]
    assert min(widths) == 4 and max(widths) == chart.BAR_WIDTH
    assert widths[1] - widths[0] == widths[5] - widths[0]  # 40 ms twice
