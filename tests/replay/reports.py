"""Reports that the tests of the page make, and what stands in them."""

import json
import re

from kvlife.replay.cli import main


def reported(capsys, log, *options):
    """Run `kvlife report --json`; its exit status and object, the page, and the charts' content."""
    target = log.parent / f"{log.name}.html"
    status = main(["report", str(log), "-o", str(target), "--json", *map(str, options)])
    out, err = capsys.readouterr()
    assert not err
    page = target.read_text(encoding="utf-8")
    return status, json.loads(out), page, content_of(page)


def content_of(page):
    """The JSON that the charts are drawn from."""
    (content,) = re.findall(r'<script type="application/json" id="content">(.*?)</script>', page)
    return json.loads(content)
