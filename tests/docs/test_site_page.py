"""The page about a site: each of its sections is one that a device's file may have."""

import re

import pytest
import yaml

from hushgrid.node.config.device import load_device
from tests.support.paths import DEPLOY, ROOT

PAGE = (ROOT / "docs/site.md").read_text(encoding="utf-8")
SECTIONS = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.S)


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_of_the_page_is_one_that_a_device_takes(section, tmp_path):
    raw = yaml.safe_load((DEPLOY / "nodes/z1.yaml").read_text()) | yaml.safe_load(section)
    del raw["data"]["loads"]
    (tmp_path / "z1.yaml").write_text(yaml.safe_dump(raw))
    config = load_device(tmp_path / "z1.yaml")
    assert config.source or config.sink


def test_the_page_shows_every_kind_of_source_and_sink():
    found = yaml.safe_load("\n".join(f"- {section.strip()!r}" for section in SECTIONS))
    text = "\n".join(found)
    for key in ("file:", "folder:", "command:", "mqtt:", "exec:", "bounds:", "max_age:", "within:", "discovery:"):
        assert key in text
