"""The page of `kvlife report`: what is noted of a replay, in a bounded number of figures."""

from kvlife.replay.report_page.axis import Axis, axis_of
from kvlife.replay.report_page.content import content_of
from kvlife.replay.report_page.page import page_of
from kvlife.replay.report_page.watcher import Watcher

__all__ = ["Axis", "Watcher", "axis_of", "content_of", "page_of"]
